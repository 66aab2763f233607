"""What this machine allows an allreduce, from its measured bandwidth and wake-ups, beside the figures.

    python bench/bound.py                       after bench/collectives.py, whose CSV it reads

Of n bytes each of N ranks copies 2(N-1)/N n into shared memory and adds or copies as much out of it:
4(N-1)/N n bytes pass through a core, as many ranks one after the other as share it. A blocking call waits
for its request to reach rank 0, for the decision back, and for one exchange at each doubling of the ranks.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import compare
import publish

OUR_PEERS = (compare.C_PEER.name, compare.TORCH_PEER.name)
PROGRAMS = compare.BUILD / "bench"
DEADLINE = 120.0


@dataclass
class Machine:
    """What bounds a collective here."""

    model: str
    cores: int
    memory: float  # GB/s of memcpy on every core at once, 64 MiB
    cache: float  # the same, 256 KiB
    spinning: float  # µs until a spinning thread sees a word, one way
    yielding: float  # the same where both threads share a core and yield it
    asleep: float  # µs until a sleeping one does


def memcpy_rates(copies: int) -> tuple[float, float]:
    """GB/s of each of so many processes that copy at the same time: arrays in cache, and in memory."""
    command = [str(PROGRAMS / "bench_kernels"), "float32", "sum"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(copies)]
    try:
        outputs = [process.communicate(timeout=DEADLINE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    rates = [
        [float(rate) for rate in re.findall(r"^memcpy +([\d.]+)", text, re.MULTILINE)] for text in outputs
    ]
    in_cache, in_memory = (sum(column) / copies for column in zip(*rates, strict=True))
    return in_cache, in_memory


def measure() -> Machine:
    cpu = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cores = len(os.sched_getaffinity(0))
    in_cache, in_memory = memcpy_rates(cores)
    output = subprocess.run(
        [PROGRAMS / "bench_wakeup"], capture_output=True, text=True, check=True, timeout=DEADLINE
    ).stdout
    spinning, yielding, asleep = (float(line.split()[1]) for line in output.splitlines())
    return Machine(cpu[1] if cpu else "unknown", cores, in_memory, in_cache, spinning, yielding, asleep)


def bound(machine: Machine, ranks: int, size: int) -> float:
    """Microseconds that passes and hops take at least."""
    rate = machine.memory if size >= 4 << 20 else machine.cache
    turns = math.ceil(ranks / machine.cores)
    passes = 4 * (ranks - 1) / ranks * size * turns / rate * 1e-3
    hops = 2 + math.ceil(math.log2(ranks))
    return passes + hops * (machine.spinning if turns == 1 else machine.yielding)


def machine_table(machine: Machine) -> str:
    rows = [
        ["processor", machine.model],
        ["cores", str(machine.cores)],
        ["memcpy of 64 MiB, all cores at once", f"{machine.memory:.1f} GB/s a core"],
        ["memcpy of 256 KiB, all cores at once", f"{machine.cache:.1f} GB/s a core"],
        ["a word seen by a spinning thread", f"{machine.spinning:.2f} µs"],
        ["a word seen by a thread on the same core", f"{machine.yielding:.2f} µs"],
        ["a word seen by a sleeping thread", f"{machine.asleep:.2f} µs"],
    ]
    return publish.table(["measured in this run", ""], rows)


def bound_table(machine: Machine, comparison: compare.Comparison) -> str:
    found = sorted(
        {
            (sample.ranks, int(sample.case.split(":")[1]))
            for sample in comparison.samples
            if sample.case.startswith("allreduce:")
        }
    )
    rows = []
    for ranks, size in found:
        least = bound(machine, ranks, size)
        cells = [f"{ranks} ranks, {publish.byte_text(size)}", publish.number(least)]
        for peer in OUR_PEERS:
            median = comparison.median(ranks, peer, f"allreduce:{size}")
            cells.append(f"{publish.number(median)} ({median / least:.1f})" if median else "-")
        rows.append(cells)
    return publish.table(["allreduce, µs", "bound", *OUR_PEERS], rows)


def main() -> int:
    """Writes machine.md and bound.md; 1 if there are no figures to hold it against."""
    args = compare.arguments(__doc__, seconds=0)
    figures = args.output / "collectives.csv"
    if not figures.exists():
        print(f"{figures}: not there; run bench/collectives.py first", file=sys.stderr)
        return 1
    comparison = compare.Comparison("collectives", compare.EFFORTS[args.effort], 0)
    comparison.samples.extend(compare.read_csv(figures))
    machine = measure()
    for name, text in (
        ("machine", machine_table(machine)),
        ("bound", f"{bound_table(machine, comparison)}\n\nIn brackets: how many times the bound."),
    ):
        (args.output / f"{name}.md").write_text(text + "\n")
        print(f"\n{text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
