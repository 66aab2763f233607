"""Why a rank failed, as data: for a starter written in Python, for horovodrun, and for horovod.run."""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import DEADLINE, Launcher, OnHosts
from virtual_hosts import wait_until

import horovod
from horovod import _core
from horovod.common.exceptions import HorovodInternalError, JobFailedError
from horovod.common.faults import PREFIX, Fault, read_fault
from horovod.runner.functions import pickled, run_pickled

HOSTS = ("a", "b")
RANK = """
import os, signal, sys
import numpy as np, horovod as hvd

def step():
    if hvd.rank() == 1:
        {action}
    while True:
        hvd.allreduce(np.ones(1), name="x")

hvd.init()
hvd.barrier()
step()
"""
ACTIONS = {
    "exception": "raise KeyError('the one')",
    "_exit": "os._exit(3)",
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
    "leave": "sys.exit(0)",
}


class ByHand:
    """Starts processes by hand, each with a slot, which keep it over epochs."""

    def __init__(self, launcher: Launcher, secret: str) -> None:
        self.rendezvous = _core.Rendezvous("127.0.0.1", secret)
        self.launcher, self.secret, self.job = launcher, secret, "by-hand"

    def assign(self, epoch: int, slots: list[str]) -> None:
        self.rendezvous.assign(self.job, epoch, [(slot, rank, "here") for rank, slot in enumerate(slots)])

    def start(self, slot: str, epoch: int, source: str, **options: Any) -> subprocess.Popen[str]:
        env = self.launcher.environment(
            HOROVOD_RENDEZVOUS=f"127.0.0.1:{self.rendezvous.port}", HOROVOD_SECRET=self.secret,
            HOROVOD_JOB=self.job, HOROVOD_SLOT=slot, HOROVOD_EPOCH=str(epoch),
        )  # fmt: skip
        return self.launcher.start("-c", source, program=sys.executable, env=env, **options)

    def faults(self, epoch: int, count: int) -> dict[int, Fault]:
        """The records of the first ranks that publish one."""
        found: dict[int, Fault] = {}
        with self.rendezvous.watch(self.job, epoch, PREFIX) as watch:
            while len(found) < count:
                entry = watch.next(DEADLINE)
                assert entry, f"only {found}"
                fault = read_fault(entry[1])
                assert entry[0] == f"{PREFIX}{fault.rank}" and fault.rank is not None
                found[fault.rank] = fault
        return found


@pytest.fixture
def by_hand(launcher: Launcher) -> Iterator[ByHand]:
    made = ByHand(launcher, secrets.token_hex(8))
    yield made
    made.rendezvous.close()


@pytest.mark.parametrize("kind", ACTIONS)
def test_two_epochs_and_a_fault(by_hand: ByHand, kind: str) -> None:
    """The first epoch ends by a fault, the second one without the rank that failed."""
    source = RANK.format(action=ACTIONS[kind])
    by_hand.assign(4, ["a", "b", "c"])
    ranks = [by_hand.start(slot, 4, source, stderr=subprocess.DEVNULL) for slot in "abc"]
    found = by_hand.faults(4, 2)
    [rank.wait(DEADLINE) for rank in ranks]
    found |= by_hand.faults(4, 3 if kind == "exception" else 2)
    if kind == "exception":
        own = found.pop(1)
        assert (own.exception, own.function, own.code, own.cause) == (
            "KeyError: 'the one'",
            "step",
            "",
            "exception",
        )
        assert own.file == "<string>" and own.line == 7
    cause = "left" if kind in ("exception", "leave") else "connection"
    assert {(fault.lost_rank, fault.cause) for fault in found.values()} == {(1, cause)}, found
    assert all(
        fault.exception.startswith("horovod.common.exceptions.HorovodInternalError: ")
        for fault in found.values()
    )
    assert all(fault.function == "step" for fault in found.values())
    by_hand.assign(5, ["a", "c"])
    again = [
        by_hand.start(slot, 5, "import horovod as hvd; hvd.init(); print(hvd.rank(), hvd.size())")
        for slot in "ac"
    ]
    assert [process.communicate(timeout=DEADLINE)[0] for process in again] == ["0 2\n", "1 2\n"]


# Rank 1 has raised an exception, and ends after it has lost rank 0.
SLOW_END = """
import os, sys, threading
import numpy as np, horovod as hvd
from horovod.common.exceptions import HorovodInternalError

def lose():
    try:
        hvd.allreduce(np.ones(1), name="x")
    except HorovodInternalError:
        pass

hvd.init()
hvd.barrier()
if hvd.rank() == 0:
    sys.stdin.read()
    os._exit(3)
threading.Thread(target=lose).start()
raise KeyError("the one")
"""


def test_an_exception_stays_when_others_are_lost_later(by_hand: ByHand) -> None:
    by_hand.assign(0, ["a", "b"])
    ranks = [
        by_hand.start(slot, 0, SLOW_END, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) for slot in "ab"
    ]
    assert by_hand.faults(0, 1)[1].exception == "KeyError: 'the one'"
    assert [rank.communicate(timeout=DEADLINE) and rank.returncode for rank in ranks] == [3, 1]
    own = by_hand.faults(0, 1)[1]
    assert (own.exception, own.code, own.lost_rank) == ("KeyError: 'the one'", "", -1)


def test_keys_of_the_starter() -> None:
    with (
        _core.Rendezvous("127.0.0.1", "secret") as rendezvous,
        rendezvous.watch("job", 0, "notice/") as watch,
    ):
        assert watch.next(0) is None
        rendezvous.put("job", 0, "notice/hosts", b"b:2")
        assert watch.next(DEADLINE) == ("notice/hosts", b"b:2")
        with pytest.raises(ValueError, match="1 watches of this Rendezvous are open"):
            rendezvous.close()
        rendezvous.assign("job", 1, [("a", 0, None)])
        with pytest.raises(HorovodInternalError, match="epoch 1 has begun") as caught:
            watch.next(DEADLINE)
        assert (caught.value.code, caught.value.cause, caught.value.lost_rank) == ("REFUSED", "none", None)
        assert pickle.loads(pickle.dumps(caught.value)).code == "REFUSED"
    assert rendezvous.port is None
    with pytest.raises(ValueError, match="has been closed"):
        rendezvous.watch("job", 1)
    with pytest.raises(ValueError, match="has been closed"):
        watch.next(0)


def test_what_rendezvous_refuses() -> None:
    with pytest.raises(ValueError, match="needs a secret"):
        _core.Rendezvous(None, "")
    with _core.Rendezvous("127.0.0.1", "secret") as rendezvous:
        with pytest.raises(TypeError, match="a slot is a tuple"):
            rendezvous.assign("job", 0, ["a"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="is no assignment"):
            rendezvous.assign("job", 0, [("a", 7, None)])
        with pytest.raises(ValueError, match="longer than"):
            rendezvous.put("job", 0, "k" * 300, b"")
    with pytest.raises(HorovodInternalError, match="malformed, or of another version"):
        read_fault(b"\x02")


# ---- horovodrun --------------------------------------------------------------------------------------------

SILENT = ["bash", "-c", 'exec "$0" "$@" 2>&-', sys.executable]  # stderr is closed
SAID = {
    "exception": (
        1,
        r"it raised KeyError: 'the one' \(\S+, line 7, in step\) and ended with exit code 1 after \S+ s\n",
    ),
    "_exit": (3, r"it ended with exit code 3 after \S+ s and wrote nothing to stderr\n"),
    "kill": (137, r"it was killed by SIGKILL \(by .*\) after \S+ s and wrote nothing to stderr\n"),
}


@pytest.mark.parametrize("kind", SAID)
def test_what_horovodrun_says_of_silent_ranks(launcher: Launcher, kind: str) -> None:
    code, how = SAID[kind]
    script = launcher.script(RANK.format(action=ACTIONS[kind]))
    result = launcher.run("-np", "3", *SILENT, script)
    assert result.returncode == code
    expected = rf"horovodrun: the first to fail was rank 1 \(pid \d+\) on localhost: {how}$"
    assert re.search(expected, result.stderr), result.stderr
    assert "<stderr>" not in result.stderr


MISMATCH = """
import numpy as np, horovod as hvd
hvd.init()
hvd.allreduce(np.ones(1 + hvd.rank()), name="x")
"""


def test_horovodrun_repeats_no_traceback_of_all_ranks(launcher: Launcher) -> None:
    """Each rank shows its own; horovodrun says once what all of them have raised."""
    result = launcher.run("-np", "4", "--grace-seconds", "40", *launcher.python(MISMATCH))
    assert result.returncode == 1
    assert result.stderr.count("<stderr>: Traceback") == 4
    *_, after, last = result.stderr.splitlines()
    own = [line for line in result.stderr.splitlines() if line.startswith("horovodrun: ")]
    assert own[-2:] == [after, last] and not any("Traceback" in line or "File" in line for line in own)
    assert re.fullmatch(
        r"horovodrun: after it: (ranks? [-\d]+ raised the same and ended with exit code 1(, |$)){1,2}", after
    )
    assert 'HorovodInternalError: allreduce "x": the ranks disagree on the shape' in last
    assert re.search(r"\(\S+, line 4, in <module>\) and ended with exit code 1 after \S+ s$", last)


def test_what_horovodrun_says_of_a_silent_job_of_one_rank(launcher: Launcher) -> None:
    script = launcher.script("import horovod as hvd\nhvd.init()\nraise ValueError('alone')")
    result = launcher.run("-np", "1", *SILENT, script)
    expected = (
        r"rank 0 \(pid \d+\) raised ValueError: alone \(\S+, line 3, in <module>\) and ended with exit code 1"
    )
    assert re.search(expected, result.stderr), result.stderr


def test_what_horovodrun_says_of_a_lost_host(launcher: Launcher) -> None:
    """The agent of the second host dies, and its rank with it."""
    script = launcher.script(RANK.format(action="os.kill(os.getppid(), signal.SIGKILL)"))
    result = launcher.run(*launcher.agents(), "-H", "b:1,c:1", *SILENT, script)
    assert result.returncode == 1
    assert "horovodrun: lost host c with rank 1: its connection has ended" in result.stderr


# Rank 1 is a shell, whose only child leaves the job; rank 0 ends because of that before the shell does.
CHILD = """
import os, sys
import numpy as np, horovod as hvd
hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    os._exit(0) if sys.argv[1] == "lost" else sys.exit(0)
os.replace("pid", "died") if open("pid", "w").write(str(os.getpid())) else None
while True:
    hvd.allreduce(np.ones(1), name="x")
"""


@pytest.mark.parametrize(
    ("how", "late", "code", "text"),
    [
        ("lost", "exit 5", 5, "the first to fail was rank 1 .* ended with exit code 5"),
        ("left", "kill -KILL $$", 137, "the first to fail was rank 1 .* was killed by SIGKILL"),
        ("lost", "exit 0", 1, "the job failed after .* s: lost rank 1 "),
        ("left", "exit 0", 1, "the job failed after .* s: rank 1 has left the job"),
    ],
)
def test_the_first_cause_counts(launcher: Launcher, how: str, late: str, code: int, text: str) -> None:
    script = launcher.script(CHILD)
    see = "until [ -e died ] && ! kill -0 $(cat died) 2>/dev/null; do sleep 0.01; done"
    shell = f'if [ $HOROVOD_RANK = 1 ]; then "$@"; {see}; {late}; else exec "$@" 2>&-; fi'
    result = launcher.run(
        "-np", "2", "--grace-seconds", "20", "bash", "-c", shell, "x", sys.executable, script, how
    )
    assert result.returncode == code, result.stderr
    assert re.search(f"horovodrun: {text}", result.stderr), result.stderr


# ---- horovod.run -------------------------------------------------------------------------------------------


def fail_in_silence(kind: str) -> None:
    import numpy as np

    import horovod as hvd

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 1:
        if kind == "exception":
            raise KeyError("the one")
        if kind == "_exit":
            os._exit(3)
        os.kill(os.getppid() if kind == "host" else os.getpid(), signal.SIGKILL)
    while True:
        hvd.allreduce(np.ones(1), name="x")


@pytest.mark.parametrize(
    ("kind", "cause", "code"), [("exception", "exception", 1), ("_exit", "exit", 3), ("kill", "signal", 137)]
)
def test_what_horovod_run_raises(kind: str, cause: str, code: int) -> None:
    with pytest.raises(JobFailedError) as caught:
        horovod.run(fail_in_silence, (kind,), np=3)
    fault, others = caught.value.fault, caught.value.faults
    assert fault and others[1] == fault and caught.value.exit_code == code
    assert (fault.rank, fault.host, fault.cause, fault.exit_code) == (1, "localhost", cause, code)
    assert fault.signal == (signal.SIGKILL if kind == "kill" else 0)
    if kind == "exception":
        assert (fault.exception, fault.function) == ("KeyError: 'the one'", "fail_in_silence")
        assert fault.file == __file__ and isinstance(caught.value.__cause__, KeyError)
    for rank in (0, 2):
        assert others[rank].lost_rank == 1 and others[rank].text
        assert others[rank].exception.startswith("horovod.common.exceptions.HorovodInternalError: ")


def test_what_horovod_run_raises_for_a_lost_host(launcher: Launcher) -> None:
    options = [*launcher.agents(), "-H", "b:1,c:1"]
    with pytest.raises(JobFailedError) as caught:
        run_pickled(pickled(fail_in_silence, ("host",), {}), None, options)
    fault = caught.value.fault
    assert fault and (fault.rank, fault.cause, fault.lost_rank, fault.lost_host) == (None, "host", 1, "c")
    assert fault.text.startswith("lost host c: its connection has ended")
    assert caught.value.faults[0].lost_rank == 1


# ---- a host whose network is cut ---------------------------------------------------------------------------

CUT = """
import json, os, sys
import numpy as np, horovod as hvd
from horovod.common.exceptions import JobFailedError

def train():
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    hvd.init()
    while True:
        hvd.allreduce(np.ones(1), name="x")
        if not os.path.exists(f"{hvd.rank()}.step"):
            open(f"{hvd.rank()}.step", "w").close()

if sys.argv[1:]:
    try:
        hvd.run(train, hosts=sys.argv[1])
    except JobFailedError as error:
        print(json.dumps([vars(error.fault), *map(vars, error.faults.values()), error.exit_code]))
else:
    train()
"""


def run_and_cut(on_hosts: OnHosts, *words: str, **options: Any) -> tuple[int, str, str]:
    """Cuts both directions once both ranks are at work. Returns exit code, stdout and stderr."""
    env = on_hosts.launcher.environment(HOROVOD_TIMEOUT_SECONDS="3")
    process = on_hosts.start(*words, env=env, **options)
    steps = [on_hosts.launcher.folder / f"{rank}.step" for rank in range(2)]
    assert wait_until(lambda: all(step.exists() for step in steps))
    pairs = [("a", "b"), ("b", "a")]
    try:
        [on_hosts.hosts.cut(*pair) for pair in pairs]
        out, error = process.communicate(timeout=DEADLINE)
    finally:
        [on_hosts.hosts.mend(*pair) for pair in pairs]
    assert on_hosts.launcher.none_alive()
    return process.returncode, out, error


# The first host has the rendezvous: where that is the lost one, no record arrives, and the launcher's own
# connection shows it.
CUTS = pytest.mark.parametrize(
    ("layout", "rank", "code", "text"),
    [
        ("a:1,b:1", 1, "TIMED_OUT", r"host b \(rank 1\) has not answered for 3 s "),
        ("b:1,a:1", 0, "PEER_LOST", r"lost host b: it has been silent for 3 s$"),
    ],
)


@CUTS
def test_what_horovodrun_says_of_a_host_that_is_cut_off(
    on_hosts: OnHosts, launcher: Launcher, layout: str, rank: int, code: str, text: str
) -> None:
    exit_code, _, error = run_and_cut(on_hosts, "-H", layout, *SILENT, launcher.script(CUT))
    *_, after, last = error.splitlines()
    assert exit_code == 1 and re.match(rf"horovodrun: the job failed after \S+ s: {text}", last), error
    assert after == f"horovodrun: after it: rank {1 - rank} ended with exit code 1"
    assert "<stderr>" not in error and code not in error


@CUTS
def test_what_horovod_run_raises_for_a_host_that_is_cut_off(
    on_hosts: OnHosts, launcher: Launcher, layout: str, rank: int, code: str, text: str
) -> None:
    _, out, error = run_and_cut(on_hosts, launcher.script(CUT), layout, program=sys.executable)
    first, other, exit_code = json.loads(out)
    assert exit_code == 1 and (first["rank"], other["rank"], other["host"]) == (None, 1 - rank, "a"), error
    assert (first["cause"], first["code"]) == ("host", code)
    assert (first["lost_rank"], first["lost_host"]) == (rank, "b")
    assert re.match(text, first["text"])
    if rank:
        assert [other[name] for name in ("cause", "lost_rank", "lost_host")] == ["host", 1, "b"]
