"""Drives the state machine that decides which processes are the ranks of a job."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from horovod import _core

Action = dict[str, Any]
UNLIMITED = (1 << 31) - 1  # ranks
NEVER = 1e9  # seconds
SETTLE_SECONDS = 0.05
REJOIN_SECONDS = 120.0  # as horovodrun's --rejoin-seconds
SILENT_SECONDS = 5.0
RESTARTS = 3  # of a seat
CHECK_SECONDS = 0.5  # between two calls of `seconds_left`, at most
STANDSTILL_SECONDS = 1.0  # between two of them: this process has stood still


def _nothing(action: Action) -> None:
    """Carries out an action of a machine that has no processes."""


class Machine:
    """A ``Membership`` on this process's clock, by the rules of Horovod's driver.

    A failed process takes its host out, also the last one, and members wait for newcomers that were started.
    Any thread; the lock is held during each call and while actions are carried out.

    Args:
        act: carries out an action; it may not call the machine.
        changed: is notified after each input.
        start: the seats that the first epoch waits for; with UNLIMITED it never begins.
        minimum: the least number of ranks of an epoch.
        maximum: the largest number.
        timeout: the seconds after which a job without enough seats ends.
        cooldown: the shortest and the longest pause in seconds of a host that is left out; None: forever.
        reset_limit: how many epochs may follow the first one; None: any number.
        spares: processes beyond ``maximum`` that are started to take the places of lost ones.
    """

    def __init__(
        self,
        act: Callable[[Action], None] = _nothing,
        changed: threading.Condition | None = None,
        start: int = UNLIMITED,
        minimum: int = 1,
        maximum: int = UNLIMITED,
        timeout: float = NEVER,
        cooldown: tuple[int, int] | None = None,
        reset_limit: int | None = None,
        spares: int = 0,
    ) -> None:
        self._act, self._changed = act, changed or threading.Condition()
        self._waits = False  # somebody calls `seconds_left` again and again
        self._checked = time.monotonic()
        self._still = 0.0  # seconds for which this process has stood still
        self._core = _core.Membership(
            start, minimum, maximum, NEVER, SETTLE_SECONDS, REJOIN_SECONDS, SILENT_SECONDS, 0.0, timeout,
            RESTARTS, drop_last=True, grow_now=True, pause=cooldown or (0, 0), seed=time.monotonic_ns(),
            reset_limit=-1 if reset_limit is None else reset_limit, spares=spares,
        )  # fmt: skip

    def put(self, name: str, *values: Any) -> None:
        """Gives the machine an input, a method of ``Membership``, and carries out what follows."""
        with self._changed:
            getattr(self._core, name)(self._now(), *values)
            unprepared: list[int] = []
            while (action := self._core.next()) or unprepared:
                if not action:  # no host needs to be prepared
                    self._core.host_prepared(self._now(), unprepared.pop(0))
                elif action["kind"] == "prepare":
                    unprepared.append(action["host"])
                else:
                    self._act(action)
            self._changed.notify_all()

    def _now(self) -> float:
        """Returns the time for an input: without that in which this process stood still, and read nothing."""
        now = time.monotonic()
        if self._waits:
            self._still += max(0.0, now - self._checked - STANDSTILL_SECONDS)
        self._checked = now
        return now - self._still

    def seconds_left(self) -> float:
        """Returns the seconds until ``put("tick")`` has something to do; ask again after CHECK_SECONDS."""
        with self._changed:
            left = self._core.deadline - self._now()
            self._waits = left < math.inf
            return left

    def is_out(self, host: str) -> bool:
        """Returns true if the host is left out now."""
        with self._changed:
            hosts = self._core.hosts
            return host in hosts and self._core.is_out(time.monotonic() - self._still, hosts.index(host))

    def leave_out(self, host: str) -> None:
        """Counts the processes of the host as lost, and leaves it out."""
        with self._changed:
            self.put("host_lost", self._core.hosts.index(host))

    def hosts(self) -> list[str]:
        """Returns the names of all hosts that were ever known, by their numbers."""
        return self._core.hosts

    def epoch(self) -> int:
        """Returns the number of the running epoch; -1: none has begun."""
        return self._core.epoch

    def ranks(self) -> list[tuple[int, int, int]]:
        """Returns slot, host and seat of each rank of the running epoch."""
        return self._core.ranks()

    def planned(self) -> list[tuple[int, int, int]]:
        """Returns the same for the next epoch, as it is planned."""
        return self._core.planned()
