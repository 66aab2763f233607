"""The figures of this rank for dashboards: a flat dict of numbers, see ``metrics(flat=True)``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from horovod import _core
from horovod.common import epochs, resets, totals
from horovod.common.exceptions import HorovodInternalError

_SHORTEST = 0.1  # seconds over which rates are taken


class _Counts(NamedTuple):
    seconds: float = 0.0  # since init
    steps: float = 0.0
    samples: float = 0.0
    requests: float = 0.0  # that have succeeded
    batches: float = 0.0
    bytes: float = 0.0
    wait_seconds: float = 0.0


class _Look(NamedTuple):
    """What had been counted at a moment."""

    counts: _Counts = _Counts()
    late: Mapping[int, float] = MappingProxyType({})  # for how long this rank has waited for others


_before, _newest = _Look(), _Look()


def _look_before(now: _Look) -> _Look:
    """Returns the look before this one, or an earlier one if that is too new.

    So dashboards that ask one after the other, in the same step, get the same rates.
    """
    global _before, _newest
    age = now.counts.seconds - _newest.counts.seconds
    if age < 0:  # init was called again
        _before, _newest, age = _Look(), _Look(), now.counts.seconds
    if age >= _SHORTEST:
        _before, _newest = _newest, now
    return _before


def figures() -> dict[str, float]:
    """Returns the figures; none before ``init``, after ``shutdown`` and in a forked child."""
    try:
        steps, samples, number, step_seconds, _, seconds = _core.progress()
        rows, (rank, size) = totals.counters(), _core.placement()[:2]
        late = _core.lateness()
    except (ValueError, HorovodInternalError):
        return {}
    columns = [float(sum(column)) for column in zip(*(row[2] for row in rows), strict=True)] or [0.0] * 7
    submitted, succeeded, failed, batches, sent, waited, nonfinite = columns
    past = totals.before()
    made = (seconds + past.seconds, steps + past.steps, samples + past.samples)
    counts = _Counts(*made, succeeded, batches, sent, waited)
    before = _look_before(_Look(counts, late))
    grown = _Counts(*(new - old for new, old in zip(counts, before.counts, strict=True)))
    elapsed = max(grown.seconds, 1e-9)
    values = {
        "horovod/steps": counts.steps,
        "horovod/step": float(max(number, 0)),
        "horovod/samples": counts.samples,
        "horovod/step_seconds": step_seconds,
        "horovod/steps_per_second": grown.steps / elapsed,
        "horovod/samples_per_second": grown.samples / elapsed,
        "horovod/wait_share": min(1.0, grown.wait_seconds / elapsed),
        "horovod/bytes_per_second": grown.bytes / elapsed,
        "horovod/requests_per_second": grown.requests / elapsed,
        "horovod/requests_per_batch": grown.requests / grown.batches if grown.batches else 0.0,
        "horovod/requests_in_flight": submitted - succeeded - failed,
        "horovod/requests_failed": failed,
        "horovod/nonfinite_tensors": nonfinite,
    }
    if epochs.number() >= 0:
        changes = resets.metrics()
        values |= {
            "horovod/elastic_resets": float(sum(changes["resets"].values())),
            "horovod/elastic_seconds_lost": changes["seconds_lost"],
            "horovod/elastic_ranks": float(size),
        }
    if rank == 0:  # the others do not know
        values |= _lateness({key: late[key] - before.late.get(key, 0.0) for key in late}, elapsed)
    return values


def _lateness(late: dict[int, float], elapsed: float) -> dict[str, float]:
    """Returns for which share of the time the job waited for rank 0 and for others, and for which most."""
    others = sum(late.values()) - late.get(0, 0.0)
    latest = max(late, key=lambda rank: late[rank], default=-1)
    return {
        "horovod/late_share": min(1.0, late.get(0, 0.0) / elapsed),
        "horovod/others_late_share": min(1.0, others / elapsed),
        "horovod/latest_rank": float(latest) if late.get(latest) else -1.0,
    }
