"""Children of a rank: they neither disturb it nor outlive the job."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import Launcher

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
