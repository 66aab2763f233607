"""Measures how training of ResNets scales from 1 to n hosts; writes images per second as a table and plots.

    python evaluate.py --hostfile $HOSTLIST --models resnet20 resnet56 --output results

The images have the shape of CIFAR-10's, 3 x 32 x 32 in ten classes, and are random, so that no time is spent
on reading them. Each rank trains on a batch of --batch-size images (weak scaling): n hosts process n times as
many images, in the ideal case in the same time. The efficiency is the measured rate divided by the ideal one.
The rest is communication, and the sharing of cores if several hosts are on one machine.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import horovod

ROUNDS = 5

Row = dict[str, Any]


def blocks(depth: int) -> int:
    """Returns the number of blocks in each of the three stages of a ResNet for CIFAR-10."""
    if (depth - 2) % 6 or depth < 8:
        raise ValueError(f"resnet{depth}: ResNets for CIFAR-10 have a depth of 8, 14, 20, 26, … (6n + 2)")
    return (depth - 2) // 6


def resnet(depth: int) -> Any:
    """Makes the ResNet for CIFAR-10 of He et al., "Deep residual learning for image recognition", 2015."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.residual = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
            same = inputs == outputs
            self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.residual(x) + self.shortcut(x))

    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    inputs = 16
    for stage in range(3):
        for index in range(blocks(depth)):
            layers.append(Block(inputs, 16 << stage, 2 if stage and not index else 1))
            inputs = 16 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def measure(depth: int, batch_size: int, steps: int, threads: int) -> tuple[list[float], str]:
    """Runs as a rank: returns images per second of the job in each round, and the machine of the rank."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(threads)
    torch.manual_seed(hvd.rank())
    model = resnet(depth)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    images = torch.randn(batch_size, 3, 32, 32)
    labels = torch.randint(10, (batch_size,))

    def train(count: int) -> float:
        hvd.barrier()
        start = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        hvd.barrier()
        return time.perf_counter() - start

    train(2)
    rates = [hvd.size() * batch_size * steps / train(steps) for _ in range(ROUNDS)]
    hvd.shutdown()
    return rates, Path("/proc/sys/kernel/random/boot_id").read_text()


def hosts_of(text: str) -> list[tuple[str, int]]:
    """Returns the hosts of a hostfile with the number of ranks on each."""
    found = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            slots = [re.fullmatch(r"slots=(\d+)", word) for word in words[1:]]
            found.append((words[0], next((int(each[1]) for each in slots if each), 1)))
    return found


def evaluate(hosts: Sequence[tuple[str, int]], given: argparse.Namespace) -> None:
    """Measures all models on 1 to n hosts. The files have all rows that are finished."""
    rows: list[Row] = []
    for name in given.models:
        depth = int(name.removeprefix("resnet"))
        for count in range(1, len(hosts) + 1):
            where = ",".join(f"{host}:{slots}" for host, slots in hosts[:count])
            arguments = (depth, given.batch_size, given.steps, given.threads)
            results = horovod.run(measure, arguments, hosts=where)
            rates, ranks = results[0][0], len(results)
            rate = statistics.median(rates)
            first = next((row for row in rows if row["model"] == name), None)
            ideal = (first["images_per_second"] / first["ranks"] if first else rate / ranks) * ranks
            rows.append(
                {
                    "model": name,
                    "hosts": count,
                    "machines": len({machine for _, machine in results}),
                    "ranks": ranks,
                    "images_per_second": rate,
                    "lowest": min(rates),
                    "highest": max(rates),
                    "efficiency": rate / ideal,
                }
            )
            print(f"{name}, hosts: {count}, ranks: {ranks}: {rate:.0f} images/s", flush=True)
            write(rows, given)


def table(rows: Sequence[Row], given: argparse.Namespace) -> str:
    lines = [
        f"Images in a batch of a rank: {given.batch_size}. Threads of a rank: {given.threads}. Median of"
        f" {ROUNDS} rounds of {given.steps} steps (lowest to highest), {time.strftime('%Y-%m-%d')}, from"
        f" {socket.gethostname()}.",
        "",
    ]
    if any(row["machines"] < row["hosts"] for row in rows):
        lines += ["Several hosts are on one machine and share its cores.", ""]
    lines += [
        "| model | hosts | ranks | images/s | | efficiency |",
        "|---|--:|--:|--:|---|--:|",
    ]
    lines += [
        f"| {row['model']} | {row['hosts']} | {row['ranks']} | {row['images_per_second']:.0f} |"
        f" {row['lowest']:.0f} to {row['highest']:.0f} | {row['efficiency']:.0%} |"
        for row in rows
    ]
    return "\n".join([*lines, ""])


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draws images per second and efficiency over the number of hosts, one line for each model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        hosts = [row["hosts"] for row in own]
        rates = [row["images_per_second"] for row in own]
        spread = [
            [rate - row["lowest"] for rate, row in zip(rates, own, strict=True)],
            [row["highest"] - rate for rate, row in zip(rates, own, strict=True)],
        ]
        line = left.errorbar(hosts, rates, spread, marker="o", capsize=3, label=name)
        ideal = [rates[0] / own[0]["ranks"] * row["ranks"] for row in own]
        left.plot(hosts, ideal, linestyle=":", color=line.lines[0].get_color())
        right.plot(hosts, [100 * row["efficiency"] for row in own], marker="o", label=name)
    ticks = sorted({row["hosts"] for row in rows})
    left.set(xlabel="hosts", ylabel="images per second (dotted: ideal)", xticks=ticks, ylim=(0, None))
    highest = max(100 * row["efficiency"] for row in rows)
    right.set(xlabel="hosts", ylabel="efficiency, %", xticks=ticks, ylim=(0, 1.1 * highest))
    left.legend()
    figure.savefig(path, dpi=100)


def write(rows: Sequence[Row], given: argparse.Namespace) -> None:
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "scaling.json").write_text(json.dumps(rows, indent=1) + "\n")
    (given.output / "scaling.md").write_text(table(rows, given))
    plot(rows, given.output / "scaling.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hostfile", type=Path, required=True, help="file with hosts, such as $HOSTLIST")
    parser.add_argument("--models", nargs="+", default=["resnet20", "resnet56"], help="resnetN, N = 6n + 2")
    parser.add_argument("--batch-size", type=int, default=128, help="images of each rank in a step")
    parser.add_argument("--steps", type=int, default=20, help=f"steps in each of {ROUNDS} rounds")
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank")
    parser.add_argument("--output", type=Path, default=Path("results"), help="folder for table and plots")
    given = parser.parse_args()
    for name in given.models:
        if not re.fullmatch(r"resnet\d+", name):
            parser.error(f"--models: {name} is not one of resnet20, resnet56, …")
        try:
            blocks(int(name.removeprefix("resnet")))
        except ValueError as error:
            parser.error(f"--models: {error}")
    if min(given.batch_size, given.steps, given.threads) < 1:
        parser.error("--batch-size, --steps and --threads must be at least 1")
    try:
        hosts = hosts_of(given.hostfile.read_text())
    except OSError as error:
        parser.error(f"--hostfile: {error}")
    if not hosts:
        parser.error(f"--hostfile: {given.hostfile} names no host")
    evaluate(hosts, given)
    print((given.output / "scaling.md").read_text())


if __name__ == "__main__":
    main()
