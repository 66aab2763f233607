"""A rank dies: every other raises at once and names it, the launcher says so, and nothing is left behind."""

import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

HOROVODRUN = os.environ.get("HOROVODRUN") or shutil.which("horovodrun") or "horovodrun"
WORKER = Path(__file__).with_name("fault_worker.py")
MARK = "HVD_TEST_MARK"
DEADLINE = 60.0


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
    end = time.monotonic() + 10
    while (left := processes_with(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def run_with_victim(
    kind: str, victim: int, transport: str, *extra: str
) -> tuple[subprocess.CompletedProcess[str], str]:
    mark = uuid.uuid4().hex
    command = [HOROVODRUN, "-np", "4", sys.executable, str(WORKER), kind, str(victim), *extra]
    environment = {**os.environ, MARK: mark, "HOROVOD_TRANSPORT": transport}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, env=environment, check=False
    )
    return result, mark


def check_survivors(output: str, victim: int) -> None:
    ended = float(re.search(r"VICTIM ([\d.]+)", output)[1])  # type: ignore[index]
    raised = re.findall(r"\[(\d+)\]<stdout>: ?RAISED ([\d.]+) (.*)", output)
    assert sorted(int(rank) for rank, _, _ in raised) == [r for r in range(4) if r != victim], output
    for rank, when, text in raised:
        assert re.search(rf"\brank {victim}\b", text), f"rank {rank} does not name rank {victim}: {text}"
        assert float(when) - ended < 10, f"rank {rank} took {float(when) - ended:.3f} s"
    assert output.count("REFUSED") == 3, output


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("victim", [0, 1, 3])
def test_killed_rank(victim: int, transport: str) -> None:
    result, mark = run_with_victim("kill", victim, transport)
    check_survivors(result.stdout, victim)
    assert result.returncode == 128 + 9, result.stderr
    assert re.search(rf"rank {victim}\b.*(SIGKILL|signal 9)", result.stderr, re.I), result.stderr
    assert not wait_until_gone(mark)


@pytest.mark.parametrize(("kind", "code"), [("exit", 3), ("abort", 4), ("throw", 1)])
def test_rank_that_ends_by_itself(kind: str, code: int) -> None:
    result, mark = run_with_victim(kind, 2, "auto")
    check_survivors(result.stdout, 2)
    assert result.returncode == code, result.stderr
    assert not wait_until_gone(mark)


def test_worker_of_the_dead_rank_lives_on() -> None:
    result, mark = run_with_victim("kill", 1, "auto", "workers")
    check_survivors(result.stdout, 1)
    assert not wait_until_gone(mark), "the forked worker was left behind"
