"""Elastic jobs: ranks are lost and added, hosts come and go, and how such a job ends."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher
from elastic_job import ENDLESS, PROGRAM, Job, sizes
from virtual_hosts import wait_until


@pytest.fixture
def script(launcher: Launcher) -> Path:
    """A discovery script that prints the file `hosts`, and adds a byte to the file `runs`."""
    (launcher.folder / "hosts").write_text("localhost:2\n")
    path = launcher.folder / "discover"
    path.write_text(f"#!/bin/sh\necho >>{launcher.folder}/runs\ncat {launcher.folder}/hosts\n")
    path.chmod(0o755)
    return path


def test_a_killed_rank_is_replaced(launcher: Launcher) -> None:
    report = launcher.folder / "report.html"
    options = ["-np", "3", "--min-np", "2", "-H", "localhost:3", "--report", str(report)]
    job = Job(launcher, *options, steps=ENDLESS)
    job.wait_for("step 20 with")
    survivors = job.ranks()
    os.kill(survivors.pop(), signal.SIGKILL)
    job.wait_for_sizes(3, 2, 3)
    assert set(survivors) < set(job.ranks())
    text = job.interrupt()
    changed = r"; its ranks changed 2 times \(1 lost or removed, 1 added\), which took \d+\.\d s"
    assert re.search(changed, report.read_text())
    assert re.search(
        r"process \d \(pid \d+\), rank \d of epoch 0, was killed by SIGKILL .*; the others go on", text
    )


def test_the_host_of_a_killed_rank_is_left_out(launcher: Launcher) -> None:
    job = Job(launcher, "-np", "4", "--min-np", "2", "-H", "localhost:2,127.0.0.1:2")
    job.wait_for("step 20 with")
    os.kill(job.ranks()[-1], signal.SIGKILL)
    text = job.finish()
    assert sizes(text) == [4, 2]
    assert "is to end: another process of its host has failed" in text


def test_hosts_come_and_go(launcher: Launcher, script: Path) -> None:
    options = ["-np", "2", "--max-np", "6", "--min-np", "1", "--host-discovery-script", str(script)]
    job = Job(launcher, *options, steps=ENDLESS)
    job.wait_for("step 20 with")
    (launcher.folder / "hosts").write_text("localhost:2\n\n  127.0.0.1 : 2 \n")
    job.wait_for_sizes(2, 4)
    (launcher.folder / "hosts").write_text("127.0.0.1:2\n")
    job.wait_for_sizes(2, 4, 2)
    text = job.interrupt()
    assert "its place was taken away" in text


def test_too_few_slots_end_the_job(launcher: Launcher, script: Path) -> None:
    options = ["-np", "2", "--min-np", "2", "--elastic-timeout", "2"]
    job = Job(launcher, *options, "--host-discovery-script", str(script), steps=ENDLESS)
    job.wait_for("step 20 with")
    (launcher.folder / "hosts").write_text("localhost:1\n")
    runs = launcher.folder / "runs"
    seen = runs.stat().st_size
    assert wait_until(lambda: runs.stat().st_size >= seen + 4, DEADLINE)
    os.kill(job.ranks()[-1], signal.SIGKILL)
    text = job.finish(exit_code=137)
    assert "the job needs 2 slots and has had 1 for 2 s; see --min-np and --elastic-timeout" in text


def test_hosts_that_never_come(launcher: Launcher, script: Path) -> None:
    (launcher.folder / "hosts").write_text("")
    job = Job(
        launcher, "-np", "2", "--host-discovery-script", str(script), HOROVOD_ELASTIC_TIMEOUT="2"
    )  # fmt: skip
    assert "the job needs 2 slots and has had 0 for 2 s" in job.finish(exit_code=75)


def test_a_job_waits_for_its_first_hosts(launcher: Launcher, script: Path) -> None:
    (launcher.folder / "hosts").write_text("")
    job = Job(launcher, "-np", "2", "--host-discovery-script", str(script))
    assert wait_until(lambda: job.process.poll() is None, 1.0)
    (launcher.folder / "hosts").write_text("localhost\n")
    job.wait_for("says no slots; print host:slots, or give --slots-per-host")
    (launcher.folder / "hosts").write_text("localhost:2\n")
    assert sizes(job.finish()) == [2]


def test_the_reset_limit(launcher: Launcher) -> None:
    job = Job(launcher, "-np", "3", "--min-np", "1", "--reset-limit", "0", "-H", "localhost:3", steps=ENDLESS)
    job.wait_for("step 20 with")
    os.kill(job.ranks()[-1], signal.SIGKILL)
    text = job.finish(exit_code=1)
    assert "Horovod was shutdown because number of resets during elastic job exceeded limit: 0" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("exit 3", "ended with exit code 3"),
        ("kill -9 $$", "was killed by SIGKILL"),
        ("/no/such/program", "ended with exit code 127"),
    ],
)
def test_a_script_that_fails_first(launcher: Launcher, content: str, words: str) -> None:
    job = Job(launcher, "-np", "2", "--host-discovery-script", content)
    assert f"the host discovery script '{content}' {words}" in job.finish(exit_code=1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("exit 3", "ended with exit code 3; the hosts that it named last stay"),
        ("echo '@@@ ;;:2'; echo localhost:2", "'@@@ ;;' is no name of a host"),
        ("echo localhost:0; echo localhost:2", "'0' is not a number of slots"),
        ("printf 'local\\0host:2\\n'", "has printed a NUL byte; the hosts that it named last stay"),
        ("head -c 5000000 /dev/zero", "prints more than 4 MB; the hosts that it named last stay"),
    ],
)
def test_a_script_that_fails_later(launcher: Launcher, content: str, words: str) -> None:
    switch = launcher.folder / "switch"
    script = f"if [ -e {switch} ]; then {content}; else echo localhost:2; fi"
    job = Job(launcher, "-np", "2", "--host-discovery-script", script, steps=ENDLESS)
    job.wait_for("step 20 with")
    switch.touch()
    job.wait_for(re.escape(words))
    job.wait_for_steps(20)
    assert sizes(job.interrupt()) == [2]


def test_one_empty_answer_of_the_script(launcher: Launcher) -> None:
    """What one run leaves out stays; what two leave out goes."""
    switch, runs = launcher.folder / "switch", launcher.folder / "runs"
    script = f"echo >>{runs}; echo localhost:1; if ! rm {switch} 2>/dev/null; then echo 127.0.0.1:1; fi"
    job = Job(launcher, "-np", "2", "--min-np", "1", "--host-discovery-script", script, steps=ENDLESS)
    job.wait_for("step 20 with")
    switch.touch()
    assert wait_until(lambda: not switch.exists(), DEADLINE)
    seen = runs.stat().st_size
    assert wait_until(lambda: runs.stat().st_size >= seen + 2, DEADLINE)  # the run after it has ended
    text = job.interrupt()
    assert sizes(text) == [2]
    assert "is to end" not in text


def test_without_a_maximum_the_job_does_not_grow(launcher: Launcher, script: Path) -> None:
    (launcher.folder / "hosts").write_text("localhost:100000\nlocalhost:2147483647\n")
    job = Job(launcher, "-np", "2", "--host-discovery-script", str(script))
    assert sizes(job.finish()) == [2]


def test_a_stopped_rank_is_killed(launcher: Launcher) -> None:
    options = ["-np", "3", "--min-np", "2", "-H", "localhost:3"]
    job = Job(launcher, *options, steps=ENDLESS, HOROVOD_TIMEOUT_SECONDS="3")
    job.wait_for("step 20 with")
    os.kill(job.ranks()[-1], signal.SIGSTOP)
    job.wait_for("step [0-9]+ with 2 ranks")
    text = job.interrupt()
    assert sizes(text)[:2] == [3, 2]
    assert "is to end: it did not come back when all others did" in text


# Rank 0 waits for the next epoch; rank 1 does once there is a file `go`.
WAIT = """
import os, time
from pathlib import Path
from horovod import _core

_core.epoch_open()
slot = int(os.environ["HOROVOD_SLOT"])
Path(f"opened{slot}").touch()
while not Path("go" if slot else "opened1").exists():
    time.sleep(0.01)
if slot == 0:
    assert _core.epoch_wait(0, 0.0, True) is None
    Path("waits").touch()
print(_core.epoch_wait(0, 60.0, True)["state"])
_core.epoch_done()
"""


def test_a_launcher_that_was_stopped_gives_more_time(launcher: Launcher) -> None:
    """Ranks that come back while it is stopped, and beyond the limit for that, are not hung."""
    options = ["-np", "2", "--min-np", "2", "--rejoin-seconds", "3", "-H", "localhost:2"]
    process = launcher.start(*options, *launcher.python(WAIT))
    assert wait_until((launcher.folder / "waits").exists, DEADLINE)
    (own,) = launcher.named("hvd-job")
    os.kill(own, signal.SIGSTOP)
    time.sleep(3.1)
    (launcher.folder / "go").touch()
    os.kill(own, signal.SIGCONT)
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out.count("begins")) == (0, 2), err
    assert "is to end" not in err


def test_the_end_names_processes(launcher: Launcher) -> None:
    """The process that has failed before had the same rank as the last one."""
    options = ["-np", "2", "--min-np", "2", "--failed-slot", "restart:1", "-H", "localhost:2"]
    job = Job(launcher, *options, steps=ENDLESS)
    for number in range(2):
        job.wait_for("step [0-9]+ with", 20 * (number + 1))
        os.kill(job.ranks()[-1], signal.SIGKILL)
        if number == 0:
            job.wait_for("epoch 1 has begun with 2 ranks")
    text = job.finish(exit_code=137)
    assert "slot 1 of localhost has failed 2 times and is no longer used" in text
    assert "the job needs 2 slots, and there are only 1" in text
    assert re.search(r"the first to fail was process \d \(pid \d+\)", text)


def test_even_the_last_host_is_left_out(launcher: Launcher) -> None:
    options = ["-np", "2", "--min-np", "1", "--failed-slot", "drop-host", "-H", "localhost:2"]
    job = Job(launcher, *options, steps=ENDLESS)
    job.wait_for("step 20 with")
    os.kill(job.ranks()[-1], signal.SIGKILL)
    text = job.finish(exit_code=137)
    assert "is to end: another process of its host has failed" in text
    assert "no rank is left that holds the state of the training" in text


def test_ranks_wait_for_a_process_that_starts(launcher: Launcher, script: Path) -> None:
    options = ["-np", "2", "--max-np", "3", "--min-np", "1", "--host-discovery-script", str(script)]
    slow = launcher.folder / "slow"
    slow.write_text(f"#!/bin/sh\n[ $HOROVOD_EPOCH = 0 ] || sleep 3\nexec {PROGRAM} $*\n")
    slow.chmod(0o755)
    job = Job(launcher, *options, program=slow, steps=ENDLESS, HOROVOD_ELASTIC_GROW="now")
    job.wait_for("step 1 with")
    (launcher.folder / "hosts").write_text("localhost:3\n")
    job.wait_for("step [0-9]+ with 3 ranks")
    assert sizes(job.interrupt()) == [2, 3]


def test_ctrl_c_leaves_nothing(launcher: Launcher) -> None:
    script = "sleep 1000 & echo localhost:2"
    job = Job(launcher, "-np", "2", "--host-discovery-script", script, steps=ENDLESS)
    job.wait_for("step 20 with")
    job.process.send_signal(signal.SIGINT)
    job.finish(exit_code=130)


def test_output_is_labelled_by_process(launcher: Launcher) -> None:
    options = ["-np", "2", "--min-np", "1", "--failed-slot", "restart:2", "-H", "localhost:2"]
    job = Job(launcher, *options, pause="40")
    job.wait_for("step 20 with")
    os.kill(job.ranks()[-1], signal.SIGKILL)
    text = job.finish()
    assert sizes(text) == [2, 1, 2]
    assert re.search(r"\[2\]<stdout>: rank 1 of 2", text)


def test_status_shows_the_running_epoch(launcher: Launcher) -> None:
    options = ["-np", "4", "--min-np", "2", "--verbose", "-H", "localhost:2,127.0.0.1:2"]
    job = Job(launcher, *options, steps="100000")
    job.wait_for("step 20 with")
    os.kill(job.ranks()[-1], signal.SIGKILL)
    job.wait_for("with 2 ranks", 5)
    named = re.search(r"job ([0-9a-f]{32}): 4 ranks on localhost:2, 127.0.0.1:2", job.err.read_text())
    assert named
    shown: list[str] = []

    def is_healthy() -> bool:
        result = launcher.run("--status", named[1])
        shown[:] = [result.stdout, result.stderr]
        return result.returncode == 0

    assert wait_until(is_healthy, DEADLINE), shown
    assert "2 ranks" in shown[0]
    assert "epoch 1" in shown[0]
    job.process.send_signal(signal.SIGINT)
    job.finish(exit_code=130)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-np", "2", "--max-np", "4"], "--max-np needs --min-np or --host-discovery-script"),
        (["-np", "2", "--min-np", "3"], "--min-np 3 is more than -np 2"),
        (["-np", "4", "--min-np", "1", "--max-np", "2"], "-np 4 is more than --max-np 2"),
        (["--host-discovery-script", "x"], "how many ranks?"),
        (
            ["-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0", "5"],
            "two whole numbers from 1 to 3600",
        ),
        (["-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "9", "5"], "the smaller one first"),
        (["-np", "2", "--min-np", "1", "--failed-slot", "retry"], "--failed-slot=retry must be"),
        (["-np", "2", "--min-np", "1", "--reset-limit", "-1"], "must be a whole number from 0"),
        (["-np", "2", "--slots-per-host", "1"], "--slots-per-host is for hosts that say no slots"),
        (["-np", "2", "--host-discovery-script", "x", "-H", "a:2"], "takes the place of --hosts"),
        (["-np", "2", "--min-np", "1", "--mpi"], "--min-np: mpirun (--mpi) starts a fixed number of ranks"),
    ],
)
def test_wrong_options_are_refused(launcher: Launcher, options: list[str], words: str) -> None:
    process = launcher.run(*options, "true")
    assert process.returncode == 2
    assert words in process.stderr


@pytest.mark.parametrize(
    ("name", "words"), [("TIMEOUT", "soon must be a whole number"), ("GROW", "soon must be ready or now")]
)
def test_wrong_variables_are_refused(launcher: Launcher, name: str, words: str) -> None:
    environment = launcher.environment(**{f"HOROVOD_ELASTIC_{name}": "soon"})
    process = launcher.run("-np", "2", "--min-np", "1", "true", env=environment)
    assert process.returncode == 2
    assert f"HOROVOD_ELASTIC_{name}={words}" in process.stderr


def test_rows_of_ended_processes_are_released(launcher: Launcher, script: Path) -> None:
    """Processes that fail again and again leave no files in the launcher and the agent, except the last 32 of
    them."""
    seats, kept, rounds = 40, 32, 4
    (launcher.folder / "hosts").write_text("localhost:1\n")
    err = launcher.folder / "err"
    process = launcher.start(
        "-np", "1", "--max-np", str(seats), "--host-discovery-script", str(script),
        "--failed-slot", "restart:1000", "--output-filename", str(launcher.folder / "copies"),
        "sh", "-c", "test $HOROVOD_EPOCH = 0 || exit 3; exec sleep 1000", stderr=err.open("w"),
    )  # fmt: skip
    assert wait_until(lambda: bool(launcher.named("sleep")), DEADLINE)
    jobs = launcher.named("hvd-job")
    assert len(jobs) == 2

    def files() -> int:
        return sum(len(list(Path(f"/proc/{job}/fd").iterdir())) for job in jobs)

    before = files()
    (launcher.folder / "hosts").write_text(f"localhost:{seats}\n")
    enough = rounds * (seats - 1)
    assert wait_until(lambda: err.read_text().count("before it took part") >= enough, DEADLINE)
    assert wait_until(lambda: files() <= before + 3 * kept + 16, DEADLINE), (before, files())
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE) == 130


def test_a_spare_takes_the_place_of_a_killed_rank(launcher: Launcher) -> None:
    """The others change once, and their number stays."""
    options = ["-np", "2", "--min-np", "1", "--spares", "1", "-H", "localhost:3"]
    job = Job(launcher, *options, steps=ENDLESS)
    assert wait_until(lambda: len(job.ranks()) == 3, DEADLINE)
    job.wait_for("step 20 with")
    os.kill(job.ranks()[1], signal.SIGKILL)
    job.wait_for("epoch 1 has begun with 2 ranks")
    job.wait_for_steps(20)
    text = job.interrupt()
    assert sizes(text) == [2]
    assert "epoch 2" not in text


def test_a_rank_that_gets_sigterm_leaves(launcher: Launcher) -> None:
    """It ends with 0 after its step, and its slot stays free."""
    job = Job(launcher, "-np", "3", "--min-np", "2", "-H", "localhost:3")
    job.wait_for("step 20 with")
    os.kill(job.ranks()[-1], signal.SIGTERM)
    text = job.finish()
    assert sizes(text) == [3, 2]
    assert re.search(r"process \d \(pid \d+\) was asked to leave, which it does once the others can", text)
    assert re.search(r"process \d \(pid \d+\) is to end: it was asked to leave", text)
    assert "the others go on" not in text


def test_a_rank_that_is_needed_leaves_at_the_second_sigterm(launcher: Launcher) -> None:
    job = Job(launcher, "-np", "2", "--min-np", "2", "-H", "localhost:2", steps="100000")
    job.wait_for("step 20 with")
    last = job.ranks()[-1]
    os.kill(last, signal.SIGTERM)
    job.wait_for("was asked to leave")
    job.wait_for_steps(40)
    os.kill(last, signal.SIGTERM)
    text = job.finish(exit_code=143)
    assert "was killed by SIGTERM" in text
    assert "the job needs 2 slots, and there are only 1" in text


def test_sigterm_ends_a_job_whose_ranks_would_leave(launcher: Launcher) -> None:
    job = Job(launcher, "-np", "2", "--min-np", "1", "-H", "localhost:2", steps="100000")
    job.wait_for("step 20 with")
    job.process.send_signal(signal.SIGTERM)
    assert "is to end" not in job.finish(exit_code=143)
