"""Signals to horovodrun reach every rank once; nothing of a job outlives it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher, wait_until

# Says which signals come, and ends after the one in ENDS_AFTER.
LISTEN = """
import os, signal, sys
def receive(number, frame):
    print("received", signal.Signals(number).name, flush=True)
    if signal.Signals(number).name == sys.argv[1]:
        sys.exit(0)
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), receive)
print("ready", flush=True)
while True:
    signal.pause()
"""


def start_listeners(
    launcher: Launcher, ends_after: str, *options: str, ranks: int = 3
) -> subprocess.Popen[str]:
    process = launcher.start("-np", str(ranks), *options, *launcher.python(LISTEN), ends_after)
    assert process.stdout
    for _ in range(ranks):
        assert process.stdout.readline().endswith("ready\n")
    return process


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_forwarded_once_to_all(launcher: Launcher, name: str) -> None:
    process = start_listeners(launcher, name)
    number = getattr(signal, name)
    process.send_signal(number)
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + number
    assert sorted(out.splitlines()) == [f"[{rank}]<stdout>: received {name}" for rank in range(3)]
    assert err == f"horovodrun: got {name}; ending the job\n"
    assert not launcher.alive()


def test_the_question_of_a_question(launcher: Launcher) -> None:
    """Ctrl-\\ asks what a job does; --status has none that it could ask about, and ends by it."""
    ssh = launcher.folder / "ssh"
    ssh.write_text("#!/bin/sh\necho > called\nexec sleep 60\n")
    ssh.chmod(0o700)
    env = launcher.environment(PATH=f"{launcher.folder}:{os.environ['PATH']}")
    ignored = signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # a shell's background jobs ignore it
    try:
        process = launcher.start("--status", "-H", "nowhere.invalid", env=env, cwd=launcher.folder)
    finally:
        signal.signal(signal.SIGQUIT, ignored)
    assert wait_until((launcher.folder / "called").exists)
    process.send_signal(signal.SIGQUIT)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == -signal.SIGQUIT


def test_interrupt_goes_on_to_sigterm_and_sigkill(launcher: Launcher) -> None:
    process = start_listeners(launcher, "never", "--grace-seconds", "2")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert out.count("received SIGINT") == out.count("received SIGTERM") == 3
    assert not launcher.alive()


ADD_OR_REMOVE = """
import os, signal, sys, threading, time
import horovod as hvd
hvd.init(process_sets="dynamic")
added = hvd.add_process_set([1])
if hvd.rank() == 1:
    time.sleep(3600)
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    hvd.remove_process_set(added) if sys.argv[1] == "remove" else hvd.add_process_set([0])
except KeyboardInterrupt:
    sys.exit("interrupted")
"""


@pytest.mark.parametrize("what", ["add", "remove"])
def test_interrupt_while_others_do_not_add_or_remove_a_set(launcher: Launcher, what: str) -> None:
    result = launcher.run("-np", "2", "--grace-seconds", "0.3", *launcher.python(ADD_OR_REMOVE), what)
    assert result.returncode == 1
    assert "[0]<stderr>: interrupted" in result.stderr.splitlines(), result.stderr


def test_second_interrupt_kills_at_once(launcher: Launcher) -> None:
    process = start_listeners(launcher, "never", "--grace-seconds", "3600")
    assert process.stdout
    process.send_signal(signal.SIGINT)
    for _ in range(3):
        assert process.stdout.readline().endswith("received SIGINT\n")
    time.sleep(0.3)  # closer together they count as one
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE) == 130
    assert not launcher.alive()


def test_second_interrupt_does_not_wait_for_a_reader(launcher: Launcher) -> None:
    process = launcher.start("-np", "2", "--grace-seconds", "3600", "bash", "-c", "trap '' INT; yes")
    # Before that a rank does not ignore the signal. No process reads its output, so it soon blocks.
    assert wait_until(lambda: len(launcher.named("yes")) == 2)
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert process.stderr.readline() == "horovodrun: got SIGINT; ending the job\n"
    time.sleep(0.3)  # closer together they count as one
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE) == 130
    assert not launcher.alive()


def test_interrupt_during_the_grace_after_a_failure(launcher: Launcher) -> None:
    script = "if [ $HOROVOD_RANK = 1 ]; then exit 7; fi; sleep 100"
    process = launcher.start("-np", "2", "--grace-seconds", "3600", "bash", "-c", script)
    assert process.stderr
    assert "ended with exit code 7" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE) == 7
    assert not launcher.alive()


def test_ctrl_c_of_a_terminal(launcher: Launcher) -> None:
    """The key signals the whole foreground group; ranks are not in it and get theirs from horovodrun."""
    process = launcher.start("-np", "2", *launcher.python(LISTEN), "SIGINT", process_group=0)
    assert process.stdout
    for _ in range(2):
        assert process.stdout.readline().endswith("ready\n")
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert out.count("received SIGINT") == 2


def test_nohup_is_respected(launcher: Launcher) -> None:
    rank = "echo ready; until [ -e go ]; do sleep 0.01; done"
    script = f"trap '' HUP; exec {launcher.program} -np 1 bash -c '{rank}'"
    process = launcher.start("-c", script, program="bash")
    assert process.stdout
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    (launcher.folder / "go").touch()
    assert process.wait(DEADLINE) == 0


TREES = {
    "ranks": "echo ready; while true; do sleep 100; done",
    "children": "sleep 100 & bash -c 'sleep 100 & sleep 100 & wait' & echo ready; wait",
    "left the group": "setsid bash -c 'sleep 100 & wait' & setsid -f sleep 100; echo ready; wait",
    "deaf": "trap '' INT TERM HUP; bash -c 'sleep 100 & wait' & echo ready; while true; do sleep 0.1; done",
    "empty environment": "env -i sleep 100 & env -i bash -c 'sleep 100 & wait' & echo ready; wait",
}


def processes() -> list[tuple[int, int, int]]:
    """Process, parent and session of all that have not ended, whatever is in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if state != "Z":
            found.append((int(folder.name), int(parent), int(session)))
    return found


@pytest.mark.parametrize("tree", TREES)
def test_nothing_survives_the_launchers_sigkill(launcher: Launcher, tree: str) -> None:
    process = launcher.start("-np", "3", "bash", "-c", TREES[tree])
    assert process.stdout
    for _ in range(3):
        assert process.stdout.readline().endswith("ready\n")
    job = {pid for pid, parent, _ in processes() if parent == process.pid}
    sessions = job | {pid for pid, parent, _ in processes() if parent in job}
    assert len(sessions) >= 4  # the process that runs the job, the ranks, and orphans that it adopted
    process.kill()
    process.wait(DEADLINE)
    assert launcher.none_alive()
    assert wait_until(lambda: not any(session in sessions for _, _, session in processes()))


# Each overwrites its environment as setproctitle does; its children left the group or lost theirs.
UNMARKED = """
import ctypes, os, subprocess
words = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(words[47]), int(words[48])
ctypes.memset(start, 0, end - start)
for command in (["sleep", "100"], ["setsid", "-f", "env", "-i", "sleep", "100"]):
    subprocess.Popen(command)
print("ready", flush=True)
while True:
    os.wait()
    os.system("sleep 100")
"""


def kill_by_command_line(text: str) -> None:
    """As `pkill -9 -f` does."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


@pytest.mark.parametrize("how", ["kill", "pkill -f", "kill the other process"])
@pytest.mark.parametrize("variables", [0, 12])
def test_nothing_survives_whatever_ranks_do_to_their_environment(
    launcher: Launcher, how: str, variables: int
) -> None:
    program = launcher.folder / "horovodrun"
    program.symlink_to(launcher.program)
    process = launcher.start(
        "-np", "3", *launcher.python(UNMARKED), program=str(program),
        env=launcher.environment(**{f"LONG{i}": "x" * 100_000 for i in range(variables)}),
    )  # fmt: skip
    assert process.stdout
    for _ in range(3):
        assert process.stdout.readline().endswith("ready\n")
    assert wait_until(lambda: len(launcher.inside()) >= 3 * 3 + 2)
    if how == "kill":
        process.kill()
    elif how == "pkill -f":
        kill_by_command_line(str(program))
    else:
        os.kill(launcher.named("hvd-job")[0], signal.SIGKILL)
    assert process.wait(DEADLINE) == (137 if how == "kill the other process" else -signal.SIGKILL)
    assert wait_until(lambda: not launcher.inside()), launcher.inside()


def test_sigkill_right_after_the_start(launcher: Launcher) -> None:
    """The launcher dies at any point of its start."""
    for delay in range(12):
        process = launcher.start("-np", "8", "bash", "-c", "sleep 100 & wait")
        time.sleep(delay * 0.001)
        process.kill()
        process.wait(DEADLINE)
        assert launcher.none_alive()


def test_a_job_inside_a_job(launcher: Launcher) -> None:
    inner = [launcher.program, "-np", "2", "bash", "-c", "echo ready; sleep 100 & wait"]
    process = launcher.start("-np", "2", *inner)
    assert process.stdout
    for _ in range(4):
        assert process.stdout.readline().endswith("ready\n")
    process.kill()
    process.wait(DEADLINE)
    assert launcher.none_alive()


def test_the_job_ends_with_its_parent(launcher: Launcher) -> None:
    words = [launcher.program, "--end-with-parent", "$$", "-np", "2", *launcher.python(LISTEN), "SIGTERM"]
    shell = launcher.start("-c", " ".join(words) + " & wait", program="/bin/sh")
    assert shell.stdout
    for _ in range(2):
        assert shell.stdout.readline().endswith("ready\n")
    shell.kill()
    assert launcher.none_alive()


def test_a_parent_that_ended_before(launcher: Launcher) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait(DEADLINE)
    result = launcher.run("--end-with-parent", str(ended.pid), "-np", "1", "true")
    assert result.returncode == 1
    assert f"process {ended.pid} has ended, or is no parent" in result.stderr


def ignore_and_block() -> None:
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def test_signals_that_the_parent_ignores_and_blocks(launcher: Launcher) -> None:
    result = launcher.run("-np", "2", "bash", "-c", "exit 7", preexec_fn=ignore_and_block)
    assert result.returncode == 7, result.stderr
    process = launcher.start("-np", "2", "sleep", "100", preexec_fn=ignore_and_block)
    assert wait_until(lambda: len(launcher.alive()) == 5)
    process.kill()
    process.wait(DEADLINE)
    assert launcher.none_alive()


def test_what_a_script_started_before_lives_on(launcher: Launcher) -> None:
    words = f"{launcher.program} -np 1 bash -c 'echo ready; sleep 100'"
    process = launcher.start("-c", f"sleep 60 & echo $!; exec {words}", program="bash")
    assert process.stdout
    helper = int(process.stdout.readline())
    assert process.stdout.readline().endswith("ready\n")
    os.kill(launcher.named("hvd-job")[0], 9)
    assert process.wait(DEADLINE) == 137
    assert process.stderr and "hvd-job" in process.stderr.readline()
    assert wait_until(lambda: launcher.alive() == [helper])
