"""A rank dies: every other raises at once and names it, the launcher says so, and nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher

WORKER = str(Path(__file__).with_name("fault_worker.py"))
TRAINER = str(Path(__file__).with_name("fault_trainer.py"))
PATIENT = ("--grace-seconds", "40")  # the survivors of a job that fails on a busy machine end by themselves
pytestmark = pytest.mark.usefixtures("nothing_left")


def run_with_victim(
    launcher: Launcher,
    kind: str,
    victim: int,
    transport: str,
    *extra: str,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Runs 4 ranks, of which the victim ends as `kind` says."""
    words = ["-np", "4", *PATIENT, sys.executable, WORKER, kind, str(victim), *extra]
    return launcher.run(*words, env=launcher.environment(HOROVOD_TRANSPORT=transport, **variables))


def check_survivors(output: str, victim: int, size: int = 4) -> None:
    ended = float(re.search(r"VICTIM ([\d.]+)", output)[1])  # type: ignore[index]
    raised = re.findall(r"\[(\d+)\]<stdout>: ?RAISED ([\d.]+) (.*)", output)
    assert sorted(int(rank) for rank, _, _ in raised) == [r for r in range(size) if r != victim], output
    for rank, when, text in raised:
        assert re.search(rf"\brank {victim}\b", text), f"rank {rank} does not name rank {victim}: {text}"
        assert float(when) >= ended, f"rank {rank} raised before rank {victim} died"
    assert output.count("REFUSED") == size - 1, output


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("victim", [0, 1, 3])
def test_killed_rank(launcher: Launcher, victim: int, transport: str) -> None:
    result = run_with_victim(launcher, "SIGKILL", victim, transport)
    check_survivors(result.stdout, victim)
    assert result.returncode == 128 + 9, result.stderr
    assert re.search(rf"rank {victim}\b.*(SIGKILL|signal 9)", result.stderr, re.I), result.stderr


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("exit0", 0),
        ("exit3", 3),
        ("_exit0", 0),
        ("_exit4", 4),
        ("throw", 1),
        ("SIGSEGV", 128 + 11),
        ("SIGABRT", 128 + 6),
        ("SIGTERM", 128 + 15),
    ],
)
def test_rank_that_ends_by_itself(launcher: Launcher, kind: str, code: int) -> None:
    result = run_with_victim(launcher, kind, 2, "auto")
    check_survivors(result.stdout, 2)
    assert result.returncode == code, result.stderr


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_workers_of_the_dead_rank_live_on(launcher: Launcher, transport: str) -> None:
    """Its child, and its child's child: neither may hold the dead rank's connections open."""
    result = run_with_victim(launcher, "SIGKILL", 1, transport, "workers")
    check_survivors(result.stdout, 1)


@pytest.mark.parametrize("path", ["auto", "direct"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_killed_while_others_read_its_memory(launcher: Launcher, victim: int, path: str) -> None:
    result = run_with_victim(launcher, "SIGKILL", victim, "shm", "shared", HOROVOD_SHM_PATH=path)
    check_survivors(result.stdout, victim)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("victim", [0, 3])
def test_survivors_go_on_in_a_smaller_job(launcher: Launcher, victim: int, transport: str) -> None:
    result = run_with_victim(launcher, "SIGKILL", victim, transport, "again")
    check_survivors(result.stdout, victim)
    assert sorted(re.findall(r"WENT ON as (\d) of 3", result.stdout)) == ["0", "1", "2"], result.stdout


def test_nothing_is_left_in_files(launcher: Launcher, tmp_path: Path) -> None:
    before = sorted(os.listdir("/dev/shm"))
    result = run_with_victim(launcher, "SIGKILL", 0, "shm", TMPDIR=str(tmp_path))
    check_survivors(result.stdout, 0)
    assert launcher.none_alive()
    assert not list(tmp_path.iterdir())
    assert [name for name in os.listdir("/dev/shm") if name not in before and "horovod" in name] == []


def test_a_stopped_rank_and_ctrl_c(launcher: Launcher) -> None:
    """The others wait without a limit; Ctrl-C ends all of them, including the stopped one."""
    process = launcher.start("-np", "3", "--grace-seconds", "0.5", sys.executable, WORKER, "SIGSTOP", "1")
    assert process.stdout and "VICTIM" in process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + 2


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_while_training(launcher: Launcher, victim: int) -> None:
    """A real loop of torch; every rank reads its data through forked workers."""
    pytest.importorskip("torch")
    result = launcher.run("-np", "3", *PATIENT, sys.executable, TRAINER, str(victim))
    check_survivors(result.stdout, victim, size=3)
    assert result.returncode == 128 + 9, result.stderr
