"""Ranks that a program starts by itself, as other launchers do: with a RendezvousServer and variables."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE, Launcher

from horovod.runner import gloo_run, mpi_run
from horovod.runner.common.util import safe_shell_exec
from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.common.util.settings import Settings
from horovod.runner.common.util.timeout import Timeout
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.launch import run_controller
from horovod.runner.private import private_folder

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


@pytest.mark.parametrize(
    ("secret", "problem"),
    [("", "rank 1 has no HOROVOD_SECRET.*create_run_env_vars"), ("of another job", "it has another secret")],
)
def test_ranks_without_the_secret(launcher: Launcher, server: Any, secret: str, problem: str) -> None:
    """As those of a launcher that passes on the variables of Horovod only."""
    plan = get_host_assignments(parse_hosts("localhost:2"), 2)
    env = launcher.environment(HOROVOD_SECRET=secret, **by_hand(plan[1], server.start()))
    result = launcher.run("-c", RANK, program=sys.executable, env=env)
    assert re.search(problem, result.stderr.splitlines()[-1])


def in_a_shell(commands: list[str], text: str, events: list[threading.Event]) -> int:
    """What launch_gloo is given to run commands by."""
    commands.append(text)
    return safe_shell_exec.execute(text, dict(os.environ), events=events)


@pytest.mark.parametrize("words", [True, False])
def test_ranks_by_a_function_of_the_caller(launcher: Launcher, server: Any, words: bool) -> None:
    command: Any = [sys.executable, "-c", f"{RANK}\nopen(f'{launcher.folder}/{{hvd.rank()}}', 'x')"]
    command = command if words else f"{shlex.join(command)}; echo $A >>{launcher.folder}/$HOROVOD_RANK"
    commands: list[str] = []
    env = launcher.environment(A="a 'quoted' word", HOME=str(launcher.folder))
    settings = Settings(num_proc=2, hosts="localhost:2")
    execute = lambda text, slot, events: in_a_shell(commands, text, events)  # noqa: E731
    gloo_run.launch_gloo(command, execute, settings, ["lo"], env, "127.0.0.1")
    expected = ["", ""] if words else ["a 'quoted' word\n"] * 2
    assert [(launcher.folder / str(rank)).read_text() for rank in range(2)] == expected
    assert not any(os.environ["HOROVOD_SECRET"] in text or "quoted" in text for text in commands)


def test_a_rank_that_fails_ends_the_others(launcher: Launcher, server: Any) -> None:
    def execute(text: str, slot: SlotInfo, events: list[threading.Event]) -> int:
        if slot.rank == 1:
            raise OSError("no shell")
        return safe_shell_exec.execute(text, dict(os.environ), events=events)

    settings, nothing = Settings(num_proc=2, hosts="localhost:2"), (None, None, "127.0.0.1")
    with pytest.raises(RuntimeError, match=r"status: the first was rank 1 on localhost.*no shell") as caught:
        gloo_run.launch_gloo("sleep 100", execute, settings, *nothing)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(RuntimeError, match="the first was rank 0 on localhost, which ended with exit code 3"):
        gloo_run.launch_gloo(
            "exit 3", lambda text, _, events: in_a_shell([], text, events), Settings(num_proc=1), *nothing
        )
    assert not [*Path.home().glob(".horovod/launch-*")]


KILLED = """
import os, signal, sys
from horovod.runner import gloo_run
from horovod.runner.common.util.settings import Settings
end = lambda text, slot, events: os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1:] else 0
gloo_run.launch_gloo("true", end, Settings(num_proc=1), None, None, "127.0.0.1")
"""


def test_a_launcher_that_is_killed_leaves_no_secret(launcher: Launcher) -> None:
    """The next one removes it, but not that of one which runs."""
    program, *words = launcher.python(KILLED)
    folder = launcher.folder / ".horovod"
    env = launcher.environment(HOME=str(launcher.folder))
    assert launcher.run(*words, "die", program=program, env=env).returncode == -signal.SIGKILL
    assert len([*folder.glob("launch-*")]) == 1
    with private_folder(folder, "launch-") as first, private_folder(folder, "launch-") as second:
        assert {*folder.glob("launch-*")} == {first, second}
        assert launcher.run(*words, program=program, env=env).returncode == 0
        assert first.exists() and second.exists()
    assert not [*folder.iterdir()]


def test_what_a_server_refuses(server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="handler_cls"):
        server.start(object)
    (tmp_path / "secret").write_text("of the user\nand more\n")
    monkeypatch.setenv("HOROVOD_SECRET_FILE", str(tmp_path / "secret"))
    server.start()
    assert gloo_run.create_run_env_vars("a", [], 1)["HOROVOD_SECRET"] == "of the user"
    with pytest.raises(ValueError, match="already"):
        server.start()
    with pytest.raises(ValueError, match="a plan of 1 slots has the ranks"):
        server.init([SlotInfo("a", 1, 0, 0, 2, 1, 1)])
    assert gloo_run.create_run_env_vars("a", [], 1, elastic=True)["HOROVOD_ELASTIC"] == "1"


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
    with pytest.raises(ValueError, match=r"described by .*ElasticSettings"):
        mpi_run.mpi_run(Settings(elastic=True), None, None, command)


def test_mpirun_is_looked_for() -> None:
    assert not mpi_run.mpi_available({"PATH": "/nowhere"})
