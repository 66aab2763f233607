"""Traces of all ranks: what they hold, also of killed ranks, and where those of failed jobs are kept."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from statistics import quantiles

import pytest
from conftest import Launcher, OnHosts, wait_until
from test_status import job_of
from traces import RankTrace

STEPS, LAYERS = 50, 3
PROGRAM = f"""
import os, sys
import numpy as np
import horovod as hvd

hvd.init()
value = np.ones(3, np.float32)
for step in range({STEPS}):
    handles = [hvd.allreduce_async(value, name=f"layer.{{i}}") for i in range({LAYERS})]
    [hvd.synchronize(each) for each in handles]
    hvd.step(samples=8)
if hvd.rank() != 1:
    waits = hvd.allreduce_async(value, name="waits")
hvd.allreduce(value, name="gate")  # the others have submitted what they wait for
if sys.argv[1] == "killed" and hvd.rank() == 1:
    os.kill(os.getpid(), 9)
if sys.argv[1] == "raises" and hvd.rank() == 1:
    raise KeyError("x")
if hvd.rank() == 1:
    waits = hvd.allreduce_async(value, name="waits")
hvd.synchronize(waits)
"""
LAYERS_OF_ALL = [f"allreduce.layer.{i}" for i in range(LAYERS)]
QUICK = ("--grace-seconds", "20")


def environment(launcher: Launcher, **variables: str) -> dict[str, str]:
    """As a user has it: traces of failed jobs are kept in the home folder, which is that of the test."""
    everything = launcher.environment(HOME=str(launcher.folder), **variables)
    return {name: value for name, value in everything.items() if name != "HOROVOD_FAILURE_TIMELINE"}


def run(
    launcher: Launcher, what: str, *options: str, ranks: int = 3, **variables: str
) -> subprocess.CompletedProcess[str]:
    words = ["-np", str(ranks), *QUICK, *options, *launcher.python(PROGRAM), what]
    return launcher.run(*words, env=environment(launcher, **variables))


def said(result: subprocess.CompletedProcess[str], ranks: str) -> Path:
    """The file that horovodrun has named."""
    pattern = (
        rf"^horovodrun: the last [0-9.]+ m?s of {ranks} ranks are in (\S+) \([0-9.]+ .B\); open it in \S+$"
    )
    found = re.findall(pattern, result.stderr, re.MULTILINE)
    assert len(found) == 1, result.stderr
    return Path(found[0])


def check_steps(trace: RankTrace, rank: int) -> None:
    """All requests of the steps are there, each with its batch, and ended."""
    requests = trace.requests(rank)[: STEPS * LAYERS]
    assert sorted(each.name for each in requests) == sorted(LAYERS_OF_ALL * STEPS)
    for each in requests:
        assert each.arguments["bytes"] == 12
        assert "unfinished" not in each.arguments
        assert each.decided is not None
        assert each.submitted <= each.decided <= each.ended


def overlaps(trace: RankTrace, ranks: int, batches: int = STEPS) -> bool:
    """The batches of all ranks run at the same time, except while the system runs other processes."""
    gaps = trace.gaps(list(range(ranks)))
    return len(gaps) >= batches and quantiles(gaps, n=10)[4] <= 50


def check_overlap(trace: RankTrace, ranks: int) -> None:
    assert overlaps(trace, ranks), trace.gaps(list(range(ranks)))


def test_all_ranks(launcher: Launcher) -> None:
    result = run(launcher, "works", "--timeline-filename", "t.json", "--timeline-ranks", "all")
    assert result.returncode == 0, result.stderr
    assert said(result, "3") == Path("t.json")
    trace = RankTrace(launcher.folder / "t.json")
    assert [trace.names[pid] for pid in sorted(trace.names)] == [
        f"rank {i} (host {socket.gethostname()})" for i in range(3)
    ]
    for rank in range(3):
        check_steps(trace, rank)
        assert {each.name for each in trace.requests(rank)[-2:]} == {"allreduce.gate", "allreduce.waits"}
        assert trace.steps[rank] == [f"step {i}" for i in range(2, STEPS + 1)]  # the first has no begin
    assert trace.ends == {}
    check_overlap(trace, 3)
    requests = 3 * (STEPS * LAYERS + 2)
    assert trace.bytes / requests < 260
    assert trace.whole["otherData"]["start_time_since_epoch_in_micros"] > 1.7e15


def test_by_a_file_and_a_variable(launcher: Launcher) -> None:
    (launcher.folder / "run.yaml").write_text("timeline: {filename: t.json, ranks: all}\n")
    assert run(launcher, "works", "--config-file", "run.yaml").returncode == 0
    check_steps(RankTrace(launcher.folder / "t.json"), 1)
    result = run(launcher, "works", HOROVOD_TIMELINE="u.json", HOROVOD_TIMELINE_RANKS="all")
    check_steps(RankTrace(launcher.folder / "u.json"), 2)
    assert said(result, "3") == Path("u.json")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--timeline-ranks", "all"), "--timeline-ranks all needs the name of a file: --timeline-filename F"),
        (
            ("--timeline-filename", "DYNAMIC", "--timeline-ranks", "all"),
            "--timeline-ranks all needs the name of a file: --timeline-filename F",
        ),
        (
            ("--timeline-ranks", "1"),
            "--timeline-ranks 1: it is '0' (rank 0 writes all that happens) or 'all'",
        ),
    ],
)
def test_refused(launcher: Launcher, words: tuple[str, ...], text: str) -> None:
    result = run(launcher, "works", *words)
    assert result.returncode == 2
    assert text in result.stderr


def test_a_file_that_cannot_be_made(launcher: Launcher) -> None:
    result = run(launcher, "works", "--timeline-filename", "missing/t.json", "--timeline-ranks", "all")
    assert result.returncode == 1
    text = "can't open the timeline file missing/t.json: No such file or directory"
    assert result.stderr == f"horovodrun: {text}\n"


def test_without_the_launcher(launcher: Launcher) -> None:
    """Rank 0 then writes its own timeline, and says so."""
    variables = launcher.environment(HOROVOD_TIMELINE="t.json", HOROVOD_TIMELINE_RANKS="all")
    result = launcher.run(
        *launcher.python(PROGRAM)[1:], "works", program=launcher.python("")[0], env=variables
    )
    assert result.returncode == 0, result.stderr
    assert "t.json gets the timeline of rank 0 only" in result.stderr
    assert '"name":"ALLREDUCE"' in (launcher.folder / "t.json").read_text()


# ---- failed jobs


def test_a_rank_that_was_killed(launcher: Launcher) -> None:
    """Its last events are in the trace."""
    result = run(launcher, "killed")
    assert result.returncode == 137
    path = said(result, "3")
    assert path.parent == launcher.folder / ".horovod" / "failures"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    trace = RankTrace(path)
    for rank in range(3):
        check_steps(trace, rank)
    last = trace.requests(1)[-1]
    assert last.name == "allreduce.gate"
    assert len(trace.requests(1)) == STEPS * LAYERS + 1
    assert trace.ends[1][0] == "was killed by SIGKILL"
    assert trace.ends[1][1] >= last.ended
    for rank in (0, 2):
        waits = next(each for each in trace.requests(rank) if each.name == "allreduce.waits")
        assert waits.decided is None
        assert waits.arguments["error"] == "HVD_PEER_LOST"
    assert result.stderr.index("the first to fail was rank 1") < result.stderr.index(str(path))


def test_a_rank_that_raises(launcher: Launcher) -> None:
    folder = launcher.folder / "here" / "and there"
    result = run(launcher, "raises", "--failure-timeline", str(folder))
    assert result.returncode == 1
    files = list(folder.iterdir())
    assert len(files) == 1
    assert f" are in {files[0]} (" in result.stderr
    trace = RankTrace(files[0])
    assert trace.ends[1][0] == "ended with exit code 1"
    check_steps(trace, 1)


def test_turned_off(launcher: Launcher) -> None:
    result = run(launcher, "killed", "--failure-timeline", "off")
    assert result.returncode == 137
    assert "perfetto" not in result.stderr
    assert not (launcher.folder / ".horovod").exists()
    assert not (launcher.folder / "off").exists()


@pytest.mark.parametrize(
    "source", ["raise SystemExit(3)", "import horovod; horovod.init(); raise SystemExit(3)"]
)
def test_nothing_to_write(launcher: Launcher, source: str) -> None:
    result = launcher.run("-np", "2", *QUICK, *launcher.python(source), env=environment(launcher))
    assert result.returncode == 3
    assert "perfetto" not in result.stderr
    assert not (launcher.folder / ".horovod").exists()


def test_the_newest_are_kept(launcher: Launcher) -> None:
    folder = launcher.folder / ".horovod" / "failures"
    folder.mkdir(parents=True)
    for i in range(12):
        path = folder / f"horovod-{i:08x}.json"
        path.write_text("{}")
        os.utime(path, (1e9 + 60 * i, 1e9 + 60 * i))
    (folder / "horovod-mine.json").write_text("{}")
    path = said(run(launcher, "killed"), "3")
    kept = {each.name for each in folder.iterdir()}
    assert kept == {f"horovod-{i:08x}.json" for i in range(5, 12)} | {"horovod-mine.json", path.name}


def test_a_folder_that_cannot_be_made(launcher: Launcher) -> None:
    (launcher.folder / "file").write_text("")
    result = run(launcher, "killed", "--failure-timeline", "file/folder")
    assert result.returncode == 137
    assert "can't write what the ranks did last to file/folder: Not a directory" in result.stderr
    (launcher.folder / ".horovod").write_text("")
    temporary = launcher.folder / "temporary"
    temporary.mkdir()
    path = said(run(launcher, "killed", TMPDIR=str(temporary)), "3")
    assert path.parent == temporary / f"horovod-{os.getuid()}"
    check_steps(RankTrace(path), 2)


def test_a_folder_that_somebody_else_has_made(launcher: Launcher) -> None:
    (launcher.folder / ".horovod").write_text("")
    other = launcher.folder / "other"
    other.mkdir()
    link = launcher.folder / f"horovod-{os.getuid()}"
    link.symlink_to(other)
    result = run(launcher, "killed", TMPDIR=str(launcher.folder))
    assert result.returncode == 137
    assert f"can't write what the ranks did last to {link}: " in result.stderr
    assert not list(other.iterdir())


def test_interrupted(launcher: Launcher) -> None:
    """Whoever ends a job by a signal needs no trace of it, unless it was asked for."""
    source = "import numpy as np, horovod as hvd, time\nhvd.init()\n" + (
        "hvd.allreduce(np.ones(3), name='x')\nprint('ready', flush=True)\ntime.sleep(3600)\n"
    )
    for words in ((), ("--timeline-filename", "t.json", "--timeline-ranks", "all")):
        variables = environment(launcher)
        process = launcher.start("-np", "2", *words, *launcher.python(source), env=variables)
        assert process.stdout
        while "ready" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert ("perfetto" in errors) == bool(words)
    assert [each.name for each in RankTrace(launcher.folder / "t.json").requests(0)] == ["allreduce.x"]
    assert not (launcher.folder / ".horovod").exists()


# ---- running jobs

ENDLESS = """
import time
import numpy as np
import horovod as hvd

hvd.init()
value = np.ones(3, np.float32)
while True:
    handles = [hvd.allreduce_async(value, name=f"layer.{i}") for i in range(3)]
    [hvd.synchronize(each) for each in handles]
    hvd.step()
    time.sleep(0.002)
"""


def steps_of_running_job(launcher: Launcher, ranks: int, steps: int, batches: int, *words: str) -> RankTrace:
    """The timeline that --status writes once both first ranks have made enough steps, and so many batches of
    all ranks overlap: those of few steps may fall into a moment in which the system runs others."""
    last = ["no job"]

    def written() -> bool:
        job = job_of(launcher)
        if not job:
            return False
        result = launcher.run("--status", job, "--timeline", "s.json", *words)
        last[0] = result.stdout + result.stderr
        if result.returncode == 2:
            return False
        trace = RankTrace(launcher.folder / "s.json")
        enough = len(trace.steps) >= 2 and all(len(each) >= steps for each in trace.steps.values())
        return enough and overlaps(trace, ranks, batches)

    assert wait_until(written), last[0]
    assert re.search(r"^the last \S+ m?s of \d ranks are in s\.json \(", last[0], re.MULTILINE)
    return RankTrace(launcher.folder / "s.json")


@pytest.mark.parametrize(("words", "steps"), [((), 5), (("--steps", "3"), 3)])
def test_of_a_running_job(launcher: Launcher, words: tuple[str, ...], steps: int) -> None:
    launcher.start("-np", "2", *launcher.python(ENDLESS))
    trace = steps_of_running_job(launcher, 2, steps, 2, *words)
    for rank in range(2):
        assert len(trace.steps[rank]) == steps
        assert 3 * steps <= len(trace.requests(rank)) <= 3 * steps + 6  # and those of the step that runs


def test_of_a_job_without_a_launcher(launcher: Launcher) -> None:
    process = launcher.start(*launcher.python(ENDLESS)[1:], program=sys.executable)

    def written() -> bool:
        words = ("--status", f"process-{process.pid}", "--timeline", "s.json")
        return launcher.run(*words).returncode == 0

    assert wait_until(written)
    assert list(RankTrace(launcher.folder / "s.json").names) == [1]


def test_several_jobs(launcher: Launcher) -> None:
    for _ in range(2):
        launcher.start("-np", "1", *launcher.python(ENDLESS))
    last, file = [""], launcher.folder / "s.json"

    def refused() -> bool:
        file.unlink(missing_ok=True)  # while only one of them runs, it is written
        result = launcher.run("--status", "--timeline", file.name)
        last[0] = result.stderr
        return result.returncode == 2 and "jobs run, and a timeline is of one: name it" in result.stderr

    assert wait_until(refused), last[0]
    assert not file.exists()


def test_a_timeline_of_a_job_that_has_done_nothing(launcher: Launcher) -> None:
    launcher.start("-np", "2", "sleep", "1000")
    last = [""]

    def refused() -> bool:
        result = launcher.run("--status", job_of(launcher) or "none", "--timeline", "s.json")
        last[0] = result.stderr
        return "no rank has recorded anything yet, so there is no timeline" in result.stderr

    assert wait_until(refused), last[0]
    assert not (launcher.folder / "s.json").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--timeline", "s.json"),
            "--timeline needs --status; the option for a job that starts is --timeline-filename",
        ),
        (("--status", "--steps", "3"), "--steps needs --timeline FILE"),
        (("--status", "--timeline", "s.json", "--watch"), "--timeline is written once, and --watch goes on"),
    ],
)
def test_wrong_words(launcher: Launcher, words: tuple[str, ...], text: str) -> None:
    result = launcher.run(*words)
    assert result.returncode == 2
    assert text in result.stderr


# ---- several hosts

NOT_EAGER = ("--eager-threshold", "0")  # data that travel with a decision arrive later, but take no time

APART = """
export HOROVOD_HOST_ID=$1; host=$1; shift
if [ $host = b ]; then exec unshare --time --monotonic 5000 bash -c "$*"; fi
exec bash -c "$*"
"""


def can_shift_clocks() -> bool:
    words = ["unshare", "--time", "--monotonic", "5000", "true"]
    return subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode == 0


@pytest.mark.skipif(not can_shift_clocks(), reason="this system permits no time namespaces")
def test_clocks_of_two_hosts(launcher: Launcher) -> None:
    """The clock of host b is 5000 s ahead; its last events arrive here nevertheless, at the right times."""
    hosts = ("-H", "a:2,b:2", *NOT_EAGER, *launcher.agents(APART))
    result = run(launcher, "killed", *hosts, ranks=4)
    assert result.returncode == 137, result.stderr
    trace = RankTrace(said(result, "4"))
    for rank in range(4):
        check_steps(trace, rank)
        assert trace.names[rank + 1] == f"rank {rank} (host {'aabb'[rank]})"
    check_overlap(trace, 4)


@pytest.mark.skipif(not can_shift_clocks(), reason="this system permits no time namespaces")
def test_of_a_running_job_on_two_hosts(launcher: Launcher) -> None:
    words = ["-H", "a:1,b:2", *NOT_EAGER, *launcher.agents(APART), *launcher.python(ENDLESS)]
    launcher.start(*words)
    # Requests of two steps may run as one batch.
    trace = steps_of_running_job(launcher, 3, 20, 10, "--steps", "20")
    assert [trace.names[rank + 1] for rank in range(3)] == [
        "rank 0 (host a)", "rank 1 (host b)", "rank 2 (host b)"
    ]  # fmt: skip


def test_hosts(on_hosts: OnHosts) -> None:
    launcher = on_hosts.launcher
    words = ["-H", "a:1,b:2", *QUICK, *NOT_EAGER, "--failure-timeline", "traces"]
    result = on_hosts.run(*words, *launcher.python(PROGRAM), "killed")
    assert result.returncode == 137, result.stderr
    said(result, "3")
    [path] = (launcher.folder / "traces").iterdir()
    trace = RankTrace(path)
    for rank in range(3):
        check_steps(trace, rank)
    assert trace.names[2] == "rank 1 (host b)"
    assert trace.ends[1][0] == "was killed by SIGKILL"
    check_overlap(trace, 3)
