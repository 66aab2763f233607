"""What horovod.torch does with tensors on GPUs, by PyTorch itself: a line for each check.

    horovodrun -np 2 python test/gpu/operations.py [--device cuda|cpu] [--nccl]

Ranks may share a GPU. Rank 0 prints "ok NAME" or "FAILED NAME: why"; the exit code is 1 if a check has
failed. With `--device cpu` the same runs without a GPU, less what only CUDA has. With `--nccl` NCCL must
move tensors; ranks on one GPU are hosts of their own then, as NCCL sees it.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

import horovod.torch as hvd
import horovod.torch.distributed  # noqa: F401

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ELEMENTS = 4099  # a prime: no block of a kernel divides it

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
parser.add_argument("--nccl", action="store_true")
args = parser.parse_args()
on_gpu = args.device == "cuda"
if args.nccl:
    host = f"host of rank {os.environ['HOROVOD_RANK']}"
    os.environ |= {"HOROVOD_GPU_OPERATIONS": "nccl", "NCCL_HOSTID": host, "NCCL_SOCKET_IFNAME": "lo"}
STEPS = 200 if on_gpu else 10
hvd.init(process_sets="dynamic")
rank, size = hvd.rank(), hvd.size()
if on_gpu:
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def values(of: int, dtype: torch.dtype = torch.float32, elements: int = ELEMENTS) -> torch.Tensor:
    """Of rank `of`, on the CPU; sums of them are exact in every type."""
    return ((torch.arange(elements) + of) % 5 + 1).to(dtype)


def everywhere(dtype: torch.dtype = torch.float32, elements: int = ELEMENTS) -> list[torch.Tensor]:
    return [values(each, dtype, elements) for each in range(size)]


def check_equal(got: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    assert got.device == device, f"{what}: on {got.device}"
    assert got.dtype == expected.dtype and got.shape == expected.shape, f"{what}: {got.dtype}, {got.shape}"
    differ = (got.cpu() != expected).nonzero()
    assert not len(differ), f"{what}: {len(differ)} of {expected.numel()} elements, the first at {differ[0]}"


def delay() -> None:
    """Keeps the current stream of a GPU busy for some hundredths of a second."""
    if on_gpu:
        torch.cuda._sleep(50_000_000)


def reductions() -> None:
    reduce: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {
        hvd.Sum: lambda all_of: all_of.sum(0),
        hvd.Min: lambda all_of: all_of.min(0).values,
        hvd.Max: lambda all_of: all_of.max(0).values,
        hvd.Product: lambda all_of: all_of.prod(0),
    }
    for dtype in (*FLOATS, *INTEGERS):
        for op, function in reduce.items():
            expected = function(torch.stack(everywhere(dtype)).double()).to(dtype)
            check_equal(hvd.allreduce(values(rank, dtype).to(device), op=op), expected, (dtype, op))
    for dtype in FLOATS:
        total = torch.stack(everywhere(dtype)).double().sum(0)
        mine = values(rank, dtype).to(device)
        check_equal(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5), (total / 2).to(dtype), dtype)
        check_equal(
            hvd.allreduce(mine, op=hvd.Sum, postscale_factor=0.0), torch.zeros_like(total).to(dtype), 0
        )
    check_equal(hvd.allreduce(mine, op=hvd.Average), total / size, "average")


def other_collectives() -> None:
    for dtype in (torch.float16, torch.float32, torch.int64, torch.bool):
        mine = values(rank, dtype, ELEMENTS + rank).to(device)
        parts = [values(each, dtype, ELEMENTS + each) for each in range(size)]
        check_equal(hvd.allgather(mine), torch.cat(parts), ("allgather", dtype))
        check_equal(hvd.broadcast(values(rank, dtype).to(device), size - 1), values(size - 1, dtype), dtype)
        splits = torch.tensor([ELEMENTS // size] * size)
        received, counts = hvd.alltoall(values(rank, dtype, size * int(splits[0])).to(device), splits)
        own = [values(each, dtype, size * int(splits[0])).chunk(size)[rank] for each in range(size)]
        check_equal(received, torch.cat(own), ("alltoall", dtype))
        assert counts.tolist() == splits.tolist()
    whole = torch.stack([values(each, elements=4 * size) for each in range(size)]).sum(0)
    mine = values(rank, elements=4 * size).to(device)
    check_equal(hvd.reducescatter(mine, op=hvd.Sum), whole.chunk(size)[rank], "reducescatter")


def groups() -> None:
    dtypes = (torch.float32, torch.float16, torch.int64) * 20
    tensors = [values(rank + i, dtype, 100 + i).to(device) for i, dtype in enumerate(dtypes)]
    for i, each in enumerate(hvd.grouped_allreduce(tensors, op=hvd.Sum)):
        parts = [values(other + i, dtypes[i], 100 + i) for other in range(size)]
        check_equal(each, torch.stack(parts).sum(0).to(dtypes[i]), f"tensor {i} of a group")
    sums = torch.stack(everywhere()).sum(0)
    on_cpu = hvd.allreduce_async(values(rank), op=hvd.Sum, name="on the CPU")
    on_device = hvd.allreduce_async(values(rank).to(device), op=hvd.Sum, name="on the device")
    check_equal(hvd.synchronize(on_device), sums, "beside one on the CPU")
    assert torch.equal(hvd.synchronize(on_cpu), sums)


def part_of_a_tensor() -> None:
    """In place, between neighbours that must stay as they are."""
    rows = torch.stack([values(rank)] * 3).to(device)
    hvd.allreduce_(rows[1], op=hvd.Sum)
    check_equal(rows, torch.stack([values(rank), torch.stack(everywhere()).sum(0), values(rank)]), "rows")


def order_of_streams() -> None:
    """Each tensor is written late, by another stream than the default one, and read at once."""
    sums = torch.stack(everywhere()).sum(0)
    for turn in range(20):
        late = torch.zeros(ELEMENTS, device=device)
        source = values(rank).to(device)
        stream = torch.cuda.Stream() if on_gpu else None
        if stream:
            stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            delay()
            late.copy_(source)
            handle = hvd.allreduce_async_(late, op=hvd.Sum, name="late")
        hvd.synchronize(handle)
        check_equal(late, sums, f"turn {turn}")
        after = torch.full((ELEMENTS,), float(turn), device=device)  # memory that is free again
        check_equal(hvd.allreduce(after, op=hvd.Sum), torch.full((ELEMENTS,), float(turn * size)), "after")


def join() -> None:
    for _ in range(1 + rank):
        hvd.allreduce(torch.ones(10, device=device), op=hvd.Sum, name="some ranks")
    assert hvd.join() in range(size)


def process_sets() -> None:
    alone = [hvd.add_process_set([each]) for each in range(size)]
    check_equal(hvd.allreduce(values(rank).to(device), process_set=alone[rank]), values(rank), "alone")
    for each in alone:
        hvd.remove_process_set(each)


def mixed_devices() -> None:
    """One rank's tensor on the CPU, the others' on GPUs: an error on all, and the job goes on."""
    try:
        hvd.allreduce(torch.ones(4, device=None if rank == 0 else device), name="mixed")
    except Exception as error:
        assert "device" in str(error), error
    else:
        assert size == 1, "the ranks did not agree, and no error came"
    check_equal(hvd.allreduce(values(0).to(device)), values(0), "after the error")


def capture() -> None:
    """Refused in words, and the graph is what it would have been."""
    tensor, count = torch.ones(4, device=device), torch.zeros(1, device=device)
    graph = torch.cuda.CUDAGraph()
    text = ""
    with torch.cuda.graph(graph):
        count += 1
        try:
            hvd.allreduce_(tensor, name="captured")
        except Exception as error:
            text = str(error)
    graph.replay()
    graph.replay()
    assert "captured into a CUDA graph" in text, text
    check_equal(count, torch.tensor([2.0]), "the graph")


def network() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)]
    return nn.Sequential(*layers).to(device)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: slice) -> torch.Tensor:
    """Returns all parameters after some steps on this part of each batch."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        data = torch.randn(16 * size, 64, generator=generator)[batch].to(device)
        optimizer.zero_grad()
        (model(data) - data[:, :8]).square().mean().backward()
        optimizer.step()
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).cpu()


def training() -> None:
    """The ranks together end where one process with the whole batch does, but for rounding."""
    alone = network()
    expected = train(alone, torch.optim.SGD(alone.parameters(), 0.02, momentum=0.5), slice(None))
    model = network()
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(1 + rank)
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    wrapped = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    got = train(model, wrapped, slice(16 * rank, 16 * rank + 16))
    worst = (got - expected).abs().max().item()
    assert worst < 1e-4, f"a parameter differs by {worst:g} after {STEPS} steps"
    same = hvd.allgather(got[None])
    assert torch.equal(same, same[:1].expand_as(same)), "the ranks' parameters differ"


def data_parallel() -> None:
    """DistributedDataParallel of PyTorch on this engine."""
    dist.init_process_group("horovod")
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.5)
    got = train(model, optimizer, slice(16 * rank, 16 * rank + 16))
    alone = network()
    expected = train(alone, torch.optim.SGD(alone.parameters(), 0.02, momentum=0.5), slice(None))
    worst = (got - expected).abs().max().item()
    dist.destroy_process_group()
    assert worst < 1e-4, f"a parameter differs by {worst:g} after {STEPS} steps"


CHECKS = [reductions, other_collectives, groups, part_of_a_tensor, order_of_streams, join, process_sets]
CHECKS += [*([mixed_devices, capture] if on_gpu else []), training, data_parallel]

failed = 0
for check in CHECKS:
    why = ""
    try:
        check()
    except Exception as error:
        why = str(error) or type(error).__name__
        traceback.print_exc()
    wrong = [f"rank {of}: {text}" for of, text in enumerate(hvd.allgather_object(why)) if text]
    failed += bool(wrong)
    if rank == 0:
        print(f"FAILED {check.__name__}: {'; '.join(wrong)}" if wrong else f"ok {check.__name__}", flush=True)
sys.exit(failed > 0)
