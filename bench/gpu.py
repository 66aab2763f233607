"""Measures tensors on a GPU: rates of copies, microseconds of allreduces, and what training costs with hooks.

    horovodrun -np 1 python bench/gpu.py [--device cuda|cpu] [--seconds 1]

Ranks may share a GPU, so nothing here says how several GPUs scale. Rank 0 prints a line for each figure:
name, value, unit. With `--device cpu` the same runs without a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from peer_train import resnet18
from torch import nn

import horovod.torch as hvd

MIB = 1 << 20

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
parser.add_argument("--seconds", type=float, default=1.0, help="of each figure")
args = parser.parse_args()
on_gpu = args.device == "cuda"
hvd.init()
if on_gpu:
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())


def show(name: str, value: float, unit: str) -> None:
    if hvd.rank() == 0:
        print(f"{name:<44}{value:>12.4g} {unit}", flush=True)


def finish() -> None:
    if on_gpu:
        torch.cuda.synchronize()


def median_of(work: Callable[[], object], wait: Callable[[], object] = finish) -> float:
    """Seconds of one call, which all ranks repeat equally often; `wait` is not counted."""
    for _ in range(3):
        work()
        wait()
    times: list[float] = []
    turns = 0
    while turns < 3 or hvd.allreduce(torch.tensor(sum(times)), op=hvd.Max).item() < args.seconds:
        for _ in range(5):
            start = time.perf_counter()
            work()
            if wait is finish:
                finish()
            times.append(time.perf_counter() - start)
            wait()
        turns += 1
    return statistics.median(times)


def copies() -> None:
    pinned = torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(pinned, device="cuda")
    rates = {
        "host to GPU, page-locked": lambda: there.copy_(pinned, non_blocking=True),
        "GPU to host, page-locked": lambda: pinned.copy_(there, non_blocking=True),
        "GPU to the same GPU": lambda: there.copy_(there.flip(0), non_blocking=True),
    }
    for name, work in rates.items():
        show(name, pinned.numel() / median_of(work) / 1e9, "GB/s")


def allreduce(elements: int, device: str) -> None:
    tensor = torch.ones(elements, device=device)
    seconds = median_of(lambda: hvd.allreduce_(tensor, name="tensor"))
    show(f"allreduce, {4 * elements} bytes, {device}, {hvd.size()} ranks", 1e6 * seconds, "µs")


def group() -> None:
    tensors = [torch.ones(1000, device=args.device) for _ in range(160)]
    seconds = median_of(lambda: hvd.grouped_allreduce_(tensors))
    show("160 of 4,000 bytes in a group", 1e6 * seconds, "µs")


def submission() -> None:
    """What the caller's thread is busy for with each tensor."""
    tensor = torch.ones(MIB // 4, device=args.device)
    handles: list[int] = []

    def submit() -> None:
        handles.append(hvd.allreduce_async_(tensor, name="tensor"))

    show("submission of a tensor", 1e6 * median_of(submit, lambda: hvd.synchronize(handles.pop())), "µs")


def step(model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(images).square().mean().backward()
    optimizer.step()


def training(batch: int, hooks: bool) -> None:
    images = torch.randn(batch, 3, 32, 32, device=args.device)
    model = resnet18().to(args.device)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 0.001)
    if hooks:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    seconds = median_of(lambda: step(model, optimizer, images))
    name = "with the optimizer" if hooks else "each alone"
    show(f"ResNet-18, batch {batch}, {hvd.size()} ranks, {name}", hvd.size() * batch / seconds, "images/s")


if on_gpu:
    copies()
for elements in (1, 16384, MIB // 4, 4 * MIB, 64 * MIB):
    for device in dict.fromkeys((args.device, "cpu")):
        allreduce(elements, device)
group()
submission()
for hooks in (False, True):
    training(256 if on_gpu else 4, hooks)
