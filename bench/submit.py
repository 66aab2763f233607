"""What Python adds to each gradient: horovodrun -np N python bench/submit.py [rounds].

Printed are the least times over all rounds, in us a tensor: of starting allreduces of 160 tensors of 64
bytes, of starting them and waiting, and by how much a training step of 160 tiny parameters is longer with a
DistributedOptimizer than without. With one rank nothing is sent: the rest is Python's and the engine's share.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

import horovod.torch as hvd

TENSORS = 160
TENSOR = torch.zeros(16)


def seconds_of(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def seconds_of_allreduces(tensors: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Of starting them, and of waiting for them."""
    handles: list[object] = []
    start = seconds_of(
        lambda: handles.extend(hvd.allreduce_async_(t, op=hvd.Sum, name=name) for name, t in tensors.items())
    )
    return start, seconds_of(lambda: [hvd.synchronize(handle) for handle in handles])


def make_step(distributed: bool) -> Callable[[], object]:
    """A training step of a model of so many parameters."""
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
    """Prints the table; what is compared alternates."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    hvd.init()
    torch.set_num_threads(1)
    tensors = {f"tensor.{i}": TENSOR.clone() for i in range(TENSORS)}
    plain, distributed = make_step(False), make_step(True)
    least = {"start": 1.0, "start and wait": 1.0, "step": 1.0, "distributed step": 1.0}
    for _ in range(rounds):
        start, wait = seconds_of_allreduces(tensors)
        times = (start, start + wait, seconds_of(plain), seconds_of(distributed))
        least = {name: min(before, now) for (name, before), now in zip(least.items(), times, strict=True)}
    if hvd.rank() == 0:
        *_, alone, together = least.values()
        print(f"| {hvd.size()} ranks, {TENSORS} tensors of 64 bytes | us a tensor |\n|---|--:|")
        for name in ("start", "start and wait"):
            print(f"| `allreduce_async_`: {name} | {1e6 * least[name] / TENSORS:.2f} |")
        print(f"| what `DistributedOptimizer` adds to a step | {1e6 * (together - alone) / TENSORS:.2f} |")
    hvd.shutdown()


if __name__ == "__main__":
    main()
