"""The epochs of an elastic job: in which of them this process is a rank, and how it joins the next one.

An epoch is one set of ranks that train together. The starter decides who is in it. A process that starts
while the job runs knows its planned place, and joins in ``hvd.elastic.run``. One thread at a time.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any, Protocol

from horovod import _core
from horovod.common.exceptions import HorovodInternalError

REMOVED, ADDED = 1, 2  # bits of a notice
_WAIT_SECONDS = 60.0  # of one call that waits for the next epoch
_PLANNED = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")

_number = -1  # the epoch that this process is in, or was in last; -1: none yet
_place: tuple[int, int] | None = None  # its rank and size; None: those of its start
_planned = False  # this process has a planned place, and is in no epoch yet
_holds_state = False  # it has been in step with the job, so that others can continue from its state
_lost_rank = -1  # the rank that this process has lost in its epoch; -1: none, or unknown


class Resettable(Protocol):
    """What keeps knowledge about the ranks of a job, which is wrong in the next epoch."""

    def begin_epoch(self) -> None:
        """Forgets what belongs to the epoch before."""


resettable: weakref.WeakSet[Resettable] = weakref.WeakSet()  # those whose begin_epoch is called


def is_elastic() -> bool:
    """Returns true if the starter of this job changes its ranks. Connects to it when first called."""
    return os.environ.get("HOROVOD_ELASTIC") == "1" and _core.epoch_open()


def number() -> int:
    """Returns the number of the epoch that this process is in, or was in last; -1: none yet."""
    return _number


def place() -> tuple[int, int] | None:
    """Returns this process's rank and the number of ranks in ``number()``; None: those of its start."""
    return _place


def is_planned() -> bool:
    """Returns true if this process has a planned place and has not joined the job yet."""
    return _planned


def plan() -> bool:
    """Takes the planned place if this process was started while the job runs; otherwise returns false."""
    global _planned
    if _number < 0 and is_elastic() and int(os.environ.get("HOROVOD_EPOCH", "0")) > 0:
        _core.plan(*(int(os.environ[f"HOROVOD_{name}"]) for name in _PLANNED))
        _planned = True
    return _planned


def settings() -> dict[str, str]:
    """Returns the settings with which this process joins its next epoch, for which it waits.

    Raises:
        SystemExit: this process is not in it, or the job has ended: it ends with exit code 0.
        RuntimeError: the starter has gone.
    """
    global _number, _place, _planned, _lost_rank
    if not is_elastic():
        return {}
    if _number < 0 and not _planned:
        _number = 0
        return {}
    found = _wait()
    _number, _place = int(found["epoch"]), (int(found["rank"]), int(found["size"]))
    _planned, _lost_rank = False, -1
    return {"epoch": str(_number)}


def _wait() -> dict[str, Any]:
    while True:
        try:
            found = _core.epoch_wait(_number, _WAIT_SECONDS, _holds_state, _lost_rank)
        except HorovodInternalError as error:
            raise RuntimeError(f"the starter of this elastic job has gone: {error}") from error
        if found and found["state"] == "begins":
            return found
        if found:
            print(f"horovod: this process leaves the job: {found['reason']}", file=sys.stderr, flush=True)
            raise SystemExit(0)


def has_state() -> None:
    """Notes that this process is in step with the job, so that others can continue from its state."""
    global _holds_state
    _holds_state = True


def has_lost(rank: int | None) -> None:
    """Notes which rank this process has lost in its epoch, for the starter."""
    global _lost_rank
    _lost_rank = -1 if rank is None else rank


def notice() -> int:
    """Returns which changes of its hosts this epoch awaits, as bits; never blocks."""
    return _core.epoch_notice(_number) & (REMOVED | ADDED) if _number >= 0 else 0


def done() -> None:
    """Reports that the function of this rank has returned; waits for a starter that is stopped."""
    while _number >= 0:
        try:
            _core.epoch_done()
        except HorovodInternalError as error:
            if error.code != "TIMED_OUT":
                raise
        else:
            return
