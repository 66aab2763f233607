"""The figures of this rank for dashboards: a flat dict of numbers, see ``metrics(flat=True)``."""

from __future__ import annotations

from typing import NamedTuple

from horovod import _core
from horovod.common.exceptions import HorovodInternalError

_SHORTEST = 0.1  # seconds over which rates are taken


class _Look(NamedTuple):
    """What had been counted at a moment, in seconds since ``init``."""

    seconds: float = 0.0
    steps: float = 0.0
    samples: float = 0.0
    requests: float = 0.0  # that have succeeded
    batches: float = 0.0
    bytes: float = 0.0
    wait_seconds: float = 0.0


_before, _newest = _Look(), _Look()


def _look_before(now: _Look) -> _Look:
    """Returns the look before this one, or an earlier one if that is too new.

    So dashboards that ask one after the other, in the same step, get the same rates.
    """
    global _before, _newest
    if now.seconds < _newest.seconds:  # init was called again
        _before, _newest = _Look(), _Look()
    if now.seconds - _newest.seconds >= _SHORTEST:
        _before, _newest = _newest, now
    return _before


def figures() -> dict[str, float]:
    """Returns the figures; none before ``init``, after ``shutdown`` and in a forked child."""
    try:
        steps, samples, number, step_seconds, _, seconds = _core.progress()
        rows = _core.counters()
    except (ValueError, HorovodInternalError):
        return {}
    totals = [float(sum(column)) for column in zip(*(row[2:] for row in rows), strict=True)] or [0.0] * 6
    submitted, succeeded, failed, batches, sent, waited = totals
    now = _Look(seconds, steps, samples, succeeded, batches, sent, waited)
    grown = _Look(*(new - old for new, old in zip(now, _look_before(now), strict=True)))
    elapsed = max(grown.seconds, 1e-9)
    return {
        "horovod/steps": float(steps),
        "horovod/step": float(max(number, 0)),
        "horovod/samples": float(samples),
        "horovod/step_seconds": step_seconds,
        "horovod/steps_per_second": grown.steps / elapsed,
        "horovod/samples_per_second": grown.samples / elapsed,
        "horovod/wait_share": min(1.0, grown.wait_seconds / elapsed),
        "horovod/bytes_per_second": grown.bytes / elapsed,
        "horovod/requests_per_second": grown.requests / elapsed,
        "horovod/requests_per_batch": grown.requests / grown.batches if grown.batches else 0.0,
        "horovod/requests_in_flight": submitted - succeeded - failed,
        "horovod/requests_failed": failed,
    }
