"""How long it takes to start: python bench/startup.py [rounds]; needs horovodrun.

Printed are medians: of `horovodrun -np 2 true` from start to end, and of hvd.init() on 2, 8 and 32 ranks from
the moment when the last rank calls it until the last one has returned, so that the start of the interpreters
does not count.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time

RANKS = (2, 8, 32)
INIT = """
import time
import horovod as hvd
before = time.monotonic()
hvd.init()
print("INIT", before, time.monotonic())
"""


def job(ranks: int, *words: str) -> str:
    """What the ranks print."""
    command = ["horovodrun", "-np", str(ranks), *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout


def seconds_of_true() -> float:
    """From the start of horovodrun to its end, when two ranks do nothing."""
    start = time.monotonic()
    job(2, "true")
    return time.monotonic() - start


def seconds_of_init(ranks: int) -> float:
    """From the last call of hvd.init() to the last return."""
    output = job(ranks, sys.executable, "-c", INIT)
    times = re.findall(r"INIT ([\d.]+) ([\d.]+)", output)
    assert len(times) == ranks, output
    return max(float(after) for _, after in times) - max(float(before) for before, _ in times)


def main() -> None:
    """Prints the table; the rounds of all rows alternate."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rows: dict[str, list[float]] = {}
    for _ in range(rounds):
        rows.setdefault("`horovodrun -np 2 true`", []).append(seconds_of_true())
        for ranks in RANKS:
            rows.setdefault(f"`hvd.init()`, {ranks} ranks", []).append(seconds_of_init(ranks))
    print(f"| {rounds} rounds | median ms | lowest | highest |\n|---|--:|--:|--:|")
    for name, times in rows.items():
        cells = (statistics.median(times), min(times), max(times))
        print(f"| {name} | " + " | ".join(f"{1e3 * cell:.1f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
