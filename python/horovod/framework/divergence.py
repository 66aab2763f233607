"""Comparison of the parameters of all ranks, which training keeps equal (``HOROVOD_CHECK_PARAMETERS``).

Every rank hashes its parameters after the same step. One allreduce of the hashes, and of their complements,
shows which of them differ; only then a second one shows the hash of every rank, from which the majority
follows.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod import _core
from horovod.common.basics import Max
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, check_member, global_process_set, is_member
from horovod.framework.handles import Handle
from horovod.framework.requests import ALLREDUCE

_ONES = (1 << 64) - 1
_PATIENCE = 5.0  # seconds that a check waits for the other ranks before the program goes on meanwhile
_SHOWN = 64  # parameters of which the hashes of all ranks are compared


class ParameterCheck:
    """Compares the parameters of one optimizer after every N steps.

    A check never waits forever: it goes on in later steps if a rank does not take part in it yet, because it
    has made another number of steps. Ranks that have joined are left out, and those that have gone on
    meanwhile: their hashes are of an earlier moment. All ranks count anew after a join. One thread at a time.

    Args:
        name: the prefix of the operations' names, equal on all ranks.
        process_set: the ranks that train together.

    Attributes:
        passes: the number of passes that count as a step.
    """

    def __init__(self, name: str, process_set: ProcessSet = global_process_set) -> None:
        self.passes = 1
        self._name, self._process_set = name, process_set
        self._job: list[int] | None = None

    def is_on(self) -> bool:
        """Returns true if there is a job, and it compares parameters."""
        job = global_process_set.ranks  # a new list in each job; empty if there is none
        if self._job is not job and job:
            self._begin()
        return bool(job) and self._every > 0

    def _begin(self) -> None:
        self._job = global_process_set.ranks
        several = is_member(self._process_set) and len(self._process_set.ranks) > 1
        self._every = int(_core.setting("check_parameters")) * self.passes if several else 0
        self._aborts = _core.setting("on_divergence") == "abort"
        self._count = 0  # passes since the last join, equal on all ranks
        self._joins = _joins[0]
        self._made = 0  # passes in all
        self._equal_at = 0  # the step of the latest check that found no difference
        self._handle: Handle[Any] | None = None
        self._said = ""  # the ranks that were named last
        self._prefix = _unique(self._name) if self._every else ""

    def count(self) -> bool:
        """Counts a pass; returns true if it is the turn of ``compare``.

        Raises:
            HorovodInternalError: as ``compare``, because of an earlier step.
        """
        if not self.is_on():
            return False
        if self._joins != _joins[0]:
            self._joins, self._count = _joins[0], 0
        self._count += 1
        self._made += 1
        in_flight = self._handle is not None
        self._continue(0)
        return not in_flight and self._count % self._every == 0

    def compare(self, parameters: Iterable[tuple[str, Any]]) -> None:
        """Compares the parameters, given as their names and their values in one order on all ranks.

        The values are tensors in host memory, dense and row-major.

        Raises:
            HorovodInternalError: they differ, and ``HOROVOD_ON_DIVERGENCE`` is ``abort``; or a rank is lost.
        """
        self._names, self._hashes = [], []
        for name, value in parameters:  # one at a time: a value may be a copy of a device's memory
            self._names.append(name)
            self._hashes += _core.hashes([value])
        self._made_before = self._made
        values = array("Q")
        for number in (self._count // self.passes, *self._hashes):
            values.extend((number, number ^ _ONES))
        self._submit("hashes", values, self._compare_hashes)
        self._continue(_PATIENCE)

    def _submit(self, what: str, values: array[int], then: Callable[[array[int]], None]) -> None:
        number = check_member(self._process_set)
        request = _core.describe(ALLREDUCE, reduction=Max, process_set=number)
        self._handle = _core.submit(request, f"{self._prefix}.{what}", (values,), finish=lambda _: values)
        self._then = then

    def _continue(self, seconds: float) -> None:
        """Goes on with the check in flight as far as the other ranks have come within this time."""
        while self._handle is not None:
            try:
                values = self._handle.wait(seconds)
            except TimeoutError:
                return
            except BaseException:
                self._handle = None
                raise
            self._handle = None
            self._then(values)

    def _compare_hashes(self, most: array[int]) -> None:
        """Compares the largest hashes with the smallest, whose complements are the largest."""
        pairs = zip(most[::2], most[1::2], strict=True)
        steps, *differ = (largest ^ complement != _ONES for largest, complement in pairs)
        self._at = self._made_before // self.passes
        self._differing = [place for place, differs in enumerate(differ) if differs]
        if steps:  # the ranks count from different steps, so these are no hashes of one step
            self._count = most[0] * self.passes
        elif self._differing:
            self._gather(self._differing[:_SHOWN])
        else:
            self._equal_at, self._said = self._at, ""
            _core.parameters_checked(None, False)

    def _gather(self, places: Sequence[int]) -> None:
        """Starts to gather hashes, as an allreduce, since it must run without ranks that have joined.

        A rank that has gone on since it computed its hashes has none of this step.
        """
        ranks = self._process_set.ranks
        own = ranks.index(_core.placement()[0])
        values = array("Q", bytes(8 * len(ranks) * len(places)))
        gone_on = self._made != self._made_before
        for row, place in enumerate(places if not gone_on else ()):
            values[row * len(ranks) + own] = self._hashes[place]
        self._submit("ranks", values, self._report)

    def _report(self, values: array[int]) -> None:
        ranks, first = self._process_set.ranks, self._names[self._differing[0]]
        rows = [list(values[at : at + len(ranks)]) for at in range(0, len(values), len(ranks))]
        if all(len(set(row) - {0}) < 2 for row in rows):  # only ranks that have gone on differed
            return
        which = blame(ranks, rows)
        equal = f" They were equal at step {self._equal_at}." if self._equal_at else ""
        text = (
            f"parameters differ since step {self._equal_at + 1}-{self._at}: {first} first "
            f"({len(self._differing)} of {len(self._names)}), {which}.{equal}"
        )
        speaker = next(rank for rank, value in zip(ranks, rows[0], strict=True) if value)
        _core.parameters_checked(text, speaker == _core.placement()[0] and which != self._said)
        self._said = which
        if self._aborts:
            raise HorovodInternalError(text, code="MISMATCH")


_joins = [0]  # of this rank so far, which all ranks end at the same step


def count_join() -> None:
    """All ranks have joined, so all checks count from the same step again."""
    _joins[0] += 1


_names: Counter[str] = Counter()  # of the checks of one job
_names_of: list[list[int]] = [[]]  # that job


def _unique(name: str) -> str:
    """Returns the name, with a number from the second check of this name in the job on."""
    if _names_of[0] is not global_process_set.ranks:
        _names_of[0] = global_process_set.ranks
        _names.clear()
    _names[name] += 1
    return f"{name}_{_names[name]}" if _names[name] > 1 else name


def bytes_of(value: Any) -> Any:
    """Returns the bytes of an array that NumPy can read, also of a type that the engine does not know."""
    import numpy as np

    return np.ascontiguousarray(np.asarray(value)).reshape(-1).view(np.uint8)


def blame(ranks: Sequence[int], rows: Sequence[Sequence[int]]) -> str:
    """Returns which ranks have other hashes than the majority, as the end of a sentence.

    Args:
        ranks: the members of the process set.
        rows: for each parameter the hash of each member; 0: it has joined, or has gone on.
    """
    wrong: set[int] = set()
    for row in rows:
        groups = _groups(ranks, row)
        if 2 * len(groups[0]) <= sum(map(len, groups)):
            return f"between {' and '.join(map(_text_of, groups))}; no majority says which of them is right"
        wrong.update(rank for group in groups[1:] for rank in group)
    right = [rank for rank, value in zip(ranks, rows[0], strict=True) if value and rank not in wrong]
    agree = f"; {_text_of(right)} agree{'s' if len(right) == 1 else ''}" if right else ""
    return f"on {_text_of(sorted(wrong))}{agree}"


def _groups(ranks: Sequence[int], row: Sequence[int]) -> list[list[int]]:
    """Returns the ranks with equal hashes together, the largest group first."""
    groups: dict[int, list[int]] = {}
    for rank, value in zip(ranks, row, strict=True):
        if value:
            groups.setdefault(value, []).append(rank)
    return sorted(groups.values(), key=len, reverse=True)


def _text_of(ranks: Sequence[int]) -> str:
    """Returns "rank 2" or "ranks 0-2, 5"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    joined = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
    return f"rank{'s' if len(ranks) > 1 else ''} {joined}"
