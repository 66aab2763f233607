"""A rank that does not come: who is missing for what is said, and the job ends if it was told to."""

from __future__ import annotations

import subprocess

import pytest
from conftest import Launcher

LATE = """
import os, sys, time
import numpy as np
import horovod as hvd

hvd.init()
value = np.ones(3, np.float32)
hvd.allreduce(value, name="warm")
handles = []
try:
    if hvd.rank() == 1:
        hvd.allreduce(value, name="other")
        time.sleep(SECONDS)
    else:
        handles = [hvd.allreduce_async(value, name=f"layer.{i}") for i in range(9)]
        hvd.allreduce(value, name="other")
    if hvd.rank() == 1:
        handles = [hvd.allreduce_async(value, name=f"layer.{i}") for i in range(9)]
    results = [hvd.synchronize(each) for each in handles]
    print("went on", all((each == value).all() for each in results), file=sys.stderr)
except hvd.HorovodInternalError as error:
    sys.exit(f"error on rank {hvd.rank()}: {error}")
"""


def run(launcher: Launcher, seconds: float, *options: str) -> subprocess.CompletedProcess[str]:
    return launcher.run("-np", "3", *options, *launcher.python(LATE.replace("SECONDS", str(seconds))))


def test_the_missing_rank_is_named_and_training_goes_on(launcher: Launcher) -> None:
    result = run(launcher, 2.5, "--stall-check-warning-time-seconds", "1")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("went on True") == 3
    lines = result.stderr.splitlines()
    reports = [line for line in lines if "some ranks have waited for others for more than 1 s" in line]
    assert 1 <= len(reports) <= 2, result.stderr
    assert all(line.startswith("[0]<stderr>: ") for line in reports), "only rank 0 reports"
    who = lines[lines.index(reports[0]) + 1]
    assert "  rank 1: allreduce.layer." in who
    assert who.endswith("and 3 more")
    assert "other" not in who
    assert "The ranks go on waiting" in result.stderr


def test_the_job_ends_when_told_to(launcher: Launcher) -> None:
    options = ("--stall-check-warning-time-seconds", "0.5", "--stall-check-shutdown-time-seconds", "1")
    result = run(launcher, 4, "--grace-seconds", "30", *options)
    assert result.returncode == 1
    for rank in range(3):
        line = next(
            line for line in result.stderr.splitlines() if f"error on rank {rank}: allreduce.layer." in line
        )
        assert "for rank 1, which did not submit it" in line
        assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in line
    assert "The job ends with an error when the wait reaches 1 s" in result.stderr


@pytest.mark.parametrize("how", ["option", "variable", "file"])
def test_turned_off(launcher: Launcher, how: str) -> None:
    options = ["--stall-check-warning-time-seconds", "0.2", "--stall-check-shutdown-time-seconds", "0.4"]
    if how == "option":
        options.append("--no-stall-check")
    elif how == "file":
        (launcher.folder / "run.yaml").write_text("stall_check: {enabled: false}\n")
        options += ["--config-file", "run.yaml"]
    else:
        options = ["env", "HOROVOD_STALL_CHECK_DISABLE=1", "HOROVOD_STALL_CHECK_TIME_SECONDS=0.2"]
    result = run(launcher, 1, *options)
    assert result.returncode == 0, result.stderr
    assert "waited" not in result.stderr


def test_a_shutdown_before_the_warning_is_ignored(launcher: Launcher) -> None:
    options = ("--stall-check-warning-time-seconds", "20", "--stall-check-shutdown-time-seconds", "0.4")
    result = run(launcher, 1, *options)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=0.4 is ignored") == 1


def test_a_rank_that_left_the_way(launcher: Launcher) -> None:
    """The report names rank 0, too, though it is the one that tells."""
    source = """
import sys, time
import numpy as np
import horovod as hvd

hvd.init()
if hvd.rank() == 0:
    time.sleep(1.5)
hvd.allreduce(np.ones(1), name="x")
"""
    result = launcher.run("-np", "2", "--stall-check-warning-time-seconds", "0.5", *launcher.python(source))
    assert result.returncode == 0, result.stderr
    assert "  rank 0: allreduce.x (" in result.stderr
