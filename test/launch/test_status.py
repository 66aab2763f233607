"""horovodrun --status beside a job: it names the late rank, whatever that does, and asks nobody."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys

import pytest
from conftest import DEADLINE, Launcher, environment_of, frame_kinds, wait_until

# Rank 1 does something else than the others, for ever.
PROGRAM = """
import os, signal, sys, time
import numpy as np

def late():
    what = sys.argv[1]
    if what == "sleep":
        time.sleep(3600)
    elif what == "loop":
        while True:
            pass
    elif what == "holds the lock":
        import ctypes
        ctypes.PyDLL(None).sleep(3600)
    elif what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "branch":
        hvd.allreduce(value, name="validation")

if sys.argv[1] == "init" and os.environ["HOROVOD_RANK"] == "1":
    time.sleep(3600)
import horovod as hvd
hvd.init()
value = np.ones(3, np.float32)
for step in range(20):
    for layer in range(3):
        hvd.allreduce(value, name=f"layer.{layer}")
if hvd.rank() == 1:
    late()
hvd.allreduce(value, name="loss")
"""

STEPS = """
import time
import numpy as np
import horovod as hvd
hvd.init()
for step in range(500, 520):
    hvd.allreduce(np.ones(3, np.float32), name="gradient")
    hvd.step(samples=4, step=step)
if hvd.rank() == 1:
    time.sleep(3600)
hvd.allreduce(np.ones(3, np.float32), name="gradient")
"""


def status(launcher: Launcher, *words: str) -> subprocess.CompletedProcess[str]:
    return launcher.run("--status", *words, env=launcher.environment(), seconds=30)


def job_of(launcher: Launcher) -> str:
    """The id of the job that the test has started; other jobs of this user may run beside it."""
    for process in launcher.alive():
        for entry in environment_of(process):
            if entry.startswith(b"HOROVOD_JOB="):
                return entry.split(b"=")[1].decode()
    return ""


def status_until(launcher: Launcher, pattern: str, code: int, *words: str) -> str:
    """What --status says of the test's job, once it says that."""
    last = [""]

    def says() -> bool:
        job = job_of(launcher)
        if not job:
            return False
        result = status(launcher, job, *words)
        last[0] = result.stdout + result.stderr
        return re.search(pattern, result.stdout) is not None and result.returncode == code

    assert wait_until(says), last[0]
    return last[0]


@pytest.mark.parametrize(
    ("what", "does"),
    [
        ("sleep", "sleeps"),
        ("loop", "computes"),
        ("holds the lock", "sleeps, in C code that keeps Python's lock"),
    ],
)
def test_late_rank(launcher: Launcher, what: str, does: str) -> None:
    launcher.start("-np", "3", *launcher.python(PROGRAM), what)
    text = status_until(
        launcher,
        rf"^rank 1 {does}: \S+\.py:\d+ in late: .*; ranks 0, 2 wait for it in allreduce\.loss, for \d+ s\n",
        3,
    )
    assert re.search(
        r"^job \w+ \([0-9a-f]{8}\)  3 ranks on host \S+  up \S+ \w+  step 20, none for ", text, re.MULTILINE
    )
    assert re.search(r"^waiting  1 request for rank 1: allreduce\.loss \(", text, re.MULTILINE)
    rows = [line for line in text.splitlines() if line.endswith(" <- late")]
    assert len(rows) == 1
    assert rows[0].startswith("1 ")
    assert re.search(r"^0, 2 .* GB  waits in allreduce\.loss$", text, re.MULTILINE)


def test_stopped_rank(launcher: Launcher) -> None:
    launcher.start("-np", "3", *launcher.python(PROGRAM), "stopped")
    text = status_until(launcher, r"is stopped, .* 2 ranks wait for it in allreduce\.loss\n", 4)
    found = re.match(
        r"rank 1 \(pid (\d+)\) is stopped, by SIGSTOP or a debugger; kill -CONT (\d+) lets", text
    )
    assert found
    assert found[1] == found[2]
    os.kill(int(found[1]), signal.SIGCONT)
    assert launcher.none_alive()


def test_branches(launcher: Launcher) -> None:
    launcher.start("-np", "3", *launcher.python(PROGRAM), "branch")
    status_until(
        launcher,
        r"^ranks 0, 2 wait in allreduce\.loss \(\S+\.py:30\), but rank 1 in allreduce\.validation "
        r"\(\S+\.py:18\): "
        r"the programs took different branches\n",
        3,
    )


def test_init(launcher: Launcher) -> None:
    launcher.start("-np", "3", *launcher.python(PROGRAM), "init")
    status_until(launcher, r"^ranks 0, 2 wait in init for rank 1, which has not got there\n", 3)


def test_process_that_has_closed_its_page(launcher: Launcher) -> None:
    program = 'import horovod, os; horovod.init(); os.execvp("sleep", ["sleep", "3600"])'
    launcher.start("-np", "1", *launcher.python(program))
    assert wait_until(lambda: launcher.named("sleep") != [])
    text = status_until(launcher, r"^no rank has used Horovod yet \(started \d+ s ago\)\n", 0)
    assert re.search(r"^0 .* GB  sleeps in its own program$", text, re.MULTILINE)


def test_processes_that_are_no_job(launcher: Launcher) -> None:
    program = "import horovod, time; horovod.init(); time.sleep(3600)"
    processes = [launcher.start(launcher.script(program), program=sys.executable) for _ in range(2)]

    def both_are_shown() -> bool:
        text = status(launcher).stdout
        return all(f"job process-{process.pid}  1 rank on host" in text for process in processes)

    assert wait_until(both_are_shown)


def test_page_of_another_version(launcher: Launcher) -> None:
    page = os.memfd_create("horovod")
    os.ftruncate(page, 1 << 20)
    os.pwrite(page, b"hvd page" + (99).to_bytes(4, sys.byteorder), 0)
    result = status(launcher, "no-such-job")
    os.close(page)
    assert result.returncode == 1
    assert "the page of a rank has layout 99, this program reads " in result.stderr


def test_no_job(launcher: Launcher) -> None:
    result = status(launcher, "no-such-job")
    assert result.returncode == 1
    assert result.stderr.endswith("horovodrun: no job no-such-job of this user runs on this host\n")
    assert result.stdout == ""


def test_json(launcher: Launcher) -> None:
    launcher.start("-np", "3", *launcher.python(PROGRAM), "sleep")
    status_until(launcher, r"wait for it in allreduce\.loss", 3)
    job = job_of(launcher)
    result = status(launcher, job[:9], "--json")
    found = json.loads(result.stdout)
    assert result.returncode == found["verdict"]["exit"] == 3
    assert found["job"]["id"] == job
    assert found["job"]["ranks"] == found["job"]["size"] == 3
    assert found["job"]["steps"] == 20
    assert [(each["tensor"], each["waits"], each["missing"]) for each in found["waiting"]] == [
        ("allreduce.loss", [0, 2], [1])
    ]
    assert [rank["state"] for rank in found["ranks"]] == ["waits", "program", "waits"]
    assert found["ranks"][1]["pid"] in launcher.alive()
    assert found["ranks"][1]["counters"]["allreduce"]["succeeded"] == 60
    assert found["hosts"] == [
        {"name": socket.gethostname(), "ranks": 3, "answers": True, "silent_seconds": 0.0}
    ]


def test_steps_that_the_program_reports(launcher: Launcher) -> None:
    launcher.start("-np", "2", *launcher.python(STEPS))
    status_until(launcher, r"  step 519, none for \S+ \w+ \(median step \S+ m?s\)\n", 3)
    found = json.loads(status(launcher, job_of(launcher), "--json").stdout)["job"]
    assert (found["steps"], found["step"], found["samples"]) == (20, 519, 2 * 20 * 4)
    assert found["last_step_seconds"] > found["step_seconds"] > 0
    assert found["steps_per_second"] == pytest.approx(1 / found["step_seconds"], rel=1e-3)


def test_watch(launcher: Launcher) -> None:
    job = launcher.start("-np", "3", *launcher.python(PROGRAM), "sleep")
    status_until(launcher, r"wait for it in allreduce\.loss", 3)
    watch = launcher.start("--status", "--watch", "0.2", job_of(launcher))
    assert watch.stdout
    lines: list[str] = []
    while sum(line.startswith("rank 1 sleeps: ") for line in lines) < 3:
        lines.append(watch.stdout.readline())
        assert lines[-1], lines
    assert re.match(r"\d\d:\d\d:\d\d\n", lines[0])
    watch.send_signal(signal.SIGSTOP)  # otherwise a look may show ranks that are about to end
    job.kill()
    assert wait_until(lambda: not job_of(launcher))
    watch.send_signal(signal.SIGCONT)
    _, errors = watch.communicate(timeout=DEADLINE)
    assert watch.returncode == 3, "the last verdict"
    assert errors.endswith("horovodrun: no such job runs any longer\n")


def test_question_by_a_signal(launcher: Launcher) -> None:
    path = launcher.folder / "stderr"
    with path.open("w") as file:
        job = launcher.start("-np", "3", *launcher.python(PROGRAM), "sleep", stderr=file)
    status_until(launcher, r"wait for it in allreduce\.loss", 3)
    said = "ranks 0, 2 wait for it in allreduce.loss, for"

    def answers() -> list[str]:
        """The rows of rank 1 so far, after one more question."""
        before = path.read_text().count(said)
        job.send_signal(signal.SIGQUIT)
        assert wait_until(lambda: path.read_text().count(said) > before), path.read_text()
        return re.findall(r"^1 .* GB  sleeps \S+\.py:\d+ +<- late$", path.read_text(), re.MULTILINE)

    assert wait_until(lambda: len(answers()) >= 2), path.read_text()  # a busy rank may answer too late
    status_until(launcher, r"wait for it in allreduce\.loss", 3)
    assert job.poll() is None, "the job goes on"


def test_launcher_that_is_stopped(launcher: Launcher) -> None:
    launcher.start("-np", "3", *launcher.python(PROGRAM), "sleep")
    status_until(launcher, r"(?m)^job \w+ \(\w{8}\)  3 ranks on host ", 3)
    job, (process,) = job_of(launcher), launcher.named("hvd-job")
    os.kill(process, signal.SIGSTOP)
    result = status(launcher, job)
    os.kill(process, signal.SIGCONT)
    assert result.returncode == 3
    assert result.stderr == (
        f"horovodrun: the launcher of job {job[:8]} (pid {process}) was asked in vain: it does not answer; "
        "of its ranks only those on this host can be shown, and with -H those on other ones\n"
    )
    assert re.search(rf"^job {job[:8]}  3 ranks on host ", result.stdout, re.MULTILINE)


class Asker:
    """A connection to a launcher as that of --status."""

    def __init__(self, job: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE)
        address = f"\0horovod/{os.geteuid()}/{job}"
        # The launcher listens once its first rank has started.
        assert wait_until(lambda: self.socket.connect_ex(address) == 0, DEADLINE)

    def send(self, kind: str, body: bytes) -> None:
        frame = bytes([frame_kinds()[kind]]) + body
        self.socket.sendall(struct.pack("=I", len(frame)) + frame)

    def receive(self) -> list[int]:
        """The kinds of all frames up to the end of the connection, or the last one."""
        kinds, last = [], (frame_kinds()["FRAME_LOOKED"], frame_kinds()["FRAME_REFUSED"])
        with self.socket.makefile("rb") as file:
            while header := file.read(4):
                kinds.append(file.read(*struct.unpack("=I", header))[0])
                if kinds[-1] in last:
                    break
        return kinds


def text(words: str) -> bytes:
    return struct.pack("=I", len(words)) + words.encode()


def test_connections_to_a_launcher(launcher: Launcher) -> None:
    launcher.start("-np", "2", *launcher.python("import time; time.sleep(3600)"))
    assert wait_until(lambda: job_of(launcher) != "")
    job, kinds = job_of(launcher), frame_kinds()
    own = launcher.run("--version").stdout.strip()

    asker = Asker(job)
    asker.send("FRAME_ASK", text(own) + b"\0")
    received, view = kinds["FRAME_RECEIVED"], kinds["FRAME_JOB_VIEW"]
    assert asker.receive() == [received, view, *[kinds["FRAME_RANK_VIEW"]] * 2, kinds["FRAME_LOOKED"]]

    asker = Asker(job)
    asker.send("FRAME_ASK", text("0.9") + b"\0")
    assert asker.receive() == [received, kinds["FRAME_REFUSED"]]

    for wrong in (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\5\0\0\0hello"):
        asker = Asker(job)
        asker.socket.sendall(wrong)
        assert asker.receive() == []

    silent = [Asker(job) for _ in range(8)]
    assert Asker(job).receive() == [], "there are too many"
    for each in silent:
        each.socket.close()
    status_until(launcher, r"(?m)^job \w+ \(\w{8}\)  2 ranks on host ", 0)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--json", "true"], "--json, --stacks and --watch need --status"),
        (["--watch", "5", "true"], "--json, --stacks and --watch need --status"),
        (["--status", "a61c", "--json", "b72d"], "--status takes one job, not b72d as well"),
        (["--status", "-H", "a", "--timeline", "x"], "--timeline does not reach the hosts of -H"),
        (["--status", "--watch", "0"], "--watch=0 must be a number from 0.1 to 86400"),
        (["--status", "--watch=soon"], "--watch=soon must be a number from 0.1 to 86400"),
    ],
)
def test_wrong_words(launcher: Launcher, words: list[str], error: str) -> None:
    result = launcher.run(*words)
    assert result.returncode == 2
    assert result.stderr.startswith(f"horovodrun: {error}")
