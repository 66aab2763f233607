"""Process sets: collectives among some of the job's ranks.

Each set orders its operations by itself, so operations of different sets never wait for each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod import _core
from horovod.common import epochs

_DYNAMIC = "HOROVOD_DYNAMIC_PROCESS_SETS"
PLANNED = -1  # instead of an id, of a set of a process that has not joined the running job yet


class NotMemberError(ValueError):
    """This rank has called an operation of a process set that it does not belong to."""


def _check_ranks(ranks_or_comm: Iterable[int]) -> list[int]:
    if not isinstance(ranks_or_comm, Iterable):
        raise ValueError(
            f"ProcessSet takes a list of ranks, not {ranks_or_comm!r}; for a communicator pass the ranks "
            "that its members have in the job"
        )
    ranks = list(ranks_or_comm)
    odd = [rank for rank in ranks if not isinstance(rank, int)]
    if odd:
        raise ValueError(f"ProcessSet takes a list of ranks, which are integers, not {odd[0]!r}")
    twice = [rank for rank in set(ranks) if ranks.count(rank) > 1]
    if twice:
        raise ValueError(f"ProcessSet: rank {min(twice)} is given twice in {sorted(ranks)}")
    return sorted(ranks)


class ProcessSet:
    """Some ranks of the job. Pass it to ``init`` or ``add_process_set``, then to any collective.

    Args:
        ranks_or_comm: the members, in any order, each once. Or a function that returns them for a number of
            ranks, the same on all ranks: an elastic job calls it again when that number has changed.

    Raises:
        ValueError: the argument is not a list of integers, or has a rank twice.

    Example::

        even = hvd.ProcessSet(lambda size: range(0, size, 2))
        hvd.init(process_sets=[even])
        if even.included():
            mean = hvd.allreduce(loss, process_set=even)
    """

    process_set_id: int | None = None
    ranks: list[int]  # of a function: none before registration
    given_ranks: list[int] | None  # as numbered when it was made; None: a function of the size
    mpi_comm: None = None

    def __init__(self, ranks_or_comm: Iterable[int] | Callable[[int], Iterable[int]]) -> None:
        self.function: Callable[[int], Iterable[int]] | None = None
        if callable(ranks_or_comm):
            self.function, self.given_ranks, self.ranks = ranks_or_comm, None, []
        else:
            self.given_ranks = self.ranks = _check_ranks(ranks_or_comm)

    def ranks_of(self, size: int) -> list[int]:
        """Returns the ranks that are asked for in a job of that many.

        Raises:
            ValueError: the function does not return ranks of such a job.
        """
        if self.function is None:
            return self.given_ranks or []
        ranks = _check_ranks(self.function(size))
        if ranks and not 0 <= ranks[0] <= ranks[-1] < size:
            raise ValueError(f"ProcessSet: {self.function} returns {ranks} for a job of {size} ranks")
        return ranks

    def _is_registered(self) -> bool:
        return self.process_set_id is not None and bool(self.ranks)

    def size(self) -> int | None:
        """Returns the number of members; None before registration."""
        return len(self.ranks) if self._is_registered() else None

    def rank(self) -> int | None:
        """Returns this process's number in the set, 0 … size() - 1; None before registration.

        Raises:
            ValueError: this process is not a member; check ``included()`` first.
        """
        if not self._is_registered():
            return None
        check_member(self)
        return self.ranks.index(_core.placement()[0])

    def included(self) -> bool | None:
        """Returns true if this process is a member; None before registration."""
        return _core.placement()[0] in self.ranks if self._is_registered() else None

    def __deepcopy__(self, memo: Any) -> ProcessSet:
        return self

    def __reduce__(self) -> Any:
        if self is global_process_set:
            return "global_process_set"
        return ProcessSet, (self.function or self.ranks,)

    def __str__(self) -> str:
        number, ranks, comm = self.process_set_id, self.ranks, self.mpi_comm
        return f"ProcessSet(process_set_id={number}, ranks={ranks}, mpi_comm={comm})"


# All ranks of the job.
global_process_set = ProcessSet([])
global_process_set.process_set_id = 0

_registered: dict[int, ProcessSet] = {0: global_process_set}
_empty: dict[int, ProcessSet] = {}  # those that have no members in this epoch, by their ids
requested: list[ProcessSet] = []  # those of `request`
# Ids of those that come from the epoch before, until `add_process_set` asks for them.
_carried: set[int] = set()
_least = 1  # the id that sets added in this epoch get at least: earlier epochs have used those before
_highest = 0  # the highest id that was used


def check_member(process_set: Any) -> int:
    """Returns the id that the engine uses for a process set.

    Raises:
        NotMemberError: this rank is not a member.
        ValueError: it is not a process set, or not registered.
    """
    if process_set is global_process_set:
        return 0
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f"process_set must be a ProcessSet, not {process_set!r}")
    number = process_set.process_set_id
    if number is None:
        raise ValueError(
            f"{process_set} is not registered: pass it to init(process_sets=[…]), or to add_process_set"
        )
    own = _core.placement()[0]
    if own not in process_set.ranks:
        raise NotMemberError(
            f"rank {own} is not a member of {process_set}; only members take part in its operations: call "
            "them under `if process_set.included():`"
        )
    return number


def is_member(process_set: ProcessSet) -> bool:
    """Returns true if this process is a member; ValueError for an unregistered set, or before ``init``."""
    _core.placement()
    included = process_set.included() if isinstance(process_set, ProcessSet) else None
    return check_member(process_set) >= 0 if included is None else included


def registered() -> list[tuple[int, ProcessSet]]:
    """Returns all sets by their ids, in the order in which they were registered."""
    return [*_registered.items()]


def carry() -> tuple[dict[int, ProcessSet], int]:
    """Returns the sets that go on into the next epoch by their ids, and the highest id that was used."""
    return {number: each for number, each in (_registered | _empty).items() if number}, _highest


def register_carried(number: int, process_set: ProcessSet, ranks: list[int]) -> None:
    """Registers a set of the epoch before with the ranks that its members have now; all ranks do the same.

    They do so in the order of the ids. A set without ranks keeps its id, but can't be used.
    """
    process_set.process_set_id, process_set.ranks = None, ranks
    if ranks:
        process_set.process_set_id = _core.process_set_add(ranks, number)
    (_registered if ranks else _empty)[number] = process_set
    _carried.add(number)


def use_ids_after(highest: int) -> None:
    """Sets the highest id that earlier epochs have used; sets that are added now get higher ones."""
    global _least, _highest
    _least, _highest = highest + 1, highest


def find_equal(
    asked: list[ProcessSet], known: dict[int, tuple[list[int] | None, list[int]]]
) -> dict[int, ProcessSet]:
    """Returns which sets a program asks for, by id; ``known`` has the ``given_ranks`` and ``ranks`` of all.

    A list is equal to the one that was given, or else to the ranks that a set has now. A function is equal to
    one that returns the same now.
    """
    size = _core.placement()[1]
    found: dict[int, ProcessSet] = {}
    for is_now in (False, True):
        for number, (given, ranks) in known.items():
            same = ranks if given is None or is_now else given
            equal = [
                each
                for each in asked
                if each not in found.values()
                and (each.given_ranks is None) == (given is None)
                and each.ranks_of(size) == same
            ]
            if equal and number not in found:
                found[number] = equal[0]
    return found


def _is_carried(process_set: ProcessSet) -> bool:
    """Gives a set the id of an equal one of the epoch before; returns false if there is none."""
    sets = {number: (_registered | _empty)[number] for number in sorted(_carried)}
    known = {
        number: (each.given_ranks, each.ranks)
        for number, each in sets.items()
        if each.ranks or each.given_ranks is None  # a list that has lost all members may be used anew
    }
    for number in find_equal([process_set], known):
        process_set.process_set_id, process_set.ranks = sets[number].process_set_id, sets[number].ranks
        (_registered if number in _registered else _empty)[number] = process_set
        _carried.discard(number)
        return True
    return False


def request(process_sets: list[ProcessSet]) -> None:
    """Keeps the sets that this process asks for before it has joined the job; they have no real id so far."""
    for each in process_sets:
        each.process_set_id = PLANNED
        if epochs.is_planned():
            each.ranks = each.ranks_of(_core.placement()[1])
    requested.extend(process_sets)


def _register(process_set: ProcessSet) -> None:
    global _highest
    ranks = process_set.ranks_of(_core.placement()[1])
    for known in _registered.values():
        if known.ranks == ranks:
            raise ValueError(f"a process set with the ranks {ranks} exists already: {known}; use that one")
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already; make a new ProcessSet")
    number = _core.process_set_add(ranks, _least)
    process_set.process_set_id, process_set.ranks = number, ranks
    _registered[number], _highest = process_set, max(number, _highest)


def check_sets(process_sets: Sequence[ProcessSet | Sequence[int]] | str | None) -> list[ProcessSet]:
    """Returns the sets that ``init`` must register; ValueError if they contradict each other."""
    if isinstance(process_sets, str):
        if process_sets != "dynamic":
            raise ValueError(f'process_sets must be a list of ProcessSet, or "dynamic", not {process_sets!r}')
        os.environ[_DYNAMIC] = "1"
        return []
    sets = [each if isinstance(each, ProcessSet) else ProcessSet(each) for each in process_sets or ()]
    seen: list[list[int] | None] = []
    for number, each in enumerate(sets):
        if each.given_ranks is not None and each.given_ranks in seen:
            raise ValueError(
                f"process_sets: entry {number} has the same ranks as entry {seen.index(each.ranks)}: "
                f"{each.ranks}"
            )
        seen.append(each.given_ranks)
    return sets


def begin(process_sets: list[ProcessSet]) -> None:
    """Registers the sets that ``init`` was given after the job has started, in one order on all ranks."""
    global_process_set.ranks = list(range(_core.placement()[1]))
    for number, each in enumerate(process_sets):
        try:
            _register(each)
        except ValueError as error:
            raise ValueError(f"process_sets: entry {number}: {error}") from None


def end() -> None:
    """Forgets all sets at the end of the job; their objects may be registered again."""
    for process_set in _registered.values():
        process_set.process_set_id = None
    _registered.clear()
    _empty.clear()
    _carried.clear()
    use_ids_after(0)
    _registered[0] = global_process_set
    global_process_set.process_set_id, global_process_set.ranks = 0, []


def _require_dynamic(what: str) -> None:
    value = os.environ.get(_DYNAMIC, "").strip()
    if not (value.isdigit() and int(value) > 0):
        raise ValueError(
            f'{what} needs dynamic process sets: init(process_sets="dynamic"), or {_DYNAMIC}=1 on every rank'
        )


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Registers a process set while the job runs. Every rank calls it, in the same order.

    Returns:
        The set that was passed, or the one made from a list of ranks.

    Raises:
        ValueError: there is such a set already, or sets must not change while the job runs.
        HorovodInternalError: the ranks ask for different sets, members could not connect, or ``shutdown`` was
            called concurrently.
        KeyboardInterrupt: Ctrl-C while this rank waits for the others.
    """
    _require_dynamic("add_process_set")
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if epochs.is_planned():
        request([added])
    elif not _is_carried(added):
        _register(added)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends a process set. Every rank calls it, in the same order.

    Unfinished operations of its members fail. Returns False for the global set and for a set that is not
    registered; otherwise the object's ``process_set_id`` is None from now on.
    """
    _require_dynamic("remove_process_set")
    number = process_set.process_set_id
    for empty in [each for each, known in _empty.items() if known is process_set]:
        del _empty[empty]  # without a collective, as all ranks know it
        _carried.discard(empty)
        return True
    if number is None or number == 0:
        return False
    _core.process_set_remove(number)
    _carried.discard(number)
    del _registered[number]
    process_set.process_set_id = None
    if process_set.given_ranks is not None:
        process_set.given_ranks = process_set.ranks
    return True
