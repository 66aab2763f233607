"""A rank dies: every other raises at once and names it, the launcher says so, and nothing is left behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from conftest import DEADLINE

HOROVODRUN = os.environ.get("HOROVODRUN") or shutil.which("horovodrun") or "horovodrun"
WORKER = Path(__file__).with_name("fault_worker.py")
TRAINER = Path(__file__).with_name("fault_trainer.py")
MARK = "HVD_TEST_MARK"


def processes_with(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def wait_until_gone(mark: str) -> list[int]:
    end = time.monotonic() + DEADLINE
    while (left := processes_with(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def run_with_victim(
    kind: str, victim: int, transport: str, *extra: str, options: tuple[str, ...] = (), **variables: str
) -> tuple[subprocess.CompletedProcess[str], str]:
    mark = uuid.uuid4().hex
    command = [HOROVODRUN, "-np", "4", *options, sys.executable, str(WORKER), kind, str(victim), *extra]
    environment = {**os.environ, MARK: mark, "HOROVOD_TRANSPORT": transport, **variables}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, env=environment, check=False
    )
    return result, mark


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
def test_killed_rank(victim: int, transport: str) -> None:
    result, mark = run_with_victim("SIGKILL", victim, transport)
    check_survivors(result.stdout, victim)
    assert result.returncode == 128 + 9, result.stderr
    assert re.search(rf"rank {victim}\b.*(SIGKILL|signal 9)", result.stderr, re.I), result.stderr
    assert not wait_until_gone(mark)


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
def test_rank_that_ends_by_itself(kind: str, code: int) -> None:
    result, mark = run_with_victim(kind, 2, "auto")
    check_survivors(result.stdout, 2)
    assert result.returncode == code, result.stderr
    assert not wait_until_gone(mark)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_workers_of_the_dead_rank_live_on(transport: str) -> None:
    """Its child, and its child's child: neither may hold the dead rank's connections open."""
    result, mark = run_with_victim("SIGKILL", 1, transport, "workers")
    check_survivors(result.stdout, 1)
    assert not wait_until_gone(mark), "a forked worker was left behind"


@pytest.mark.parametrize("path", ["auto", "direct"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_killed_while_others_read_its_memory(victim: int, path: str) -> None:
    result, mark = run_with_victim("SIGKILL", victim, "shm", "shared", HOROVOD_SHM_PATH=path)
    check_survivors(result.stdout, victim)
    assert not wait_until_gone(mark)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("victim", [0, 3])
def test_survivors_go_on_in_a_smaller_job(victim: int, transport: str) -> None:
    result, mark = run_with_victim("SIGKILL", victim, transport, "again", options=("--grace-seconds", "40"))
    check_survivors(result.stdout, victim)
    assert sorted(re.findall(r"WENT ON as (\d) of 3", result.stdout)) == ["0", "1", "2"], result.stdout
    assert not wait_until_gone(mark)


def test_nothing_is_left_in_files(tmp_path: Path) -> None:
    before = sorted(os.listdir("/dev/shm"))
    result, mark = run_with_victim("SIGKILL", 0, "shm", TMPDIR=str(tmp_path))
    check_survivors(result.stdout, 0)
    assert not wait_until_gone(mark)
    assert not list(tmp_path.iterdir())
    assert [name for name in os.listdir("/dev/shm") if name not in before and "horovod" in name] == []


def test_a_stopped_rank_and_ctrl_c() -> None:
    """The others wait for it, whatever it takes; Ctrl-C ends them, and the stopped one as well."""
    mark = uuid.uuid4().hex
    command = [HOROVODRUN, "-np", "3", "--grace-seconds", "0.5", sys.executable, str(WORKER), "SIGSTOP", "1"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, MARK: mark}
    )
    try:
        assert process.stdout and "VICTIM" in process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 128 + 2
    assert not wait_until_gone(mark)


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_while_training(victim: int) -> None:
    """A real loop of torch; every rank reads its data through forked workers."""
    pytest.importorskip("torch")
    mark = uuid.uuid4().hex
    command = [HOROVODRUN, "-np", "3", sys.executable, str(TRAINER), str(victim)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, env={**os.environ, MARK: mark}, check=False
    )
    check_survivors(result.stdout, victim, size=3)
    assert result.returncode == 128 + 9, result.stderr
    assert not wait_until_gone(mark)
