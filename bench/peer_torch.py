"""The collectives of horovod.torch and of torch.distributed, timed as bench/protocol.c does.

    horovodrun -np N python bench/peer_torch.py horovod|gloo|engine|alone SECONDS RESULTS CASE...

engine: torch.distributed on this engine. alone: steps of training that send nothing.

Both get their ranks from horovodrun, so that nothing but the library differs. The original Horovod runs the
same lines, on a Python of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from timing import Work, time_of_call

STEADY, SHORT_ONES, SHORT_BYTES = 20, 128, 64 << 10  # rounds until buffers have been used from end to end
CPU_ROUNDS = 5
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # bytes, as DistributedDataParallel cuts them
WIDTH, BATCH = 1024, 8  # of the layers whose weights, 4 MiB each, a training step is made of

Prepare = Callable[[list[torch.Tensor]], Work]


class HorovodPeer:
    """This engine from PyTorch."""

    module = "horovod.torch"

    def __init__(self, folder: Path) -> None:
        import horovod.torch as hvd

        hvd.init()
        self.hvd = hvd
        self.rows: dict[str, Prepare] = {
            "allreduce": lambda tensors: lambda: hvd.allreduce_(tensors[0], op=hvd.Sum, name="bench"),
            "allreduce-new": lambda tensors: lambda: hvd.allreduce(tensors[0], op=hvd.Sum, name="bench"),
            "allgather": lambda tensors: lambda: hvd.allgather(tensors[0], name="bench"),
            "broadcast": lambda tensors: lambda: hvd.broadcast_(tensors[0], 0, name="bench"),
            "alltoall": lambda tensors: lambda: hvd.alltoall(tensors[0], name="bench"),
            "reducescatter": lambda tensors: lambda: hvd.reducescatter(tensors[0], op=hvd.Sum, name="bench"),
            "async": lambda tensors: lambda: self.all_at_once(tensors),
            "grouped": lambda tensors: lambda: hvd.grouped_allreduce_(tensors, op=hvd.Sum, name="bench"),
        }
        self.rows["step-optimizer"] = self.optimizer_step
        if hasattr(hvd, "shared_zeros"):  # the original has no such thing
            self.rows["allreduce-shared"] = self.in_shared_memory

    def optimizer_step(self, tensors: list[torch.Tensor]) -> Work:
        model = make_model(tensors)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        return make_step(model, self.hvd.DistributedOptimizer(optimizer, model.named_parameters()))

    def in_shared_memory(self, tensors: list[torch.Tensor]) -> Work:
        tensor = self.hvd.shared_zeros(tensors[0].numel())
        return lambda: self.hvd.allreduce_(tensor, op=self.hvd.Sum, name="bench")

    def all_at_once(self, tensors: list[torch.Tensor]) -> None:
        handles = [
            self.hvd.allreduce_async_(tensor, op=self.hvd.Sum, name=str(index))
            for index, tensor in enumerate(tensors)
        ]
        for handle in handles:
            self.hvd.synchronize(handle)

    def rank(self) -> int:
        return self.hvd.rank()

    def barrier(self) -> None:
        self.hvd.barrier()

    def largest(self, value: float) -> float:
        number = torch.tensor(value, dtype=torch.float64)
        return self.hvd.allreduce(number, op=self.hvd.Max, name="largest").item()

    def close(self) -> None:
        self.hvd.shutdown()


class GlooPeer:
    """torch.distributed; gradients in flat buckets, as DistributedDataParallel sends them."""

    module = "torch.distributed"
    backend = "gloo"

    def __init__(self, folder: Path) -> None:
        import torch.distributed as dist

        self.own_rank, self.size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = f"file://{folder / 'store'}"
        dist.init_process_group(self.backend, init_method=store, rank=self.own_rank, world_size=self.size)
        self.dist = dist
        self.rows: dict[str, Prepare] = {
            "allreduce": lambda tensors: lambda: dist.all_reduce(tensors[0]),
            "allgather": self.allgather,
            "broadcast": lambda tensors: lambda: dist.broadcast(tensors[0], 0),
            "alltoall": self.alltoall,
            "reducescatter": self.reducescatter,
            "async": lambda tensors: lambda: self.all_at_once(tensors),
            "buckets-copied": self.copied_buckets,
            "buckets-viewed": self.viewed_buckets,
            "step-ddp": self.ddp_step,
            "step-ddp-viewed": lambda tensors: self.ddp_step(tensors, gradient_as_bucket_view=True),
            "step-fsdp2": self.fsdp2_step,
        }

    def ddp_step(self, tensors: list[torch.Tensor], **options: bool) -> Work:
        model = self.wrap(make_model(tensors), **options)
        return make_step(model, torch.optim.SGD(model.parameters(), 0.01))

    def wrap(self, model: torch.nn.Module, **options: bool) -> torch.nn.parallel.DistributedDataParallel:
        return torch.nn.parallel.DistributedDataParallel(model, **options)

    def fsdp2_step(self, tensors: list[torch.Tensor]) -> Work:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        model, mesh = make_model(tensors), init_device_mesh("cpu", (self.size,))
        for layer in (*model, model):
            fully_shard(layer, mesh=mesh)
        return make_step(model, torch.optim.SGD(model.parameters(), 0.01))

    def allgather(self, tensors: list[torch.Tensor]) -> Work:
        output = tensors[0].new_zeros(self.size * len(tensors[0]))
        return lambda: self.dist.all_gather_into_tensor(output, tensors[0])

    def alltoall(self, tensors: list[torch.Tensor]) -> Work:
        output = torch.zeros_like(tensors[0])
        return lambda: self.dist.all_to_all_single(output, tensors[0])

    def reducescatter(self, tensors: list[torch.Tensor]) -> Work:
        output = tensors[0].new_zeros(len(tensors[0]) // self.size)
        return lambda: self.dist.reduce_scatter_tensor(output, tensors[0])

    def viewed_buckets(self, tensors: list[torch.Tensor]) -> Work:
        buckets = [bucket for bucket, _ in make_buckets(tensors)]
        return lambda: self.all_at_once(buckets)

    def copied_buckets(self, tensors: list[torch.Tensor]) -> Work:
        buckets = make_buckets(tensors)
        views = [view for _, parts in buckets for view in parts]

        def work() -> None:
            torch._foreach_copy_(views, tensors)
            self.all_at_once([bucket for bucket, _ in buckets])
            torch._foreach_copy_(tensors, views)

        return work

    def all_at_once(self, tensors: list[torch.Tensor]) -> None:
        for request in [self.dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            request.wait()

    def rank(self) -> int:
        return self.own_rank

    def barrier(self) -> None:
        self.dist.barrier()

    def largest(self, value: float) -> float:
        number = torch.tensor(value, dtype=torch.float64)
        self.dist.all_reduce(number, self.dist.ReduceOp.MAX)
        return number.item()

    def close(self) -> None:
        """Ends the process without the interpreter's end, in which Gloo's threads now and then abort."""
        self.dist.barrier()
        os._exit(0)


class EnginePeer(GlooPeer):
    """torch.distributed on this engine."""

    module = "horovod.torch.distributed"
    backend = "horovod"

    def close(self) -> None:
        self.dist.destroy_process_group()


class AlonePeer(GlooPeer):
    """Steps as DDP and FSDP2 take them when communication takes no time."""

    module = "torch.testing._internal.distributed.fake_pg"
    backend = "fake"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.rows = {what: row for what, row in self.rows.items() if what.startswith("step-")}

    def wrap(self, model: torch.nn.Module, **options: bool) -> torch.nn.parallel.DistributedDataParallel:
        from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

        wrapped = super().wrap(model, **options)
        wrapped.register_comm_hook(None, noop_hook)
        return wrapped


def make_model(tensors: list[torch.Tensor]) -> torch.nn.Sequential:
    """Layers with as many weights as the tensors have elements, about."""
    layers = max(sum(map(torch.Tensor.numel, tensors)) // WIDTH**2, 1)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))


def make_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Work:
    batch = torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


PEERS = {"horovod": HorovodPeer, "gloo": GlooPeer, "engine": EnginePeer, "alone": AlonePeer}


def make_buckets(tensors: list[torch.Tensor]) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Flat buckets with a view for every tensor, in their order."""
    members: list[list[int]] = [[]]
    for tensor in tensors:
        most = (FIRST_BUCKET if len(members) == 1 else BUCKET) // 4
        if members[-1] and sum(members[-1]) + tensor.numel() > most:
            members.append([])
        members[-1].append(tensor.numel())
    buckets = [torch.zeros(sum(counts)) for counts in members]
    return [(bucket, list(bucket.split(counts))) for bucket, counts in zip(buckets, members, strict=True)]


def make_tensors(argument: str) -> list[torch.Tensor]:
    """One tensor of that many bytes, of float32 or the type after a colon, or the tensors of a file."""
    count, _, name = argument.partition(":")
    if count.isdecimal():
        dtype = getattr(torch, name or "float32")
        return [torch.zeros(int(count) // dtype.itemsize, dtype=dtype)]
    return [torch.zeros(int(count)) for count in Path(argument).read_text().split()]


def cpu_time(peer: HorovodPeer | GlooPeer, work: Work) -> float:
    """Seconds that all threads of this process computed, in a round."""
    work()
    peer.barrier()
    before = time.process_time()
    for _ in range(CPU_ROUNDS):
        work()
    return (time.process_time() - before) / CPU_ROUNDS


def memory_held() -> int:
    """KiB that this process can write to, each page divided by the number of processes that hold it."""
    held, writable = 0, False
    with Path("/proc/self/smaps").open() as lines:  # not as one text, which would take memory itself
        for line in lines:
            first, second, *_ = line.split()
            if not first.endswith(":"):
                writable = second[1] == "w"
            elif writable and first == "Pss:":
                held += int(second)
    return held


def memory_beyond(peer: HorovodPeer | GlooPeer, work: Work) -> float:
    """KiB that this rank holds more once it has worked."""
    work_on_one = peer.rows["allreduce"](make_tensors(str(SHORT_BYTES)))
    peer.barrier()
    before = memory_held()
    for _ in range(STEADY):
        work()
    for _ in range(SHORT_ONES):
        work_on_one()
    peer.barrier()
    after = memory_held()
    peer.barrier()
    return after - before


def main() -> None:
    """Measures every case that the library has a row for."""
    library, seconds, folder, *cases = sys.argv[1:]
    torch.set_num_threads(1)
    kind = PEERS[library]
    importlib.import_module(kind.module)
    before = memory_held()
    peer = kind(Path(folder))
    opening = memory_held() - before
    with (Path(folder) / str(peer.rank())).open("w") as results:
        for case in cases:
            what, argument = case.split(":", 1)
            if what == "memory":
                work = peer.rows["async"](make_tensors(argument))
                results.write(f"{case},{opening + memory_beyond(peer, work):.3f}\n")
            elif what == "cpu":
                work = peer.rows["allreduce"](make_tensors(argument))
                results.write(f"{case},{1e6 * cpu_time(peer, work):.3f}\n")
            elif what in peer.rows:
                work = peer.rows[what](make_tensors(argument))
                with contextlib.suppress(ValueError):  # the original Horovod knows no bfloat16
                    results.write(f"{case},{1e6 * time_of_call(peer, work, float(seconds)):.3f}\n")
    peer.close()


if __name__ == "__main__":
    main()
