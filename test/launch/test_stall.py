"""A rank that does not take part: reports name it and the tensors; a time limit ends the job."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable

import pytest
from conftest import DEADLINE, Launcher, wait_until

LATE = """
import glob, os, sys, time
import numpy as np
import horovod as hvd

def stay_away(seconds, until):  # seconds, or until there are so many files
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(glob.glob("go*")) < until:
        time.sleep(0.01)

hvd.init()
value = np.ones(3, np.float32)
hvd.allreduce(value, name="warm")
handles = []
try:
    if hvd.rank() == 1:
        hvd.allreduce(value, name="other")
        stay_away(SECONDS, UNTIL)
    else:
        handles = [hvd.allreduce_async(value, name=f"layer.{i}") for i in range(9)]
        hvd.allreduce(value, name="other")
    if hvd.rank() == 1:
        handles = [hvd.allreduce_async(value, name=f"layer.{i}") for i in range(9)]
    results = [hvd.synchronize(each) for each in handles]
    print("went on", all((each == value).all() for each in results), file=sys.stderr)
except hvd.HorovodInternalError as error:
    open(f"go{hvd.rank()}", "w").close()
    sys.exit(f"error on rank {hvd.rank()}: {error}")
"""


def late(launcher: Launcher, seconds: float, until: int = 1) -> list[str]:
    return launcher.python(LATE.replace("SECONDS", str(seconds)).replace("UNTIL", str(until)))


def run(launcher: Launcher, seconds: float, *options: str) -> subprocess.CompletedProcess[str]:
    return launcher.run("-np", "3", *options, *late(launcher, seconds))


def run_until(
    launcher: Launcher, words: list[str], reported: Callable[[str], bool], then: Callable[[str], object]
) -> tuple[str, int]:
    """Does something once the job has reported something; its stderr and exit code."""
    path = launcher.folder / "stderr"
    with path.open("w") as file:
        process = launcher.start("-np", "3", *words, stderr=file)
    assert wait_until(lambda: reported(path.read_text())), path.read_text()
    then(path.read_text())
    code = process.wait(DEADLINE)
    return path.read_text(), code


# Before that, a rank that the system keeps from running may be missing as well.
MISSING = (
    r"some ranks have waited for others for more than 1 s.*\n"
    r".*  rank 1: allreduce\.layer\.((?!other).)* and 3 more\n(.*\n)+.*The ranks go on waiting"
)


def test_the_missing_rank_is_named_and_training_goes_on(launcher: Launcher) -> None:
    words = ["--stall-check-warning-time-seconds", "1", *late(launcher, DEADLINE)]
    said, code = run_until(
        launcher,
        words,
        lambda said: re.search(MISSING, said) is not None,
        lambda _: (launcher.folder / "go").touch(),
    )
    assert code == 0, said
    assert said.count("went on True") == 3
    reports = re.findall("(.*)some ranks have waited for others for more than 1 s", said)
    assert all(report.startswith("[0]<stderr>: ") for report in reports), "only rank 0 reports"
    assert "has not answered" not in said, "its engine answers while the program sleeps"


def test_horovodrun_says_the_verdict_once(launcher: Launcher) -> None:
    words = ["--stall-check-warning-time-seconds", "1", *late(launcher, DEADLINE)]
    said, code = run_until(
        launcher,
        words,
        lambda said: said.count("some ranks have waited for others") >= 12,
        lambda _: (launcher.folder / "go").touch(),
    )
    assert code == 0, said
    verdicts = [line for line in said.splitlines() if line.startswith("horovodrun: ")]
    assert len(verdicts) == 1, said
    assert re.match(
        r"horovodrun: rank 1 sleeps: .*; ranks 0, 2 wait for it in allreduce\.layer\.0, for \d+ s; "
        r"Ctrl-\\ here, or `horovodrun --status \w{8}`, shows all ranks$",
        verdicts[0],
    )


def test_the_job_ends_when_that_is_set(launcher: Launcher) -> None:
    options = ("--stall-check-warning-time-seconds", "0.5", "--stall-check-shutdown-time-seconds", "1")
    result = launcher.run("-np", "3", "--grace-seconds", "30", *options, *late(launcher, DEADLINE, until=2))
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
import glob, os, signal, sys, time
import numpy as np
import horovod as hvd

hvd.init()
victim, moving = int(sys.argv[1]), sys.argv[2] == "True"
value = np.ones(3_000_000, np.float32)
hvd.allreduce(value, name="warm")
handles = []
if hvd.rank() != victim or moving:
    handles.append(hvd.allreduce_async(value, name="x"))
if hvd.rank() == victim:
    print("victim", os.getpid(), file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    if not handles:
        handles.append(hvd.allreduce_async(value, name="x"))
    handles.append(hvd.allreduce_async(value, name="y"))
    print("went on", all((hvd.synchronize(each) == 1).all() for each in handles), file=sys.stderr)
except hvd.HorovodInternalError as error:
    print(f"error on rank {hvd.rank()}: {error}", file=sys.stderr, flush=True)
    open(f"error{hvd.rank()}", "w").close()
    end = time.monotonic() + 60
    while time.monotonic() < end and len(glob.glob("error*")) < 2:  # the first end begins the time of grace
        time.sleep(0.01)
    sys.exit(1)
"""


# The victim stops before it has submitted anything, or (moving) when data may be on their way.
def stopped(launcher: Launcher, victim: int, *options: str, moving: bool = False) -> list[str]:
    return ["--grace-seconds", "1", *options, *launcher.python(STOPPED), str(victim), str(moving)]


def process_of(said: str) -> int:
    found = re.search(r"victim (\d+)", said)
    assert found, said
    return int(found.group(1))


@pytest.mark.parametrize(("victim", "moving"), [(0, False), (1, False), (0, True)])
def test_a_stopped_process_is_named_and_training_goes_on(
    launcher: Launcher, victim: int, moving: bool
) -> None:
    """Rank 0, too, which otherwise reports who is missing."""

    def named_by(said: str) -> set[int]:
        who = rf"\[(\d)\]<stderr>: .* waits, and rank {victim} \(pid {process_of(said)}, host .*\)"
        what = r"has not answered for [\d.]+ s: its process is stopped \(state T\)"
        return {int(rank) for rank in re.findall(f"{who} {what}", said)}

    said, code = run_until(
        launcher,
        stopped(launcher, victim, "--stall-check-warning-time-seconds", "0.8", moving=moving),
        lambda said: "victim" in said and len(named_by(said)) > 0,
        lambda said: os.kill(process_of(said), signal.SIGCONT),
    )
    assert code == 0, said
    assert said.count("went on True") == 3
    assert named_by(said) == {(victim + 1) % 3}, "one of those that wait says it"


@pytest.mark.parametrize("victim", [0, 2])
def test_a_stopped_process_ends_the_job(launcher: Launcher, victim: int) -> None:
    """The others are only stuck behind it, and none of them is named."""
    result = launcher.run("-np", "3", "--timeout-seconds", "3", *stopped(launcher, victim, moving=True))
    said = result.stderr
    assert result.returncode == 1, said
    cause = rf"rank {victim} \(pid {process_of(said)}, host .*\) has not answered for 3 s " + (
        r"\(HOROVOD_TIMEOUT_SECONDS\): its process is stopped \(state T\)"
    )
    for rank in {0, 1, 2} - {victim}:
        assert re.search(f"error on rank {rank}: {cause}", said), said
    assert not launcher.alive()


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_stopped_rank_0_ends_the_job_when_that_is_set(launcher: Launcher, transport: str) -> None:
    options = ("--stall-check-warning-time-seconds", "0.5", "--stall-check-shutdown-time-seconds", "1")
    words = stopped(launcher, 0, *options, "env", f"HOROVOD_TRANSPORT={transport}")
    result = launcher.run("-np", "3", *words)
    said = result.stderr
    assert result.returncode == 1, said
    for rank in (1, 2):
        line = next(line for line in said.splitlines() if f"error on rank {rank}: " in line)
        assert f"rank 0 (pid {process_of(said)}, " in line and "its process is stopped" in line
        assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in line
    assert "rank 0 was killed by SIGKILL" in said
    assert not launcher.alive()


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_process_and_the_end_of_the_others(launcher: Launcher, victim: int) -> None:
    """They shut down after the same time, with a warning that names the missing rank."""
    source = f"""
import os, signal, sys, time
import horovod as hvd

hvd.init()
victim = hvd.broadcast_object(os.getpid(), root_rank={victim})
if hvd.rank() == {victim}:
    print("victim", victim, file=sys.stderr, flush=True)
    os.kill(victim, signal.SIGSTOP)
else:  # until then its progress thread may complete the handshake
    deadline = time.monotonic() + 30
    while open(f"/proc/{{victim}}/stat").read().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, "the victim does not stop"
        time.sleep(0.01)
hvd.shutdown()
print("left", file=sys.stderr)
"""
    said, code = run_until(
        launcher,
        ["--timeout-seconds", "2", *launcher.python(source)],
        lambda said: said.count("left\n") == 2,
        lambda said: os.kill(process_of(said), signal.SIGCONT),
    )
    assert code == 0, said
    cause = rf"rank {victim} \(pid {process_of(said)}, host .*\) has not answered for 2 s"
    others = {str(rank) for rank in {0, 1, 2} - {victim}}
    assert {*re.findall(rf"\[(\d)\]: leaving without the shutdown handshake: {cause}", said)} >= others, said


def test_a_rank_that_left_the_way(launcher: Launcher) -> None:
    """The report names rank 0, too, though it is the one that reports."""
    source = """
import os, time
import numpy as np
import horovod as hvd

hvd.init()
while hvd.rank() == 0 and not os.path.exists("go"):
    time.sleep(0.01)
hvd.allreduce(np.ones(1), name="x")
"""
    said, code = run_until(
        launcher,
        ["--stall-check-warning-time-seconds", "0.5", *launcher.python(source)],
        lambda said: "  rank 0: allreduce.x (" in said,
        lambda _: (launcher.folder / "go").touch(),
    )
    assert code == 0, said
