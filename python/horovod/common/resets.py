"""What the changes of an elastic job's ranks have cost this process, for ``hvd.metrics()["elastic"]``."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

KINDS = ("lost", "removed", "added", "mixed")  # what made a process leave its epoch; by bits of a notice
_SIZES = 1000  # latest epochs of which the size is kept

_counts = dict.fromkeys(KINDS, 0)
_seconds = 0.0
_ranks_lost = _ranks_added = 0
_sizes: deque[dict[str, Any]] = deque(maxlen=_SIZES)
_bytes = {"sent": 0, "received": 0}
_began: float | None = None  # when this process has left its epoch; None: it is in one
_kind = ""  # why it has left, or has left last; "": it was in no other epoch


def begin(kind: str) -> None:
    """Notes that this process leaves its epoch. A second failure before the next one is a part of it."""
    global _began, _kind
    if _began is None:
        _began, _kind = time.monotonic(), kind
        _counts[kind] += 1


def end(epoch: int, size: int, stayed: int) -> None:
    """Notes that the ranks of an epoch have one state.

    Args:
        epoch: its number.
        size: of the job.
        stayed: ranks that have been in an earlier epoch.
    """
    global _began, _seconds, _ranks_lost, _ranks_added
    before = _sizes[-1]["ranks"] if _sizes else 0
    if _began is not None:
        _seconds += time.monotonic() - _began
        _began = None
        _ranks_lost += max(0, before - stayed)
        _ranks_added += size - stayed
    if not _sizes or _sizes[-1]["epoch"] != epoch:
        _sizes.append({"epoch": epoch, "ranks": size, "time": time.time(), "cause": _kind})


def describe(epoch: int, size: int) -> str:
    """Returns what an epoch is, and why this process has left the one before, for the timeline."""
    causes = {
        "lost": "ranks were lost, or an operation failed",
        "removed": "ranks were removed",
        "added": "ranks were added",
        "mixed": "ranks were removed and added",
    }
    return f"epoch {epoch}: {size} ranks" + (f", {causes[_kind]}" if _kind else "")


def move(direction: str, count: int) -> None:
    """Counts bytes of a state that this process has ``sent`` or ``received``."""
    _bytes[direction] += count


def metrics() -> dict[str, Any]:
    """Returns the counts so far."""
    return {
        "resets": dict(_counts),
        "seconds_lost": _seconds,
        "bytes_sent": _bytes["sent"],
        "bytes_received": _bytes["received"],
        "ranks_lost": _ranks_lost,
        "ranks_added": _ranks_added,
        "sizes": [*_sizes],
    }
