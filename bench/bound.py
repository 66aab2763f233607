"""Measures the limits of this machine: bandwidth, wake-ups, and the least time of a collective that follows.

    python bench/bound.py                       leaves machine.json and machine.md for the others

Data that reach another rank go through shared memory: the bound is the bytes that each core copies or adds,
for as many ranks one after the other as share the core, divided by the bandwidth measured with arrays of that
size, and one hop: no rank is done before it has seen that the last one has arrived.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import compare
import publish

PROGRAMS = compare.BUILD / "bench"
DEADLINE = 120.0
SIZES = [256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
# Copies from the given moment on, for SPELL seconds each size, at once and in pieces that keep to the cache,
# around which memmove writes what is large; prints the 9th decile of GB/s, of the better way.
COPY = """
import ctypes, statistics, sys, time
begin, spell, *sizes = map(float, sys.argv[1:])
for turn, size in enumerate(map(int, sizes)):
    source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    ctypes.memset(source, 1, size), ctypes.memset(target, 1, size)
    time.sleep(max(begin + turn * spell - time.monotonic(), 0))
    best = 0
    for way, piece in enumerate((size, 1 << 18)):
        rates = []
        places = [(ctypes.byref(target, at), ctypes.byref(source, at)) for at in range(0, size, piece)]
        while len(rates) < 2 or time.monotonic() < begin + (turn + 0.4 + 0.4 * way) * spell:
            start = time.perf_counter()
            for to, of in places:
                ctypes.memmove(to, of, piece)
            rates.append(size / (time.perf_counter() - start) / 1e9)
        best = max(best, statistics.quantiles(rates, n=10)[-1])
    print(best)
"""
SPELL = 0.5
HANDOVER = {
    "cached": "copy to another core, ordinary stores",
    "nontemporal": "copy to another core, non-temporal stores",
    "direct": "copy from another core by a system call",
}

# Times the bytes of its input that each of n ranks copies or adds.
PASSES = {
    "allreduce": lambda n: 4 * (n - 1) / n,  # my part of all in, the parts of others added, the same back
    "allreduce-shared": lambda n: 2 * (n - 1) / n,  # nothing is copied in
    "allgather": lambda n: n + 1,
    "broadcast": lambda n: 1,
    "alltoall": lambda n: (2 * n - 1) / n,
    "reducescatter": lambda n: 2 * (n - 1) / n,
}


@dataclass
class Machine:
    """What bounds a collective here."""

    model: str
    cores: int
    rates: list[float]  # GB/s of memcpy on every core at once, by SIZES
    spinning: float  # µs until a spinning thread sees a word, one way
    yielding: float  # the same where both threads share a core and yield it
    asleep: float  # µs until a sleeping one does
    handover: dict[str, list[float]]  # GB/s into memory that another core reads: lowest, median, highest

    def rate(self, size: int) -> float:
        """Of the largest arrays that are not larger."""
        return self.rates[max(sum(size >= each for each in SIZES), 1) - 1]

    def bound(self, what: str, ranks: int, size: int) -> float:
        """Microseconds that passes and one hop take at least."""
        turns = math.ceil(ranks / self.cores)
        passes = PASSES[what](ranks) * size * turns / self.rate(size) * 1e-3
        return passes + (self.spinning if turns == 1 else self.yielding)


def copy_rates(copies: int) -> list[float]:
    """GB/s of each of that many processes that copy at the same time."""
    words = [sys.executable, "-c", COPY, str(time.monotonic() + 0.5), str(SPELL), *map(str, SIZES)]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(copies)]
    try:
        outputs = [process.communicate(timeout=DEADLINE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    columns = zip(*([float(rate) for rate in text.split()] for text in outputs), strict=True)
    return [sum(column) / copies for column in columns]


def printed_by(program: str) -> dict[str, list[float]]:
    """The numbers of each line, by its first word."""
    run = subprocess.run([PROGRAMS / program], capture_output=True, text=True, check=True, timeout=DEADLINE)
    lines = (line.split() for line in run.stdout.splitlines())
    return {word: [float(number) for number in numbers] for word, *numbers in lines}


def measure() -> Machine:
    cpu = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cores = len(os.sched_getaffinity(0))
    rates = copy_rates(cores)
    (spinning,), (yielding,), (asleep,) = printed_by("bench_wakeup").values()
    model = cpu[1] if cpu else "unknown"
    return Machine(model, cores, rates, spinning, yielding, asleep, printed_by("bench_handover"))


def machine_of(folder: Path) -> Machine:
    """As measured into this folder, now or before."""
    path = folder / "machine.json"
    if not path.exists():
        path.write_text(json.dumps(asdict(measure())) + "\n")
    return Machine(**json.loads(path.read_text()))


def machine_table(machine: Machine) -> str:
    copies = [
        [f"memcpy of {publish.byte_text(size)}, all cores at once", f"{rate:.1f} GB/s a core"]
        for size, rate in zip(SIZES, machine.rates, strict=True)
    ]
    rows = [
        ["processor", machine.model],
        ["cores", str(machine.cores)],
        *copies,
        ["a word seen by a spinning thread", f"{machine.spinning:.2f} µs"],
        ["a word seen by a thread on the same core", f"{machine.yielding:.2f} µs"],
        ["a word seen by a sleeping thread", f"{machine.asleep:.2f} µs"],
        *(
            [
                f"{HANDOVER[way]}, lowest, median, highest",
                " / ".join(f"{rate:.1f}" for rate in rates) + " GB/s",
            ]
            for way, rates in machine.handover.items()
        ),
    ]
    return publish.table(["measured in this run", ""], rows)


def main() -> int:
    """Measures anew."""
    args = compare.arguments(__doc__, seconds=0)
    (args.output / "machine.json").unlink(missing_ok=True)
    text = machine_table(machine_of(args.output))
    (args.output / "machine.md").write_text(text + "\n")
    print(f"\n{text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
