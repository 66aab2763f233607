"""A rank that does not come: who is missing for what is said, and the job ends if it was told to."""

from __future__ import annotations

import re
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
    assert "has not answered" not in result.stderr, "its engine answers while the program sleeps"


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


STOPPED = """
import os, signal, subprocess, sys
import numpy as np
import horovod as hvd

hvd.init()
victim, seconds, moving = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "True"
value = np.ones(3_000_000, np.float32)
hvd.allreduce(value, name="warm")
handles = []
if hvd.rank() != victim or moving:
    handles.append(hvd.allreduce_async(value, name="x"))
if hvd.rank() == victim:
    print("victim", os.getpid(), file=sys.stderr, flush=True)
    if seconds:
        subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    if not handles:
        handles.append(hvd.allreduce_async(value, name="x"))
    handles.append(hvd.allreduce_async(value, name="y"))
    print("went on", all((hvd.synchronize(each) == 1).all() for each in handles), file=sys.stderr)
except hvd.HorovodInternalError as error:
    sys.exit(f"error on rank {hvd.rank()}: {error}")
"""


def stop(
    launcher: Launcher, victim: int, seconds: float, *options: str, moving: bool = False
) -> tuple[str, int]:
    """What the job says, and the victim's process, which goes on after so many seconds, if any.

    It stops before it has submitted anything, or (moving) when data may be on their way.
    """
    words = [*options, *launcher.python(STOPPED), str(victim), str(seconds), str(moving)]
    result = launcher.run("-np", "3", "--grace-seconds", "1", *words)
    assert result.returncode == (0 if seconds else 1), result.stderr
    found = re.search(r"victim (\d+)", result.stderr)
    assert found
    return result.stderr, int(found.group(1))


@pytest.mark.parametrize(("victim", "moving"), [(0, False), (1, False), (0, True)])
def test_a_stopped_process_is_named_and_training_goes_on(
    launcher: Launcher, victim: int, moving: bool
) -> None:
    """Rank 0, too, which otherwise reports who is missing."""
    warning = ("--stall-check-warning-time-seconds", "0.8")
    said, process = stop(launcher, victim, 2.5, *warning, moving=moving)
    assert said.count("went on True") == 3
    for rank in {0, 1, 2} - {victim}:
        who = rf"\[{rank}\]<stderr>: .* waits, and rank {victim} \(pid {process}, host .*\)"
        what = r"has not answered for 0\.8 s: its process is stopped \(state T\)"
        assert re.search(f"{who} {what}", said), said


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_stopped_rank_0_ends_the_job_when_told_to(launcher: Launcher, transport: str) -> None:
    options = ("--stall-check-warning-time-seconds", "0.5", "--stall-check-shutdown-time-seconds", "1")
    said, process = stop(launcher, 0, 0, *options, "env", f"HOROVOD_TRANSPORT={transport}")
    for rank in (1, 2):
        line = next(line for line in said.splitlines() if f"error on rank {rank}: " in line)
        assert f"rank 0 (pid {process}, " in line and "its process is stopped" in line
        assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in line
    assert "rank 0 was killed by SIGKILL" in said
    assert not launcher.alive()


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
