"""All ranks get one cause, whichever finds it first and however their programs end: 210 times in the soak."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import virtual_hosts
from conftest import Launcher
from virtual_hosts import VirtualHosts

WORKER = Path(__file__).with_name("cause_worker.py")
HOSTS = ("a", "b", "c", "d")
RUNS = 70 if "HOROVOD_TEST_FULL" in os.environ else 1


@pytest.fixture(scope="module")
def hosts() -> Iterator[VirtualHosts]:
    try:
        made = virtual_hosts.make(HOSTS)
    except virtual_hosts.UnavailableError as reason:
        pytest.skip(str(reason))
    yield made
    made.end()
    shutil.rmtree(made.folder)


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("victim", [0, 2, 5], ids=["root", "leader", "other"])
def test_a_killed_rank_is_one_cause(launcher: Launcher, hosts: VirtualHosts, victim: int, run: int) -> None:
    """4 hosts with 2 ranks each."""
    after, ending = random.uniform(0, 200), ("_exit", "raise")[run % 2]
    layout = ",".join(f"{name}:2" for name in HOSTS)
    words = ["--start-timeout", "90", "-H", layout, sys.executable, str(WORKER)]
    first, *rest = hosts.enter("a", launcher.folder)
    result = launcher.run(
        *rest, launcher.program, *words, str(victim), "SIGKILL", f"{after:.1f}", ending, program=first
    )
    files = [launcher.folder / f"{rank}.error" for rank in range(8) if rank != victim]
    assert all(file.exists() for file in files), result.stderr
    causes = {file.read_text().partition(" ")[2] for file in files}
    assert len(causes) == 1, (after, ending, causes, result.stderr)
    assert f"rank {victim} (pid" in causes.pop()
    assert result.returncode == 128 + 9, result.stderr
    assert f"horovodrun: the first to fail was rank {victim} (pid" in result.stderr
    assert launcher.none_alive()
