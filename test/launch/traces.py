"""Reads a trace of all ranks, and checks it as strictly as its viewers need it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Request:
    """One request of a rank, from its slices; times are microseconds."""

    name: str
    submitted: float
    decided: float | None = None
    ended: float = 0.0
    arguments: dict[str, Any] = field(default_factory=dict)


class RankTrace:
    """A file of `--timeline-ranks all`, or of a failed job."""

    def __init__(self, path: Path) -> None:
        self.bytes = path.stat().st_size
        self.whole: dict[str, Any] = json.loads(path.read_text())
        self.names: dict[int, str] = {}
        self.ends: dict[int, tuple[str, float]] = {}
        self.steps: dict[int, list[str]] = defaultdict(list)
        self.lanes: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        self.events: list[dict[str, Any]] = self.whole["traceEvents"]
        owners: dict[int, int] = {}
        for event in self.events:
            assert owners.setdefault(event["tid"], event["pid"]) == event["pid"], "a thread of two ranks"
            self.add(event)
        for lane in self.lanes.values():
            self.check_lane(lane)
        assert {pid for pid, _ in self.lanes} <= set(self.names)

    def add(self, event: dict[str, Any]) -> None:
        pid, tid, name = event["pid"], event["tid"], event["name"]
        assert all(isinstance(each, int) and each > 0 for each in (pid, tid))
        assert name
        if event["ph"] == "M":
            assert set(event) == {"ph", "pid", "tid", "name", "args"}
            if name == "process_name":
                assert pid not in self.names
                self.names[pid] = event["args"]["name"]
            return
        assert isinstance(event["ts"], float)
        assert event["ts"] >= 0
        if event["ph"] == "i":
            assert event["s"] == "p"
            self.ends[pid - 1] = (name, event["ts"])
            return
        assert event["ph"] == "X", event
        assert isinstance(event["dur"], float)
        assert event["dur"] >= 0
        self.lanes[pid, tid].append(event)
        if name.startswith("step "):
            self.steps[pid - 1].append(name)

    @staticmethod
    def check_lane(lane: list[dict[str, Any]]) -> None:
        end = 0.0
        for event in lane:
            assert event["ts"] >= end - 1e-6, ("slices of a lane overlap", event)
            end = event["ts"] + event["dur"]

    def requests(self, rank: int) -> list[Request]:
        """The requests of a rank in the order of their submission."""
        found = []
        for (pid, _), lane in self.lanes.items():
            if pid == rank + 1:
                found += self.requests_of_lane(lane)
        return sorted(found, key=lambda each: each.submitted)

    @staticmethod
    def requests_of_lane(lane: list[dict[str, Any]]) -> list[Request]:
        found: list[Request] = []
        for event in lane:
            begin, end, arguments = event["ts"], event["ts"] + event["dur"], event.get("args", {})
            prefix, _, name = event["name"].rpartition(" ")
            if prefix == "step":
                continue
            if prefix:
                assert prefix in ("wait", "held")
                found.append(Request(name, begin, None, end, arguments))
            elif "batch" not in arguments:
                raise AssertionError(event)
            elif found and found[-1].name == name and found[-1].decided is None and not found[-1].arguments:
                found[-1] = Request(name, found[-1].submitted, begin, end, arguments)
            else:
                found.append(Request(name, begin, begin, end, arguments))
        return found

    def batches(self, rank: int) -> dict[tuple[int, int], tuple[float, float]]:
        """The times from the decision to the last end of each batch, by process set and number."""
        found: dict[tuple[int, int], tuple[float, float]] = {}
        for each in self.requests(rank):
            if each.decided is None or "unfinished" in each.arguments:
                continue
            key = each.arguments.get("process_set", 0), each.arguments["batch"]
            before = found.get(key, (each.decided, each.ended))
            found[key] = min(before[0], each.decided), max(before[1], each.ended)
        return found

    def gaps(self, ranks: list[int]) -> list[float]:
        """For each batch of all ranks: its last begin minus its first end, below 0 where all overlap."""
        all_batches = [self.batches(rank) for rank in ranks]
        shared = set.intersection(*(set(each) for each in all_batches))
        return [
            max(each[key][0] for each in all_batches) - min(each[key][1] for each in all_batches)
            for key in shared
        ]
