"""Children of a rank: they neither disturb it nor outlive the job."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher, wait_until

WORKER = Path(__file__).with_name("fork_worker.py")


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_every_way_to_fork(launcher: Launcher, transport: str) -> None:
    process = launcher.start(
        "-np", "2", sys.executable, str(WORKER), env=launcher.environment(HOROVOD_TRANSPORT=transport)
    )
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    assert sorted(out.splitlines()) == ["[0]<stdout>: OK", "[1]<stdout>: OK"]
    assert not launcher.alive()


def test_every_way_to_fork_by_variables(launcher: Launcher) -> None:
    """Rank 0 serves the rendezvous itself; here, too, a forked child is not part of the job."""
    given = {"SIZE": "2", "RENDEZVOUS": "127.0.0.1:29610", "SECRET": "secret", "TRANSPORT": "tcp"}
    processes = []
    for rank in range(2):
        variables = {f"HOROVOD_{name}": text for name, text in (given | {"RANK": str(rank)}).items()}
        environment = launcher.environment(**variables)
        processes.append(launcher.start(str(WORKER), program=sys.executable, env=environment))
    for process in processes:
        out, err = process.communicate(timeout=110)
        assert (process.returncode, out) == (0, "OK\n"), err


def zombies_of(parents: list[int]) -> int:
    """Children of these that have ended and were not waited for."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        count += state == "Z" and int(parent) in parents
    return count


def test_ended_background_processes_leave_the_process_table(launcher: Launcher) -> None:
    orphans = "for i in $(seq 300); do (true & setsid -f true); done; echo done"
    orphans += "; until [ -e go ]; do sleep 0.1; done"
    process = launcher.start("-np", "2", "bash", "-c", orphans)
    assert process.stdout
    assert "done" in process.stdout.readline() and "done" in process.stdout.readline()
    assert wait_until(lambda: zombies_of(launcher.alive()) == 0), zombies_of(launcher.alive())
    assert process.poll() is None
    (launcher.folder / "go").touch()
    assert process.wait(DEADLINE) == 0
