"""What starting costs: python bench/startup.py [rounds]; needs horovodrun.

`horovodrun -np 2 true` is the launcher alone. For jobs in Python the last rank's call of hvd.init() ends the
start of processes, and the last rank's return from it ends the start of the job; the clock is one for all
processes of a host. Medians of the rounds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

SIZES = (2, 8, 32)
DEADLINE = 120
WORKER = """
import time
import horovod as hvd
begun = time.monotonic()
hvd.init()
print("INIT", begun, time.monotonic())
"""


def launch(ranks: int, *command: str) -> str:
    """What the ranks print."""
    words = ["horovodrun", "-np", str(ranks), *command]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=True).stdout


def command_seconds(ranks: int) -> tuple[float]:
    """Of a job that does nothing."""
    start = time.monotonic()
    launch(ranks, "true")
    return (time.monotonic() - start,)


def job_seconds(ranks: int) -> tuple[float, float, float]:
    """Until the last rank called init, from there to the last return, and the whole command."""
    start = time.monotonic()
    lines = launch(ranks, sys.executable, "-c", WORKER).splitlines()
    end = time.monotonic()
    times = [[float(word) for word in line.split()[-2:]] for line in lines if " INIT " in line]
    assert len(times) == ranks, lines
    last_call, last_return = (max(each[i] for each in times) for i in (0, 1))
    return last_call - start, last_return - last_call, end - start


def row(name: str, rounds: list[tuple[float, ...]], columns: tuple[int, ...]) -> str:
    """The medians in milliseconds, in those of the three columns that apply."""
    medians = [statistics.median(times) * 1e3 for times in zip(*rounds, strict=True)]
    cells = ["-"] * 3
    for column, median in zip(columns, medians, strict=True):
        cells[column] = f"{median:.1f}"
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    rounds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    print("| job | processes, ms | hvd.init(), ms | whole command, ms |")
    print("| --- | --: | --: | --: |")
    print(row("horovodrun -np 2 true", [command_seconds(2) for _ in rounds], (2,)), flush=True)
    for ranks in SIZES:
        print(row(f"{ranks} ranks in Python", [job_seconds(ranks) for _ in rounds], (0, 1, 2)), flush=True)


if __name__ == "__main__":
    main()
