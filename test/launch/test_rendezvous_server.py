"""Ranks that a program starts by itself, as other launchers do: with a RendezvousServer and variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE, Launcher

from horovod.runner import gloo_run, mpi_run
from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.common.util.settings import Settings
from horovod.runner.common.util.timeout import Timeout
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.launch import run_controller

RANK = """
import numpy as np, horovod as hvd
hvd.init()
print(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.allreduce(np.ones(1) * hvd.rank(), op=hvd.Sum)[0])
"""


def by_hand(slot: SlotInfo, port: int) -> dict[str, str]:
    """The variables as Horovod's own launcher sets them."""
    return {
        "HOROVOD_HOSTNAME": slot.hostname, "HOROVOD_RANK": str(slot.rank), "HOROVOD_SIZE": str(slot.size),
        "HOROVOD_LOCAL_RANK": str(slot.local_rank), "HOROVOD_LOCAL_SIZE": str(slot.local_size),
        "HOROVOD_CROSS_RANK": str(slot.cross_rank), "HOROVOD_CROSS_SIZE": str(slot.cross_size),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_IFACE": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }  # fmt: skip


def start(launcher: Launcher, plan: list[SlotInfo], variables: Any, base: Mapping[str, str]) -> list[str]:
    """Runs the ranks of a plan; returns what each has printed."""
    ranks = [
        launcher.start("-c", RANK, program=sys.executable, env={**base, **variables(slot)}) for slot in plan
    ]
    outcomes = [rank.communicate(timeout=DEADLINE) for rank in ranks]
    assert not any(rank.returncode for rank in ranks), outcomes
    return [out.strip() for out, _ in outcomes]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HOROVOD_SECRET", "")
    monkeypatch.delenv("HOROVOD_SECRET")
    server = RendezvousServer()
    yield server
    server.stop()


def test_ranks_with_the_variables_of_horovod_meet(launcher: Launcher, server: Any) -> None:
    port = server.start()
    inherited = launcher.environment(HOROVOD_SECRET=os.environ["HOROVOD_SECRET"])
    for size in (2, 3, 1):  # one job after the other
        plan = get_host_assignments(parse_hosts(f"localhost:{size}"), size)
        server.init(plan)
        total = size * (size - 1) / 2
        found = start(launcher, plan, lambda slot: by_hand(slot, port), inherited)
        assert found == [f"{rank} {size} {rank} {total}" for rank in range(size)]


def test_ranks_that_inherit_nothing_meet(launcher: Launcher, server: Any) -> None:
    """As those of a scheduler, which are given their variables and nothing else."""
    plan = get_host_assignments(parse_hosts("localhost:4"), 2, 2)
    shared = gloo_run.create_run_env_vars("127.0.0.1", {"lo"}, server.start())
    server.init(plan)
    found = start(
        launcher, plan, lambda slot: shared | gloo_run.create_slot_env_vars(slot), launcher.environment()
    )
    assert found == ["0 2 0 1.0", "1 2 1 1.0"]


def test_what_a_server_refuses(server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="handler_cls"):
        server.start(object)
    (tmp_path / "secret").write_text("of the user\n")
    monkeypatch.setenv("HOROVOD_SECRET_FILE", str(tmp_path / "secret"))
    server.start()
    assert gloo_run.create_run_env_vars("a", [], 1)["HOROVOD_SECRET"] == "of the user"
    with pytest.raises(ValueError, match="already"):
        server.start()
    with pytest.raises(ValueError, match="a plan of 1 slots has the ranks"):
        server.init([SlotInfo("a", 1, 0, 0, 2, 1, 1)])
    with pytest.raises(ValueError, match="later version"):
        gloo_run.create_run_env_vars("a", [], 1, elastic=True)


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_a_command_with_settings(launcher: Launcher, controller: str) -> None:
    if controller == "mpi" and not mpi_run.mpi_available():
        pytest.skip("no mpirun")
    settings = Settings(num_proc=2, hosts="localhost:2", start_timeout=Timeout(20, ""), verbose=0)
    command = ["sh", "-c", f'echo "$A" >{launcher.folder}/$HOROVOD_RANK$OMPI_COMM_WORLD_RANK$PMI_RANK']
    env = launcher.environment(A="b")
    run_controller(
        controller == "gloo",
        lambda: gloo_run.gloo_run(settings, None, env, None, command),
        controller == "mpi",
        lambda: mpi_run.mpi_run(settings, None, env, command),
        False,
        None,
        0,
    )
    assert [path.read_text() for path in launcher.folder.iterdir()] == ["b\n"] * 2
    with pytest.raises(RuntimeError, match="one or more processes exited with non-zero status"):
        gloo_run.gloo_run(settings, {"lo"}, env, None, "sh -c 'exit 3'")
    with pytest.raises(ValueError, match="later version"):
        mpi_run.mpi_run(Settings(elastic=True), None, None, command)


def test_mpirun_is_looked_for() -> None:
    assert not mpi_run.mpi_available({"PATH": "/nowhere"})
