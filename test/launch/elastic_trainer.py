"""A rank of an elastic job. Its result depends on every step to the last bit, but not on the number of ranks.

``python elastic_trainer.py STEPS`` is one process. ``python elastic_trainer.py`` without arguments forks one
for each line of its stdin, as importing PyTorch takes most of the life of such a process: see ``serve``.
``KILL="step phase"`` makes a process kill itself there, the ranks stop early when the file ``STOP`` exists,
``PACE`` is for how many seconds each step sleeps, and ``COMMITS`` after how many steps there is a commit. It
prints a line for each call of the function and each step, and at the end the number of steps and the hash of
them all.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from forked import say, serve

import horovod.torch as hvd

SHARES = 24  # parts of the work of a step, which the ranks divide among themselves
SAMPLES = 64
MOST_RANKS = 6
BATCH = 4
# In the forward pass; while gradients arrive; before the update; in the commit; before the next step.
PHASES = ("forward", "backward", "update", "commit", "between")


def here(step: int, phase: str) -> None:
    """Ends this process if this is its moment."""
    if os.environ.get("KILL") == f"{step} {phase}":
        os.kill(os.getpid(), signal.SIGKILL)


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(*(torch.nn.Linear(16, 16, bias=False, dtype=torch.float64) for _ in range(6)))


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), 0.01)


def loss_of(model: torch.nn.Module, step: int, first: int, stride: int) -> torch.Tensor:
    """Its gradients are multiples of 2^-10, of which every order gives the same sum."""
    generator = torch.Generator().manual_seed(step)
    factors = torch.randint(-9, 10, (SHARES, 16, 16), generator=generator, dtype=torch.float64)[first::stride]
    products = [
        (each * (torch.round(factors * torch.tanh(each.detach()) * 1024) / 1024).sum(0)).sum()
        for each in model.parameters()
    ]
    return torch.stack(products).sum()


def link(chain: str, step: int, model: torch.nn.Module) -> str:
    """Returns the next hash of the chain."""
    digest = hashlib.sha256(f"{chain} {step}".encode())
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def expected(steps: int) -> str:
    """Returns the last hash without faults."""
    model, chain = network(), ""
    optimizer = optimizer_of(model)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step, 0, 1).backward()
        optimizer.step()
        chain = link(chain, step, model)
    return chain


def batches(state: Any) -> Iterator[list[int]]:
    """Gives this rank's batches, epoch after epoch, and checks that each sample was in one of an epoch's.

    Less than one for each rank are repeated at the end of an epoch.
    """
    while True:
        order = list(state.sampler)
        for at in range(0, len(order), BATCH):
            yield order[at : at + BATCH]
        if min(state.seen) < 1 or sum(state.seen) >= SAMPLES + MOST_RANKS:
            raise SystemExit(f"samples of an epoch: {state.seen}")
        state.seen = [0] * SAMPLES
        state.sampler.set_epoch(state.sampler.epoch + 1)


def count(state: Any, batch: list[int]) -> None:
    mine = torch.zeros(SAMPLES, dtype=torch.int64)
    mine[batch] += 1
    seen = hvd.allreduce(mine, op=hvd.Sum, name="seen")
    state.seen = [before + now for before, now in zip(state.seen, seen.tolist(), strict=True)]
    state.sampler.record_batch(0, len(batch))


def train_step(state: Any, model: torch.nn.Module, optimizer: Any) -> None:
    step = state.step
    optimizer.zero_grad()
    time.sleep(float(os.environ.get("PACE", "0")))
    here(step, "forward")
    loss_of(model, step, hvd.rank(), hvd.size()).backward()
    here(step, "update")
    optimizer.step()
    state.chain = link(state.chain, step, model)
    state.step += 1


def must_stop() -> bool:
    stop = torch.tensor(int(os.path.exists(os.environ["STOP"])))
    return bool(hvd.allreduce(stop, op=hvd.Max, name="stop"))


@hvd.elastic.run
def train(state: Any, steps: int) -> str:
    say("BEGIN", os.environ["HOROVOD_SLOT"], hvd.rank(), hvd.size(), state.step, state.sampler.num_replicas)
    order = batches(state)
    while state.step < steps and not must_stop():
        count(state, next(order))
        train_step(state, state.model, state.optimizer)
        say("STEP", state.step, f"{time.monotonic():.4f}")
        if state.step % int(os.environ.get("COMMITS", "1")) == 0:
            state.commit()
        else:
            state.check_host_updates()
        here(state.step, "between")
    return f"{state.step} {state.chain}"


class Killed(hvd.elastic.TorchState):
    """Is killed in the middle of a commit."""

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
            here(getattr(self, "step", 0), "commit")
        super().save()


def main(steps: int) -> None:
    torch.set_num_threads(1)
    hvd.init()
    model = network()
    optimizer = hvd.DistributedOptimizer(optimizer_of(model), model.named_parameters(), op=hvd.Sum)
    sampler = hvd.elastic.ElasticSampler(range(SAMPLES))
    state = Killed(model, optimizer, sampler=sampler, step=0, chain="", seen=[0] * SAMPLES)
    model[3].weight.register_hook(lambda _: here(state.step, "backward"))
    say("READY", os.environ["HOROVOD_SLOT"], hvd.rank(), hvd.size(), os.getpid())
    say("END", train(state, steps))
    say("COST", json.dumps(hvd.metrics()["elastic"]))


def alternate(size: int) -> range:
    return range(0, size, 2)


@hvd.elastic.run
def reduce_in_sets(state: Any, sets: list[Any]) -> str:
    """Sums in process sets that have been made before; equal ones find them when ranks have changed."""
    if state.step:
        sets[1:3] = [hvd.add_process_set([1, 2]), hvd.add_process_set(hvd.ProcessSet(alternate))]
    say("SETS", hvd.rank(), hvd.size(), json.dumps({each.process_set_id or 0: each.ranks for each in sets}))
    while not must_stop():
        for each in sets:
            if each.included():
                total = hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=each)
                if total.item() != each.size():
                    raise SystemExit(f"{each}: {total}")
        state.step += 1
        say("STEP", state.step)
        state.commit()
    return "equal"


def use_sets(_: int) -> None:
    torch.set_num_threads(1)
    hvd.init(process_sets="dynamic")
    wanted = [0], [1, 2], alternate, [0, 1], lambda size: range(2, size)
    sets = [hvd.add_process_set(hvd.ProcessSet(each)) for each in wanted]
    say("END", reduce_in_sets(hvd.elastic.TorchState(step=0), sets))


@hvd.elastic.run
def count_usage(state: Any) -> None:
    """Prints how many files and threads this process has, and how many pages of memory."""
    files, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    with open("/proc/self/statm") as memory:
        say("USED", files, threads, memory.read().split()[1])
    while not must_stop():
        state.step += 1
        state.commit()


def reset_often(_: int) -> None:
    torch.set_num_threads(1)
    hvd.init()
    count_usage(hvd.elastic.TorchState(network(), step=0))


def prepare() -> None:
    """Imports what takes seconds, which forked processes then have."""
    optimizer = optimizer_of(network())
    optimizer.zero_grad()
    optimizer.step()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(int(sys.argv[1]))
    else:
        prepare()
        serve({"main": main, "use_sets": use_sets, "reset_often": reset_often})
