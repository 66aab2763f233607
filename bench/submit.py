"""What Python adds to each gradient: horovodrun -np N python bench/submit.py [rounds].

Printed are the least times over all rounds, in us a tensor, of 160 tensors of 64 bytes:

- submitting: one call of the C module for a tensor that is ready, which checks, describes and queues it;
- ``allreduce_async_``: the call of users, whose own share is the difference;
- waiting: ``synchronize`` of all handles, in which the calling thread also does the engine's work;
- ``DistributedOptimizer``: by how much a training step of 160 parameters is longer with it than without.

With one rank nothing is sent: the rest is Python's and the engine's share.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

import horovod.torch as hvd
from horovod import _core
from horovod.framework.requests import ALLREDUCE

TENSORS = 160


def seconds_of(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def submit(tensors: dict[str, torch.Tensor]) -> list[object]:
    request = _core.describe(ALLREDUCE)
    return [_core.submit(request, name, (tensor,)) for name, tensor in tensors.items()]


def call(tensors: dict[str, torch.Tensor]) -> list[object]:
    return [hvd.allreduce_async_(tensor, op=hvd.Sum, name=name) for name, tensor in tensors.items()]


def seconds_of_all(
    start: Callable[[dict[str, torch.Tensor]], list[object]], tensors: dict[str, torch.Tensor]
) -> list[float]:
    """Of starting reductions of all tensors, and of waiting for them."""
    handles: list[object] = []
    started = seconds_of(lambda: handles.extend(start(tensors)))
    return [started, seconds_of(lambda: [hvd.synchronize(handle) for handle in handles])]


def make_step(distributed: bool) -> Callable[[], object]:
    """A training step of a model of that many parameters."""
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(TENSORS // 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    if distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    batch = torch.zeros(1, 4)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    return step


def main() -> None:
    """Prints the table; the compared cases alternate."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    hvd.init()
    torch.set_num_threads(1)
    tensors = {f"tensor.{i}": torch.zeros(16) for i in range(TENSORS)}
    plain, distributed = make_step(False), make_step(True)
    least = [1.0] * 5
    for _ in range(rounds):
        (submitted, _), (called, waited) = seconds_of_all(submit, tensors), seconds_of_all(call, tensors)
        times = [submitted, called, waited, seconds_of(plain), seconds_of(distributed)]
        least = [min(before, now) for before, now in zip(least, times, strict=True)]
    submitted, called, waited, alone, together = (1e6 * seconds / TENSORS for seconds in least)
    if hvd.rank() == 0:
        print(f"| {hvd.size()} rank(s), {TENSORS} tensors of 64 bytes | us a tensor |\n|---|--:|")
        print(f"| submitting (`_core.submit`) | {submitted:.2f} |")
        print(f"| `allreduce_async_`, which does that | {called:.2f} |")
        print(f"| waiting | {waited:.2f} |")
        print(f"| `DistributedOptimizer`, added to a step | {together - alone:.2f} |")
    hvd.shutdown()


if __name__ == "__main__":
    main()
