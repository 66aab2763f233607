"""How much of the communication hides behind the backward pass, from a timeline: overlap.py timeline.json

A step is one round of the gradients. Its backward pass lasts, for this figure, from the first gradient that
rank 0 submits to the last one: hooks submit each as soon as it is complete. Printed for every step:

    gradients    how many
    backward     ms from the first to the last
    running      ms in which an allreduce was under way, from dispatched to finished
    hidden       ms of that inside the backward pass, and the share
    begun, done  allreduces that had begun, and were done, before the last gradient was complete
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

Interval = tuple[float, float]


@dataclass
class Round:
    """One allreduce of one tensor, in µs."""

    name: str
    ready: float  # rank 0 submitted it
    begin: float = 0.0
    end: float = 0.0


@dataclass
class Step:
    """One round of every gradient."""

    rounds: list[Round] = field(default_factory=list)

    @property
    def backward(self) -> Interval:
        """From the first gradient of rank 0 to the last."""
        return min(each.ready for each in self.rounds), max(each.ready for each in self.rounds)

    def running(self) -> list[Interval]:
        """When an allreduce was under way, without overlaps."""
        merged: list[Interval] = []
        for begin, end in sorted((each.begin, each.end) for each in self.rounds):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged

    def hidden(self) -> float:
        """How much of it was inside the backward pass."""
        first, last = self.backward
        return sum(max(0.0, min(end, last) - max(begin, first)) for begin, end in self.running())


def rounds(records: list[dict[str, Any]]) -> Iterator[Round]:
    """Every allreduce that finished, in the order of their ends."""
    names = {each["pid"]: each["args"]["name"] for each in records if is_name(each)}
    opened: dict[int, list[str]] = {}
    now: dict[int, Round] = {}
    for each in records:
        pid, phase, name = each["pid"], each["ph"], each.get("name", "")
        if phase == "X" and name == "0":
            now[pid] = Round(names[pid], each["ts"])
        elif phase == "B":
            opened.setdefault(pid, []).append(name)
            if name == "ALLREDUCE" and pid in now:
                now[pid].begin = each["ts"]
        elif phase == "E" and opened[pid].pop() == "ALLREDUCE" and pid in now:
            now[pid].end = each["ts"]
            yield now.pop(pid)


def is_name(record: dict[str, Any]) -> bool:
    """Whether it names a tensor."""
    return record.get("name") == "process_name" and record["pid"] > 0


def steps(found: Iterable[Round]) -> Iterator[Step]:
    """A new step starts when a gradient is repeated. Gradients are the names of the most frequent count."""
    ordered = sorted(found, key=lambda each: each.ready)
    counts = Counter(each.name for each in ordered)
    usual, _ = Counter(counts.values()).most_common(1)[0]
    step, seen = Step(), set[str]()
    for each in ordered:
        if counts[each.name] != usual:
            continue
        if each.name in seen:
            yield step
            step, seen = Step(), set()
        step.rounds.append(each)
        seen.add(each.name)
    yield step


def line(number: str, step: Step) -> str:
    """One row of the table."""
    first, last = step.backward
    running = sum(end - begin for begin, end in step.running())
    begun = sum(each.begin < last for each in step.rounds)
    done = sum(each.end < last for each in step.rounds)
    share = step.hidden() / running if running else 0.0
    milliseconds = [(last - first) / 1000, running / 1000, step.hidden() / 1000]
    times = "".join(f"{each:10.2f}" for each in milliseconds)
    return f"{number:>6s} {len(step.rounds):10d}{times} {share:6.0%} {begun:6d} {done:6d}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("timeline", type=Path)
    parser.add_argument("--last", type=int, default=10, help="steps to print (default: the last 10)")
    args = parser.parse_args()
    found = list(rounds(json.loads(args.timeline.read_text())))
    if not found:
        raise SystemExit(f"{args.timeline}: no allreduce")
    every = list(steps(found))
    print("  step  gradients  backward   running    hidden  share  begun   done")
    for number, step in list(enumerate(every, 1))[-args.last :]:
        print(line(str(number), step))
    shares = [each.hidden() / sum(end - begin for begin, end in each.running()) for each in every]
    early = sum(any(one.begin < each.backward[1] for one in each.rounds) for each in every)
    print(f"{early} of {len(every)} steps ran allreduces inside the backward pass", end="; ")
    print(f"hidden, median of all steps: {median(shares):.0%}")


if __name__ == "__main__":
    main()
