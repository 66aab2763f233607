"""Nothing is left where there is no /proc, nor when both of the launcher's processes are killed at once or a
signal comes at any moment of the start; a signal to an agent ends the job with that signal's code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher, environment_of, wait_until

LEFT_SECONDS = 20.0  # after the end: 5 as in docs/running.md, and more on a busy machine

AGENT = """
export HOROVOD_HOST_ID=$1; name=$1; shift
until [ "$name" != "$WAITS" ] || [ -e go ]; do sleep 0.01; done
eval "$@"
"""


def agents(launcher: Launcher) -> list[str]:
    """Each host is an agent on this one; the one named by WAITS is called once there is a file `go`."""
    return [*launcher.agents(AGENT), "-H", "x:1,y:1"]


def wait_for_ranks(launcher: Launcher, command: str, count: int) -> None:
    assert wait_until(lambda: len(launcher.named(command)) == count), launcher.alive()


NO_PROC = (
    "mount -t tmpfs none /proc && exec horovodrun -np 2 --grace-seconds 0.3 bash -c 'sleep 100 & sleep 100'"
)


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of its own needs root")
@pytest.mark.parametrize("victim", ["horovodrun", "hvd-job", "none"])
def test_where_there_is_no_proc(launcher: Launcher, victim: str) -> None:
    script = NO_PROC.replace("horovodrun", launcher.program)
    process = launcher.start("--mount", "bash", "-c", script, program="unshare")
    wait_for_ranks(launcher, "sleep", 4)
    for pid in launcher.named(victim):
        os.kill(pid, signal.SIGKILL)
    if victim == "none":
        os.kill(launcher.named("bash")[0], signal.SIGKILL)
    process.wait(DEADLINE)
    assert launcher.none_alive(LEFT_SECONDS)


def start_job(launcher: Launcher, where: str, command: str = "exec sleep 100") -> subprocess.Popen[str]:
    words = ["-np", "2"] if where == "here" else agents(launcher)
    process = launcher.start(*words, "sh", "-c", command)
    wait_for_ranks(launcher, "sleep", 2)
    return process


@pytest.mark.parametrize("where", ["here", "agents"])
@pytest.mark.parametrize("command", ["exec sleep 100", "sleep 100; true"])
def test_both_processes_are_killed_at_once(launcher: Launcher, where: str, command: str) -> None:
    """Stopped processes can't end themselves; the keeper kills them."""
    start_job(launcher, where, command)
    both = launcher.named("horovodrun", "hvd-job")
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in both:
            os.kill(pid, number)
    assert launcher.none_alive(LEFT_SECONDS)


def test_all_processes_are_killed_at_once(launcher: Launcher) -> None:
    """The system itself sends the ranks a signal."""
    start_job(launcher, "here")
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in launcher.named("horovodrun", "hvd-job", "hvd-keeper"):
            os.kill(pid, number)
    assert launcher.none_alive(LEFT_SECONDS)


@pytest.mark.parametrize("where", ["here", "agents"])
def test_one_is_killed_while_the_other_one_is_stopped(launcher: Launcher, where: str) -> None:
    start_job(launcher, where)
    for name, number in (("hvd-job", signal.SIGSTOP), ("horovodrun", signal.SIGKILL)):
        for pid in launcher.named(name):
            os.kill(pid, number)
    assert launcher.none_alive(LEFT_SECONDS)


MPIRUN = """#!/bin/sh
if [ "$1" = --version ]; then echo Open MPI; else exec sleep 100; fi
"""


def test_mpirun_ends_with_the_parent(launcher: Launcher) -> None:
    path = launcher.folder / "mpirun"
    path.write_text(MPIRUN)
    path.chmod(0o755)
    environment = launcher.environment(PATH=f"{launcher.folder}:{os.environ['PATH']}")
    script = f"{launcher.program} --mpi --end-with-parent $$ -np 2 true & wait"
    shell = launcher.start("-c", script, program="/bin/sh", env=environment)
    wait_for_ranks(launcher, "sleep", 1)
    shell.kill()
    assert launcher.none_alive(LEFT_SECONDS)


def test_a_signal_resumes_a_stopped_job(launcher: Launcher) -> None:
    process = start_job(launcher, "here")
    os.kill(launcher.named("hvd-job")[0], signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 143
    assert launcher.none_alive(LEFT_SECONDS)


def test_resuming_is_not_the_end(launcher: Launcher) -> None:
    process = launcher.start("-np", "1", "bash", "-c", "until [ -e go ]; do sleep 0.01; done")
    wait_for_ranks(launcher, "bash", 1)
    os.kill(launcher.named("hvd-job")[0], signal.SIGCONT)
    (launcher.folder / "go").touch()
    assert process.wait(DEADLINE) == 0


def agent_of(launcher: Launcher, name: str) -> int:
    """Its first process, once it has the one that runs the ranks: from then on it passes signals on."""
    mark = f"HOROVOD_HOST_ID={name}".encode()
    found = [pid for pid in launcher.named("hvd-job") if mark in environment_of(pid)]
    return parent_of(found[0]) if found else 0


def parent_of(pid: int) -> int:
    return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("when", ["before the start", "while ranks run"])
def test_a_signal_to_an_agent_ends_the_job(launcher: Launcher, name: str, when: str) -> None:
    """Also where the ranks answer it by an orderly end: the others would wait for them."""
    environment = launcher.environment(WAITS="y" if when == "before the start" else "")
    ranks = ["bash", "-c", "trap 'exit 0' INT TERM HUP; touch $HOROVOD_RANK.ready; sleep 100 & wait"]
    process = launcher.start(*agents(launcher), *ranks, env=environment)
    assert wait_until(lambda: agent_of(launcher, "x") > 0)
    if when == "before the start":
        time.sleep(0.1)  # so that the agent is prepared, usually
    else:
        assert wait_until(lambda: len(list(launcher.folder.glob("*.ready"))) == 2)
    number = getattr(signal, name)
    agent = agent_of(launcher, "x")
    assert agent, process.poll()  # 0 would be the tests themselves
    os.kill(agent, number)
    time.sleep(0.1)
    (launcher.folder / "go").touch()
    _, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (
        128 + number,
        f"horovodrun: host x: its agent got {name}; ending the job\n",
    )
    assert launcher.none_alive(LEFT_SECONDS)


def test_a_signal_to_an_agent_that_is_cut_off(launcher: Launcher) -> None:
    """It does not wait for the heartbeat of a launcher that is stopped, which may take minutes."""
    start_job(launcher, "agents")
    main = launcher.started[0].pid
    both = [main, *(pid for pid in launcher.named("hvd-job") if parent_of(pid) == main)]
    for pid in both:
        os.kill(pid, signal.SIGSTOP)
    for name, number in (("x", signal.SIGTERM), ("y", signal.SIGHUP)):
        os.kill(agent_of(launcher, name), number)
    assert wait_until(lambda: not launcher.named("sleep"), 30)
    for pid in both:
        os.kill(pid, signal.SIGCONT)
    assert launcher.started[0].wait(DEADLINE) in (128 + signal.SIGTERM, 128 + signal.SIGHUP)
    assert launcher.none_alive(LEFT_SECONDS)


def test_a_job_that_was_suspended_goes_on(launcher: Launcher) -> None:
    """As by `scontrol suspend`: the time in which all of it stands still is no silence."""
    words = [*agents(launcher), "--timeout-seconds", "1"]
    script = "touch $HOROVOD_RANK.ready; until [ -e go ]; do sleep 0.01; done"
    process = launcher.start(*words, "sh", "-c", script)
    assert wait_until(lambda: len(list(launcher.folder.glob("*.ready"))) == 2)
    everything = launcher.alive()
    for number, seconds in ((signal.SIGSTOP, 5.1), (signal.SIGCONT, 0)):  # agents wait for 5
        for pid in everything:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(seconds)
    (launcher.folder / "go").touch()
    _, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("where", ["here", "agents"])
def test_a_signal_at_any_moment_of_the_start(launcher: Launcher, where: str) -> None:
    words = ["-np", "3"] if where == "here" else agents(launcher)
    for step in range(12):
        process = launcher.start(*words, "sleep", "100")
        time.sleep(step * (0.001 if where == "here" else 0.006))
        process.terminate()
        assert process.wait(DEADLINE) in (143, -signal.SIGTERM)
        assert launcher.none_alive(LEFT_SECONDS)
