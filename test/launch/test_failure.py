"""A rank that fails ends the job, with its own exit code, and horovodrun says which one and why."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest
from conftest import DEADLINE, Launcher, wait_until


def only_rank(rank: int, action: str, others: str = "true") -> list[str]:
    return ["bash", "-c", f"if [ $HOROVOD_RANK = {rank} ]; then {action}; else {others}; fi"]


@pytest.mark.parametrize("code", [1, 3, 255])
def test_exit_code(launcher: Launcher, code: int) -> None:
    result = launcher.run("-np", "3", *only_rank(1, f"exit {code}"))
    assert result.returncode == code
    assert f") ended with exit code {code}; the others get 5 s" in result.stderr
    assert "the first to fail was rank 1 (pid " in result.stderr


@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM"])
def test_signal(launcher: Launcher, name: str) -> None:
    result = launcher.run("-np", "2", *only_rank(1, f"ulimit -c 0; kill -{name} $$"))
    assert result.returncode == 128 + getattr(signal, "SIG" + name)
    assert f"was killed by SIG{name}" in result.stderr
    assert ("memory" in result.stderr) == (name == "KILL")


def test_an_end_that_is_read_late(launcher: Launcher) -> None:
    """The launcher stands still while a rank is killed, and until the others' time to end is over."""
    late = "until [ -e go ]; do sleep 0.01; done; kill -USR1 $$"
    process = launcher.start("-np", "2", "--grace-seconds", "4", *only_rank(0, "exit 3", late))
    assert process.stderr
    assert "ended with exit code 3; the others get 4 s" in process.stderr.readline()
    (own,) = launcher.named("hvd-job")
    os.kill(own, signal.SIGSTOP)
    (launcher.folder / "go").touch()
    assert wait_until(lambda: not launcher.named("bash"))
    time.sleep(4.1)
    os.kill(own, signal.SIGCONT)
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + signal.SIGUSR1
    assert re.search(r"the first to fail was rank 1 \(pid \d+\) on .*: it was killed by SIGUSR1", err)


def test_early_success_is_no_end(launcher: Launcher) -> None:
    late = "until [ -e go ]; do sleep 0.01; done; echo late"
    process = launcher.start("-np", "3", *only_rank(2, late, "echo early"))
    assert process.stdout
    assert "early" in process.stdout.readline() and "early" in process.stdout.readline()
    assert wait_until(lambda: len(launcher.alive()) <= 5)  # horovodrun (three), rank 2 and its `sleep`
    assert process.poll() is None
    (launcher.folder / "go").touch()
    assert process.communicate(timeout=DEADLINE) == ("[2]<stdout>: late\n", "")
    assert process.returncode == 0


def test_a_single_rank(launcher: Launcher) -> None:
    result = launcher.run("-np", "1", "bash", "-c", "echo why >&2; exit 4")
    assert result.returncode == 4
    assert result.stderr.splitlines()[0] == "[0]<stderr>: why"
    assert result.stderr.count("why") == 1
    assert "others" not in result.stderr


def test_last_lines_of_stderr_come_again(launcher: Launcher) -> None:
    noise = "for i in $(seq 1000); do echo noise $i >&2; done"
    result = launcher.run(
        "-np", "3", *only_rank(1, "for i in $(seq 30); do echo line $i >&2; done; exit 7", noise)
    )
    assert result.returncode == 7
    assert result.stderr.splitlines()[-20:] == [f"horovodrun:   line {i}" for i in range(11, 31)]


def test_last_lines_have_no_traceback(launcher: Launcher) -> None:
    """Of a program that ends before there is an engine that could report it; the whole is above."""
    program = "import sys, os; print('a note', file=sys.stderr)\n"
    program += "def f(n): f(n - 1) if n else os.no_such_function()\nf(30)"
    result = launcher.run("-np", "2", *launcher.python(program))
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 2
    *_, verdict, note, last = result.stderr.splitlines()
    assert re.search(r"it ended with exit code 1 after \S+ s; its last lines on stderr:$", verdict)
    assert note == "horovodrun:   a note"
    assert last.startswith("horovodrun:   AttributeError: module 'os' has no attribute 'no_such_function'")


def test_ranks_that_end_alike_are_named_together(launcher: Launcher) -> None:
    others = f"{SEE_IT_DIE}; [ $HOROVOD_RANK = 5 ] && exit 8; exit 9"
    result = launcher.run("-np", "8", *only_rank(3, f"{DIE} 7", others))
    expected = (
        "ranks 0-2 ended with exit code 9, rank 4 ended with exit code 9, rank 5 ended with exit code 8, "
    )
    assert f"horovodrun: after it: {expected}ranks 6-7 ended with exit code 9\n" in result.stderr


def test_no_last_lines(launcher: Launcher) -> None:
    result = launcher.run("-np", "2", *only_rank(1, "exit 7"))
    assert re.search(r"it ended with exit code 7 after \d+\.\d", result.stderr)
    assert result.stderr.endswith("and wrote nothing to stderr\n")


# One rank dies; the others continue when its process is gone, that is, when the launcher has reaped it.
DIE = "echo $$ >pid; mv pid died; exit"
SEE_IT_DIE = "until [ -e died ] && ! kill -0 $(cat died) 2>/dev/null; do sleep 0.01; done"


def test_others_may_end_by_their_own_error(launcher: Launcher) -> None:
    """The others see rank 1's death, as the engine would over a socket, and say so before they end."""
    others = f"{SEE_IT_DIE}; echo 'rank 1 is lost' >&2; exit 9"
    result = launcher.run("-np", "3", *only_rank(1, f"{DIE} 7", others))
    assert result.returncode == 7
    assert result.stderr.count("rank 1 is lost") == 2
    assert "after it: rank 0 ended with exit code 9, rank 2 ended with exit code 9" in result.stderr


def test_others_get_sigterm_after_the_grace(launcher: Launcher) -> None:
    begin = time.monotonic()
    result = launcher.run("-np", "2", "--grace-seconds", "0.5", *only_rank(1, "exit 7", "sleep 100"))
    assert result.returncode == 7
    assert time.monotonic() - begin >= 0.5
    assert "the others get 0.5 s" in result.stderr
    assert "after it: rank 0 was killed by SIGTERM" in result.stderr
    assert not launcher.alive()


def test_a_rank_that_ignores_sigterm_is_killed(launcher: Launcher) -> None:
    ignore = "trap 'echo no, thanks' TERM; touch ready; while true; do sleep 0.05; done"
    fail = "until [ -e ready ]; do sleep 0.01; done; exit 7"
    result = launcher.run("-np", "2", "--grace-seconds", "2", *only_rank(1, fail, ignore))
    assert result.returncode == 7
    assert "[0]<stdout>: no, thanks" in result.stdout
    assert "after it: rank 0 was killed by SIGKILL" in result.stderr
    assert not launcher.alive()


def test_a_stopped_rank_is_killed(launcher: Launcher) -> None:
    fail = "until grep -q 'State:.T' /proc/$(cat ready)/status; do sleep 0.01; done 2>/dev/null; exit 7"
    stop = "echo $$ >pid; mv pid ready; kill -STOP $$"
    result = launcher.run("-np", "2", "--grace-seconds", "0.2", *only_rank(1, fail, stop))
    assert result.returncode == 7
    assert "rank 0 was killed by SIGKILL" in result.stderr


def test_the_first_failure_counts(launcher: Launcher) -> None:
    result = launcher.run("-np", "3", *only_rank(2, f"{DIE} 5", f"{SEE_IT_DIE}; exit 6"))
    assert result.returncode == 5
    assert "the first to fail was rank 2" in result.stderr


@pytest.mark.parametrize(("late", "code"), [("kill -KILL $$", 137), ("exit 5", 6), ("sleep 100", 6)])
def test_a_killed_rank_precedes_others(launcher: Launcher, late: str, code: int) -> None:
    """Rank 0 ends because of rank 1, whose end reaches the launcher later; neither has an engine that says so
    (test_fault_records.py).
    """
    words = only_rank(1, f"{SEE_IT_DIE}; {late}", f"echo 'nothing that says why' >&2; {DIE} 6")
    grace = "0.5" if "sleep" in late else "20"
    result = launcher.run("-np", "2", "--grace-seconds", grace, *words)
    assert result.returncode == code, result.stderr
    if code != 6:
        assert "after it: rank 0 ended with exit code 6" in result.stderr
        assert "the first to fail was rank 1" in result.stderr


def test_a_command_that_is_not_there(launcher: Launcher) -> None:
    result = launcher.run("-np", "4", "no-such-program-anywhere")
    assert result.returncode == 127
    assert (
        result.stderr
        == "horovodrun: can't start rank 0: 'no-such-program-anywhere' was not found; is it on the PATH?\n"
    )


def test_no_such_interpreter(launcher: Launcher) -> None:
    script = launcher.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    result = launcher.run("-np", "1", "./script")
    assert result.returncode == 127
    assert "'./script' needs an interpreter that is not there; see its first line\n" in result.stderr


def test_a_command_that_is_no_program(launcher: Launcher) -> None:
    (launcher.folder / "data").write_text("x")
    result = launcher.run("-np", "4", "./data")
    assert result.returncode == 126
    assert result.stderr == "horovodrun: can't start rank 0: './data': Permission denied\n"


def test_too_few_files_for_all_ranks(launcher: Launcher) -> None:
    script = f"ulimit -n 40; exec {launcher.program} -np 40 --grace-seconds 1 sleep 100"
    result = launcher.run("-c", script, program="bash")
    assert result.returncode != 0
    assert "oo many open files" in result.stderr
    assert not launcher.alive()


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_rank_leaves_behind_is_ended(launcher: Launcher, code: int) -> None:
    result = launcher.run("-np", "2", "bash", "-c", f"sleep 100 & sleep 100 & exit {code}")
    assert result.returncode == code
    assert not launcher.alive()


def test_what_left_its_group_is_ended(launcher: Launcher) -> None:
    """A daemon, even one that holds the output open."""
    result = launcher.run("-np", "2", "bash", "-c", "setsid sleep 100 & setsid -f sleep 100; exit 0")
    assert result.returncode == 0
    assert not launcher.alive()


def test_what_a_rank_leaves_behind_may_finish(launcher: Launcher) -> None:
    until_it_is_reaped = "while kill -0 $$ 2>/dev/null; do sleep 0.01; done"
    result = launcher.run("-np", "2", "bash", "-c", f"({until_it_is_reaped}; echo done) & exit 0")
    assert result.stdout.count("done") == 2
    assert result.stderr == ""  # the orphans were reaped, too
    assert result.returncode == 0


def test_other_programs_of_the_user_live_on(launcher: Launcher) -> None:
    bystander = launcher.start("100", program="sleep")
    assert wait_until(lambda: bystander.pid in launcher.alive())
    assert (
        launcher.run("-np", "2", "--grace-seconds", "0.1", "bash", "-c", "sleep 100 & exit 1").returncode == 1
    )
    assert bystander.poll() is None
    os.kill(bystander.pid, signal.SIGKILL)
