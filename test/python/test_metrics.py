"""Counters per process set and operation."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import horovod as hvd


def test_counts() -> None:
    before = hvd.metrics().get(0, {}).get("allreduce", {})
    for _ in range(5):
        hvd.allreduce(np.zeros(10, np.float32), name="metrics.counts")
    after = hvd.metrics()[0]["allreduce"]
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    assert grown.pop("wait_seconds") >= 0
    assert grown.pop("bytes") == 5 * 40
    assert grown == {"submitted": 5, "succeeded": 5, "failed": 0, "batches": 5, "nonfinite": 0}


def test_nonfinite() -> None:
    before = hvd.metrics().get(0, {}).get("allreduce", {}).get("nonfinite", 0)
    own = [np.array([1, np.inf], np.float32), np.array([1, 2], np.float32)][hvd.rank() > 0]
    hvd.allreduce(own, name="metrics.nonfinite")
    assert hvd.metrics()[0]["allreduce"]["nonfinite"] - before == (hvd.rank() == 0)


def test_in_flight() -> None:
    before = hvd.metrics().get(0, {}).get("barrier", {"submitted": 0, "succeeded": 0})
    hvd.barrier()
    after = hvd.metrics()[0]["barrier"]
    assert after["submitted"] - before["submitted"] == after["succeeded"] - before["succeeded"] == 1
    assert "alltoallv" not in hvd.metrics()[0]


def test_each_process_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    members = list(range(hvd.size()))
    if hvd.size() == 1:
        pytest.skip("a process set of all ranks is set 0")
    added = hvd.add_process_set(members[:-1])
    if added.included():
        hvd.allreduce(np.zeros(3, np.float64), name="metrics.set", process_set=added)
    number = added.process_set_id
    counted = hvd.metrics().get(number, {}).get("allreduce", {})
    assert counted.get("bytes", 0) == (24 if hvd.rank() in members[:-1] else 0)
    hvd.remove_process_set(added)


@pytest.mark.own_process
def test_before_init() -> None:
    script = "import horovod as hvd\ntry:\n    hvd.metrics()\nexcept ValueError as error:\n    print(error)"
    line = [sys.executable, "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    assert "init" in done.stdout
