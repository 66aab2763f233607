"""A rank of the jobs that bench/elastic.py measures: trains a small network until it is killed.

    elastic_worker.py PEER FOLDER [--state MEGABYTES] [--commits N] [--build SECONDS] [--rounds N]

PEER is `torch` (an elastic state), `numpy` (4 MiB reduced in each step), `ddp` (what torchrun starts again,
from a file), `torchft` (a replica group of one process) or `commit` (measures commits, and ends). Each writes
a line for each step into a file of its own in FOLDER: the time by CLOCK_MONOTONIC, which all hosts of
one machine share, the step, the size and the rank. Its name has the host's name and the process's number
there.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

WIDTH = 256  # of each of 8 layers: 2 MiB of parameters
SAVED = 10  # steps between two files, as scripts for torchrun do it
BLOCKS = 3  # of steps without and with commits, in turns


class Log:
    """The file of this process."""

    def __init__(self, folder: str) -> None:
        path = Path(folder) / f"{socket.gethostname()}-{os.getpid()}"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def step(self, step: int, size: int, rank: int) -> None:
        os.write(self.file, f"{time.monotonic()} {step} {size} {rank}\n".encode())


def network(megabytes: float) -> Any:
    """The ballast belongs to the state and costs no time in a step."""
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(8)))
    if megabytes:
        model.register_buffer("ballast", torch.ones(int(megabytes * 1e6) // 4))
    return model


def train_elastic(args: argparse.Namespace, log: Log) -> None:
    import torch

    import horovod.torch as hvd

    hvd.init()
    model = network(args.state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    inputs = torch.randn(8, WIDTH)
    time.sleep(args.build)

    @hvd.elastic.run
    def train(state: Any) -> None:
        while True:
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            state.step += 1
            log.step(state.step, hvd.size(), hvd.rank())
            if state.step % args.commits == 0:
                state.commit()

    train(hvd.elastic.TorchState(model, optimizer, step=0))


def train_numpy(args: argparse.Namespace, log: Log) -> None:
    import numpy as np

    import horovod as hvd

    hvd.init()
    values = np.ones(1 << 20, np.float32)

    @hvd.elastic.run
    def train(state: Any) -> None:
        while True:
            hvd.allreduce(values, name="values")
            state.step += 1
            log.step(state.step, hvd.size(), hvd.rank())
            state.commit()

    train(hvd.elastic.ObjectState(step=0))


def train_ddp(args: argparse.Namespace, log: Log) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = network(args.state)
    path, step = Path(args.folder) / "state.pt", 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    inputs = torch.randn(8, WIDTH)
    while True:
        optimizer.zero_grad()
        parallel(inputs).square().mean().backward()
        optimizer.step()
        step += 1
        log.step(step, dist.get_world_size(), dist.get_rank())
        if step % SAVED == 0 and dist.get_rank() == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(saved, f"{path}.new")
            os.replace(f"{path}.new", path)


def train_torchft(args: argparse.Namespace, log: Log) -> None:
    import torch
    from torch.distributed import TCPStore
    from torchft import Manager, Optimizer, ProcessGroupGloo

    model = network(args.state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),  # as torchft's own example has it
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
    )
    managed, inputs, last = Optimizer(manager, optimizer), torch.randn(8, WIDTH), 0
    while True:
        managed.zero_grad()
        model(inputs).square().mean().backward()
        # Its DistributedDataParallel (0.2.0) fails by an assertion on the survivors of a loss.
        for work in [manager.allreduce(parameter.grad) for parameter in model.parameters()]:
            work.wait()
        managed.step()
        if manager.current_step() > last:  # otherwise its gradients were lost
            last = manager.current_step()
            log.step(last, manager.num_participants(), manager.participating_rank() or 0)


def resident() -> int:
    """Bytes of this process's own memory and of the host's common copy that it has touched."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon", "RssShmem")))


def measure_commits(args: argparse.Namespace, log: Log) -> None:
    """Prints: a step, a step with a commit, its call, the longest call (ms), a look for changes (µs), MB."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    width = int((args.state * 1e6 / 8 / 10) ** 0.5)  # ten layers; as much again is the optimizer's
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    inputs = torch.randn(64, width)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    def timed(call: Any, count: int) -> list[float]:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return times

    @hvd.elastic.run
    def train(state: Any) -> None:
        timed(step, 3)
        before = resident()
        plain, with_commit, calls = [], [], []
        for _ in range(BLOCKS):
            step()  # waits for the last commit's copy
            for _ in range(args.rounds // BLOCKS):
                hvd.barrier()
                plain += timed(step, 1)
            for _ in range(args.rounds // BLOCKS):
                hvd.barrier()
                steps = timed(step, 1)
                calls += timed(state.commit, 1)
                with_commit.append(steps[0] + calls[-1])
        looks = timed(state.check_host_updates, 2000)
        if hvd.rank() == 0:
            middle = statistics.median
            figures = [1e3 * middle(plain), 1e3 * middle(with_commit), 1e3 * middle(calls), 1e3 * max(calls)]
            print("FIGURES", *figures, 1e6 * middle(looks), (resident() - before) / 1e6, flush=True)

    train(hvd.elastic.TorchState(model, optimizer, step=0))


PEERS = {
    "torch": train_elastic,
    "numpy": train_numpy,
    "ddp": train_ddp,
    "torchft": train_torchft,
    "commit": measure_commits,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder")
    parser.add_argument("--state", type=float, default=0, help="megabytes more than the network's")
    parser.add_argument("--commits", type=int, default=1, help="steps between two commits")
    parser.add_argument("--build", type=float, default=0, help="seconds that building the model takes")
    parser.add_argument("--rounds", type=int, default=30, help="of `commit`")
    args = parser.parse_args()
    PEERS[args.peer](args, Log(args.folder))


if __name__ == "__main__":
    main()
