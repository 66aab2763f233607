"""Why a rank failed, as data: at the rendezvous, for a starter written in Python."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import DEADLINE, Launcher

from horovod import _core
from horovod.common.faults import PREFIX, Fault, read_fault

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


@pytest.fixture
def rendezvous() -> Iterator[Any]:
    with _core.Rendezvous("127.0.0.1", secrets.token_hex(8)) as made:
        yield made


class Starter:
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
def starter(launcher: Launcher) -> Iterator[Starter]:
    made = Starter(launcher, secrets.token_hex(8))
    yield made
    made.rendezvous.close()


@pytest.mark.parametrize("kind", ACTIONS)
def test_two_epochs_and_a_fault(starter: Starter, kind: str) -> None:
    """The first epoch ends by a fault, the second one without the rank that failed."""
    source = RANK.format(action=ACTIONS[kind])
    starter.assign(4, ["a", "b", "c"])
    ranks = [starter.start(slot, 4, source, stderr=subprocess.DEVNULL) for slot in "abc"]
    found = starter.faults(4, 2)
    [rank.wait(DEADLINE) for rank in ranks]
    found |= starter.faults(4, 3 if kind == "exception" else 2)
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
    starter.assign(5, ["a", "c"])
    again = [
        starter.start(slot, 5, "import horovod as hvd; hvd.init(); print(hvd.rank(), hvd.size())")
        for slot in "ac"
    ]
    assert [process.communicate(timeout=DEADLINE)[0] for process in again] == ["0 2\n", "1 2\n"]
