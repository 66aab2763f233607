"""Processes of an elastic job and a starter in Python: reports, news and notices."""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import DEADLINE, Launcher

from horovod import _core
from horovod.common import epochs, leaving
from horovod.common.exceptions import HorovodInternalError

JOB = "epochs"
SURVIVOR = """
import time
import numpy as np, horovod as hvd
from horovod import _core
from horovod.common.exceptions import HorovodInternalError

assert _core.epoch_open() and _core.epoch_open()
hvd.init()
try:
    while True:
        hvd.allreduce(np.ones(1), name="x")
except HorovodInternalError as error:
    lost = error.lost_rank
hvd.shutdown()
assert _core.epoch_wait(0, 0.01) is None
place = _core.epoch_wait(0, 100.0, True, lost)
assert place == {"state": "begins", "epoch": 1, "rank": 0, "size": 1, "reason": ""}, place
_core.init({"epoch": "1"})
assert hvd.size() == 1
while not (notice := _core.epoch_notice(1)):
    time.sleep(0.01)
assert notice == 2 and _core.epoch_notice(0) == 4  # that one is over
hvd.shutdown()
place = _core.epoch_wait(1, 100.0, False)
assert place["state"] == "out" and "host x is bad" in place["reason"], place
_core.epoch_done()
"""
VICTIM = """
import numpy as np, horovod as hvd, os
hvd.init()
hvd.allreduce(np.ones(1), name="x")
os._exit(3)
"""
ALONE = """
from horovod import _core
from horovod.common.exceptions import HorovodInternalError
_core.epoch_open()
try:
    _core.init({})
except HorovodInternalError as error:
    assert error.code == "PEER_LOST", error.code
place = _core.epoch_wait(0, 100.0)
assert place["state"] == "over", place
"""
STARTER = """
import sys, time
from horovod import _core
rendezvous = _core.Rendezvous("127.0.0.1", sys.argv[1])
rendezvous.assign("epochs", 0, [(str(rank), rank, None) for rank in range(2)])
print(rendezvous.port, flush=True)
time.sleep(1000)
"""
# The first one trains and never commits; the second one ignores SIGTERM.
ORPHAN = """
import signal, time
import numpy as np, horovod as hvd

hvd.init(process_sets="dynamic")
alone = hvd.add_process_set([0])

@hvd.elastic.run
def train(state):
    if hvd.rank() == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("trains", flush=True)
    while hvd.rank() == 1:
        time.sleep(1)
    while True:
        hvd.allreduce(np.ones(1), name="x", process_set=alone)

train(hvd.elastic.ObjectState(step=0))
"""


class Driver:
    def __init__(self, launcher: Launcher) -> None:
        self.secret, self.launcher = secrets.token_hex(16), launcher
        self.rendezvous = _core.Rendezvous("127.0.0.1", self.secret)
        self.watch = self.rendezvous.watch_slots(JOB)

    def start(self, slot: str, source: str) -> subprocess.Popen[str]:
        env = self.launcher.environment(
            HOROVOD_RENDEZVOUS=f"127.0.0.1:{self.rendezvous.port}", HOROVOD_SECRET=self.secret,
            HOROVOD_JOB=JOB, HOROVOD_SLOT=slot, HOROVOD_EPOCH="0", HOROVOD_ELASTIC="1",
        )  # fmt: skip
        return self.launcher.start("-c", source, program=sys.executable, env=env)

    def wait_for(self, slot: str, report: bytes) -> None:
        while (entry := self.watch.next(DEADLINE)) != (slot, report):
            assert entry is not None, f"{slot} does not report {report!r}"


@pytest.fixture
def driver(launcher: Launcher) -> Iterator[Driver]:
    driver = Driver(launcher)
    yield driver
    driver.watch.close()
    driver.rendezvous.close()


def test_a_survivor_waits_and_is_taken_out(driver: Driver) -> None:
    driver.rendezvous.assign(JOB, 0, [("a", 0, None), ("b", 1, None)])
    survivor, victim = driver.start("a", SURVIVOR), driver.start("b", VICTIM)
    driver.wait_for("a", b"waits 0 1 1")
    assert victim.wait(DEADLINE) == 3
    driver.rendezvous.assign(JOB, 1, [("a", 0, None)])
    driver.rendezvous.send_news(JOB, "a", "epoch", 1, 0, 1)
    driver.rendezvous.send_news(JOB, "a", "epoch", 1, 0, 1, 2)
    driver.wait_for("a", b"waits 1 0 -1")
    driver.rendezvous.send_news(JOB, "a", "out", 0, -1, 0, 0, "host x is bad")
    driver.wait_for("a", b"done")
    assert survivor.wait(DEADLINE) == 0


def test_a_lost_epoch_ends_init(driver: Driver) -> None:
    driver.rendezvous.assign(JOB, 0, [("a", 0, None), ("b", 1, None)])
    alone = driver.start("a", ALONE)
    driver.rendezvous.send_news(JOB, "a", "epoch", 0, 0, 2, 4)
    driver.wait_for("a", b"waits 0 1 -1")
    driver.rendezvous.send_news(JOB, "a", "over")
    assert alone.wait(DEADLINE) == 0


def test_ranks_end_with_their_starter(launcher: Launcher) -> None:
    secret = secrets.token_hex(16)
    starter = launcher.start("-c", STARTER, secret, program=sys.executable)
    assert starter.stdout
    shared = {
        "HOROVOD_RENDEZVOUS": f"127.0.0.1:{int(starter.stdout.readline())}", "HOROVOD_SECRET": secret,
        "HOROVOD_JOB": JOB, "HOROVOD_EPOCH": "0", "HOROVOD_ELASTIC": "1", "HOROVOD_GRACE_SECONDS": "3",
    }  # fmt: skip
    ranks = [
        launcher.start(
            "-c", ORPHAN, program=sys.executable, env=launcher.environment(HOROVOD_SLOT=slot, **shared)
        )
        for slot in "01"
    ]
    for rank in ranks:
        assert rank.stdout
        assert rank.stdout.readline() == "trains\n"
    starter.kill()
    errors = [rank.communicate(timeout=DEADLINE)[1] for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    assert codes == [-signal.SIGTERM, -signal.SIGKILL], errors
    assert all("has ended; this one ends, too" in text for text in errors), errors


def test_wrong_news_are_refused(driver: Driver) -> None:
    with pytest.raises(ValueError, match="'epoch', 'out' or 'over', not 'begins'"):
        driver.rendezvous.send_news(JOB, "a", "begins")
    with pytest.raises(ValueError, match="slot 'a' as rank 3 of 2"):
        driver.rendezvous.send_news(JOB, "a", "epoch", 1, 3, 2)


@pytest.mark.parametrize(("code", "calls"), [("TIMED_OUT", 3), ("PEER_LOST", 1)])
def test_work_is_complete_while_the_starter_is_stopped(
    monkeypatch: pytest.MonkeyPatch, code: str, calls: int
) -> None:
    answers: list[HorovodInternalError | None] = [None, *[HorovodInternalError("no answer", code=code)] * 2]
    missing = len(answers) - calls

    def done() -> None:
        if error := answers.pop():
            raise error

    monkeypatch.setattr(epochs, "_number", 0)
    monkeypatch.setattr(_core, "epoch_done", done)
    with contextlib.nullcontext() if code == "TIMED_OUT" else pytest.raises(HorovodInternalError):
        epochs.done()
    assert len(answers) == missing


@pytest.mark.parametrize(("code", "ends"), [("TIMED_OUT", False), ("PEER_LOST", True)])
def test_sigterm_while_the_starter_is_stopped(monkeypatch: pytest.MonkeyPatch, code: str, ends: bool) -> None:
    ended: list[int] = []

    def leave() -> None:
        raise HorovodInternalError("no answer", code=code)

    monkeypatch.setattr(epochs, "is_elastic", lambda: True)
    monkeypatch.setattr(leaving, "leave", leave)
    monkeypatch.setattr(leaving, "_end", ended.append)
    with leaving.on_sigterm():
        handle = signal.getsignal(signal.SIGTERM)
        assert callable(handle)
        handle(signal.SIGTERM, None)
    assert ended == [signal.SIGTERM] * ends


def test_without_an_elastic_job() -> None:
    assert _core.epoch_open() is False
    assert _core.epoch_notice(0) == 0
    for call in (lambda: _core.epoch_wait(0, 1.0), _core.epoch_done):
        with pytest.raises(ValueError, match="no connection to the starter"):
            call()
