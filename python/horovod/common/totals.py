"""Counters of this rank over all epochs of an elastic job; each context counts from 0, and ends with one."""

from __future__ import annotations

from typing import NamedTuple

from horovod import _core
from horovod.common import epochs
from horovod.common.process_sets import ProcessSet, global_process_set, registered


class Progress(NamedTuple):
    """Counts of a rank beside those of operations."""

    steps: float = 0.0
    samples: float = 0.0
    seconds: float = 0.0  # since init


_before: dict[ProcessSet, dict[str, list[float]]] = {}  # of the sets that went on into the next epoch
_progress = Progress()


def keep() -> None:
    """Adds what this epoch has counted, before its context ends."""
    global _progress
    if epochs.number() < 0 or not _core.is_initialized():
        return
    sets = dict(registered())
    for number, operation, *values in _core.counters():
        if number in sets:
            old = _before.setdefault(sets[number], {}).get(operation, [0] * len(values))
            _before[sets[number]][operation] = [a + b for a, b in zip(old, values, strict=True)]
    steps, samples, _, _, _, seconds = _core.progress()
    past = _progress
    _progress = Progress(past.steps + steps, past.samples + samples, past.seconds + seconds)


def counters() -> list[tuple[int, str, list[float]]]:
    """Returns the counters of each process set and operation, by the id that the set has now."""
    rows = {(number, operation): [*values] for number, operation, *values in _core.counters()}
    numbers = {each: number for number, each in registered()} | {global_process_set: 0}
    for process_set, operations in _before.items():
        for operation, values in operations.items():
            key = (numbers.get(process_set, -1), operation)
            now = rows.get(key, [0] * len(values))
            if key[0] >= 0:
                rows[key] = [a + b for a, b in zip(now, values, strict=True)]
    return [(number, operation, values) for (number, operation), values in sorted(rows.items())]


def before() -> Progress:
    """Returns the counts of the epochs before this one."""
    return _progress
