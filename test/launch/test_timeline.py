"""Timelines of real jobs: what they hold, that they are whole whatever happens, and that recording sleeps."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from conftest import Launcher

ROOT = Path(__file__).resolve().parents[2]

HEAD = """
import os, sys, time
import numpy as np
import horovod as hvd
"""

OPERATIONS = """
hvd.init()
ones = np.ones((2, 3), np.float32)
for _ in range(3):
    hvd.allreduce(ones, name="first")
hvd.grouped_allreduce([ones, np.ones(4, np.float32)], name="pair")
hvd.allgather(np.ones(hvd.rank() + 1, np.int64), name="rows")
hvd.broadcast(ones, root_rank=0, name="root")
hvd.alltoall(np.ones(4, np.float64), name="exchange")
hvd.reducescatter(ones, name="scatter")
hvd.barrier()
handles = [hvd.allreduce_async(ones, name=f"layer.{i}") for i in range(20)]
[hvd.synchronize(each) for each in handles]
try:
    hvd.allreduce(np.ones(2 + hvd.rank()), name='"odd" \\\\ näme\\n')
except hvd.HorovodInternalError:
    pass
hvd.shutdown()
"""


class Timeline:
    """A trace, checked as its viewers need it: whole, in order, and every end with its begin."""

    def __init__(self, path: Path, ended: bool = True) -> None:
        self.records: list[dict[str, Any]] = json.loads(path.read_text())
        self.names = {
            each["pid"]: each["args"]["name"]
            for each in self.records
            if each["ph"] == "M" and each["name"] == "process_name" and each["pid"]
        }
        self.spans: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        self.ranks: dict[str, set[str]] = defaultdict(set)
        self.opened: dict[int, list[dict[str, Any]]] = defaultdict(list)
        last: dict[int, float] = defaultdict(float)
        for each in self.records:
            if each["ph"] != "M":
                assert each["ts"] >= last[each["pid"]], each
                last[each["pid"]] = each["ts"]
                self.add(each)
        if ended:
            assert not any(self.opened.values())

    def add(self, record: dict[str, Any]) -> None:
        pid = record["pid"]
        if record["ph"] == "B":
            self.opened[pid].append(record)
        elif record["ph"] == "E":
            begin = self.opened[pid].pop()
            arguments = begin.get("args", {}) | record.get("args", {})
            self.spans[self.names[pid]].append((begin["name"], arguments))
        elif record["ph"] == "X":
            assert self.opened[pid][-1]["name"].startswith("NEGOTIATE_")
            self.ranks[self.names[pid]].add(record["name"])

    def labels(self, name: str) -> list[str]:
        return [label for label, _ in self.spans[name]]

    def arguments(self, name: str, label: str) -> dict[str, Any]:
        return next(arguments for each, arguments in self.spans[name] if each == label)

    def marks(self) -> int:
        return sum(each.get("name") == "CYCLE_START" for each in self.records)


def run(launcher: Launcher, source: str, *options: str, ranks: int = 2, code: int = 0) -> str:
    result = launcher.run("-np", str(ranks), *options, *launcher.python(HEAD + source))
    assert result.returncode == code, result.stderr
    return result.stderr


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_every_operation_is_recorded(launcher: Launcher, transport: str) -> None:
    run(launcher, OPERATIONS, "--timeline-filename", "t.json", "--transport", transport)
    timeline = Timeline(launcher.folder / "t.json")
    head = timeline.records[:2]
    assert head[0]["name"] == "process_name"
    assert head[0]["args"]["start_time_since_epoch_in_micros"] > 1.7e15
    assert head[1] == {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}}

    move = transport.upper()
    assert timeline.labels("allreduce.first") == 3 * [
        "NEGOTIATE_ALLREDUCE", "QUEUE", f"{move}_DOUBLING", "ALLREDUCE"
    ]  # fmt: skip
    assert timeline.ranks["allreduce.first"] == {"0", "1"}
    assert timeline.arguments("allreduce.first", "ALLREDUCE") == {"dtype": "float32", "shape": "[2, 3]"}
    inside = timeline.arguments("allreduce.first", f"{move}_DOUBLING")
    assert (inside["tensors"], inside["bytes"]) == (1, 24)
    assert timeline.arguments("grouped_allreduce.pair", "ALLREDUCE")["shape"] == "[2, 3], [4]"
    rows = timeline.labels("allgather.rows")
    assert rows[0] == "NEGOTIATE_ALLGATHER"
    assert rows[-1] == "ALLGATHER"
    assert rows.count(f"{move}_RING") == 1, "the numbers of rows came with the decision"
    for name, operation in (
        ("broadcast.root", "BROADCAST"),
        ("alltoall.exchange", "ALLTOALL"),
        ("reducescatter.scatter", "REDUCESCATTER"),
    ):
        assert timeline.labels(name)[0] == f"NEGOTIATE_{operation}"
        assert timeline.labels(name)[-1] == operation
    barrier = next(name for name in timeline.names.values() if name.startswith("barrier."))
    assert timeline.labels(barrier)[-1] == "BARRIER"
    assert timeline.marks() == 0


def test_fused_tensors_name_their_batch(launcher: Launcher) -> None:
    run(launcher, OPERATIONS, "--timeline-filename", "t.json", "--cycle-time-ms", "50")
    timeline = Timeline(launcher.folder / "t.json")
    batches = defaultdict(set)
    for i in range(20):
        inside = timeline.arguments(f"allreduce.layer.{i}", "QUEUE")
        batches[inside["batch"]].add((inside["tensors"], inside["bytes"]))
    assert all(len(each) == 1 for each in batches.values())
    assert sum(tensors for each in batches.values() for tensors, _ in each) == 20
    assert len(batches) < 20


def test_errors_and_odd_names(launcher: Launcher) -> None:
    run(launcher, OPERATIONS, "--timeline-filename", "t.json")
    timeline = Timeline(launcher.folder / "t.json")
    labels = timeline.spans['allreduce."odd" \\ näme\n']
    assert [label for label, _ in labels] == ["NEGOTIATE_ALLREDUCE"]
    assert "shape" in labels[0][1]["error"]


def test_cycles_are_marked(launcher: Launcher) -> None:
    config = launcher.folder / "run.yaml"
    config.write_text("timeline: {filename: t.json, mark_cycles: true}\n")
    run(launcher, OPERATIONS, "--config-file", "run.yaml")
    assert Timeline(launcher.folder / "t.json").marks() >= 10


def test_started_and_stopped_by_the_program(launcher: Launcher) -> None:
    source = """
hvd.init()
value = np.ones(3, np.float32)
hvd.allreduce(value, name="before")
for name in "ab":
    hvd.start_timeline(f"{name}.json", mark_cycles=name == "b")
    hvd.barrier()
    hvd.allreduce(value, name=name)
    hvd.stop_timeline()
    hvd.allreduce(value, name="after")
hvd.stop_timeline()
try:
    hvd.start_timeline("missing/c.json")
except hvd.HorovodInternalError as error:
    print("refused:", error, file=sys.stderr)
hvd.allreduce(value, name="works")
"""
    errors = run(launcher, source, "--timeline-filename", "DYNAMIC")
    assert errors.count("refused:") == 1, "only rank 0 writes"
    assert "can't open the timeline file missing/c.json: No such file or directory" in errors
    for name, other in ("ab", "ba"):
        timeline = Timeline(launcher.folder / f"{name}.json")
        assert timeline.labels(f"allreduce.{name}")[-1] == "ALLREDUCE"
        for outside in (f"allreduce.{other}", "allreduce.before", "allreduce.after"):
            assert "ALLREDUCE" not in timeline.labels(outside)
        assert (timeline.marks() > 0) == (name == "b")
    assert not (launcher.folder / "DYNAMIC").exists()


def test_not_enabled(launcher: Launcher) -> None:
    source = """
for call in (lambda: hvd.start_timeline("t.json"), hvd.stop_timeline):
    try:
        call()
    except ValueError as error:
        print("before:", error, file=sys.stderr)
hvd.init()
for call in (lambda: hvd.start_timeline("t.json"), hvd.stop_timeline):
    try:
        call()
    except ValueError as error:
        print("after:", error, file=sys.stderr)
"""
    errors = run(launcher, source)
    assert errors.count("before: Horovod has not been initialized; use hvd.init().") == 4
    assert errors.count("after: the timeline is not enabled: set HOROVOD_TIMELINE=DYNAMIC") == 4
    assert not (launcher.folder / "t.json").exists()


@pytest.mark.parametrize("rounds", [50, 400, 1500])
def test_whole_when_killed(launcher: Launcher, rounds: int) -> None:
    """Rank 0 dies during a job; what was written until then is a valid array."""
    source = f"""
hvd.init()
value = np.ones(3, np.float32)
for i in range(100000):
    hvd.allreduce(value, name=f"layer.{{i % 7}}")
    while i == {rounds} and hvd.rank() == 0 and open("t.json").read().count('"ALLREDUCE"') < {rounds}:
        time.sleep(0.01)  # until the writer has written it
    if i == {rounds} + 20 and hvd.rank() == 0:
        os.kill(os.getpid(), 9)
"""
    run(launcher, source, "--timeline-filename", "t.json", code=137)
    timeline = Timeline(launcher.folder / "t.json", ended=False)
    assert timeline.labels("allreduce.layer.0").count("ALLREDUCE") >= rounds // 7


def test_a_file_that_cannot_be_made(launcher: Launcher) -> None:
    quick = ("--grace-seconds", "0.2")
    errors = run(launcher, "hvd.init()", "--timeline-filename", "missing/t.json", *quick, code=1)
    assert "can't open the timeline file missing/t.json: No such file or directory" in errors
    errors = run(launcher, "hvd.init()", "--timeline-filename", "/dev/full", *quick, code=1)
    assert "can't write the timeline file /dev/full: No space left on device" in errors


def test_a_disk_that_fills_up(launcher: Launcher) -> None:
    source = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))
hvd.init()
value = np.ones(3, np.float32)
for part in range(4):
    for i in range(100):
        hvd.allreduce(value, name="x")
    time.sleep(0.05)
"""
    errors = run(launcher, source, "--timeline-filename", "t.json")
    assert errors.count("can't write the timeline t.json any more: File too large") == 1
    timeline = Timeline(launcher.folder / "t.json", ended=False)
    assert (launcher.folder / "t.json").stat().st_size <= 30000
    assert set(timeline.names.values()) <= {"allreduce.x"}


def test_recording_sleeps_while_nothing_happens(launcher: Launcher) -> None:
    """No thread of an idle job runs at all, the writer of the timeline included."""
    source = """
from pathlib import Path

def switches():
    return {
        task.name: [line for line in (task / "status").read_text().splitlines() if "ctxt_switches" in line]
        for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()
    }

hvd.init()
hvd.allreduce(np.ones(3, np.float32), name="x")
for attempt in range(100):
    before = switches()
    time.sleep(0.5)
    after = switches()
    if before == after:
        break
else:
    sys.exit("something runs in an idle job")
print("threads", len(before), file=sys.stderr)
hvd.barrier()
"""
    errors = run(launcher, source, "--timeline-filename", "t.json")
    counts = [int(line.rsplit(" ", 1)[1]) for line in errors.splitlines() if " threads " in line]
    assert len(counts) == 2
    assert max(counts) >= 2, errors
    Timeline(launcher.folder / "t.json")


def test_overlap_of_a_training(launcher: Launcher) -> None:
    """`bench/overlap.py` finds every step; how many overlap depends on the machine."""
    example = [sys.executable, str(ROOT / "examples" / "torch" / "mnist.py"), "--epochs", "1"]
    process = launcher.start("-np", "2", "--timeline-filename", "t.json", *example)
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, out + err
    timeline = Timeline(launcher.folder / "t.json")
    assert timeline.labels("allreduce.10.bias").count("ALLREDUCE") > 50
    overlap = launcher.run(str(ROOT / "bench" / "overlap.py"), "t.json", program=sys.executable)
    assert overlap.returncode == 0, overlap.stderr
    summary = overlap.stdout.splitlines()[-1]
    early, _, steps = summary.split()[:3]
    assert int(steps) > 50
    assert 0 <= int(early) <= int(steps), overlap.stdout
