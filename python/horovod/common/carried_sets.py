"""Process sets from one epoch of an elastic job to the next: lost members are left out, the rest renumbered.

Every rank keeps a table of the sets, whose ranks are numbered as in the last epoch that it has begun with
them. The first collective of an epoch gathers these tables; the newest one counts.
"""

from __future__ import annotations

from typing import Any

from horovod import _core
from horovod.common import process_sets as _sets
from horovod.common.exchange import gather_bytes
from horovod.common.process_sets import ProcessSet

_EPOCHS = 16  # for which a process remembers its rank

_ranks: dict[int, int] = {}  # this process's rank in the latest epochs
_begun = -1  # the latest epoch in which the sets were registered; -1: none
_kept: list[ProcessSet] = []  # those of that epoch


def keep() -> None:
    """Keeps the sets that are registered, at the end of an epoch that has begun with them."""
    if _core.is_initialized() and _begun in _ranks and _begun == max(_ranks):
        _kept[:] = [each for number, each in _sets.registered() if number]


def begin(epoch: int) -> None:
    """Registers the sets of the epoch before, renumbered, or those that all ranks want if it had none.

    Raises:
        ValueError: this process wants a set that the running job does not have.
    """
    global _begun
    _ranks[epoch] = _core.placement()[0]
    for old in [*_ranks][:-_EPOCHS]:
        del _ranks[old]
    for each in _sets.wanted:
        each.process_set_id = None
    newest, tables = _gather() if epoch > 0 else (-1, [])
    if newest < 0:
        _sets.begin(_sets.wanted)
    else:
        _sets.begin([])
        before = [dict(table["ranks"]).get(newest, -1) for table in tables]
        source = next(table for table in tables if table["epoch"] == newest)
        _renumber(source["sets"], before)
    _begun = epoch
    _sets.wanted.clear()
    _kept.clear()


def _gather() -> tuple[int, list[dict[str, Any]]]:
    """Returns the newest epoch of which a rank has the sets, and the tables of all ranks."""
    import json  # which ranks of other jobs do not need

    sets = [(each.given_ranks, each.ranks) for each in _kept]
    table = {"epoch": _begun, "ranks": [*_ranks.items()], "sets": sets}
    parts = gather_bytes(bytearray(json.dumps(table).encode()), "process_sets", 0)
    tables = [json.loads(bytes(part)) for part in parts]
    return max(table["epoch"] for table in tables), tables


def _renumber(sets: list[tuple[list[int], list[int]]], before: list[int]) -> None:
    """Registers the sets of a table; ``before`` has the rank in its epoch of each rank of this epoch."""
    for given, old in sets:
        ranks = [rank for rank, number in enumerate(before) if number in old]
        own = [each for each in _kept if each.given_ranks == given]
        own += [each for each in _sets.wanted if given == each.given_ranks or ranks == each.ranks]
        process_set = own[0] if own else ProcessSet(given)
        if process_set in _sets.wanted:
            _sets.wanted.remove(process_set)
        if ranks:
            _sets.register_carried(process_set, ranks)
        else:
            process_set.process_set_id = None
    if _sets.wanted:
        known = ", ".join(str(ranks) for _, ranks in sets) or "none"
        raise ValueError(
            f"{_sets.wanted[0]} is no process set of the job that this process joins; those were, with the "
            f"ranks before: {known}"
        )
