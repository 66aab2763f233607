"""Process sets from one epoch of an elastic job to the next: they keep their ids.

Lost members are left out of a list of ranks, and the rest renumbered; a function of the number of ranks is
called anew. Every rank keeps a table of the sets, whose ranks are numbered as in the last epoch that it has
begun with them. The first collective of an epoch gathers these tables; the newest one counts.
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
_kept: dict[int, ProcessSet] = {}  # those of that epoch, by their ids
_highest = 0  # id that was used in that epoch, or before


def keep() -> None:
    """Keeps the sets that are registered, at the end of an epoch that has begun with them."""
    global _kept, _highest
    if _core.is_initialized() and _begun in _ranks and _begun == max(_ranks):
        _kept, _highest = _sets.carry()


def begin(epoch: int) -> None:
    """Registers the sets of the epoch before, or those that all ranks request if it had none.

    Raises:
        ValueError: this process requests a set that the running job does not have, or a function of a set
            does not return ranks of the job.
    """
    global _begun
    _ranks[epoch] = _core.placement()[0]
    for old in [*_ranks][:-_EPOCHS]:
        del _ranks[old]
    for each in _sets.requested:
        each.process_set_id = None
    newest, tables = _gather() if epoch > 0 else (-1, [])
    if newest < 0:
        _sets.begin(_sets.requested)
    else:
        _sets.begin([])
        before = [dict(table["ranks"]).get(newest, -1) for table in tables]
        _register([table for table in tables if table["epoch"] == newest], before)
    _begun = epoch
    _sets.requested.clear()
    _kept.clear()


def _gather() -> tuple[int, list[dict[str, Any]]]:
    """Returns the newest epoch of which a rank has the sets, and the tables of all ranks."""
    import json  # which ranks of other jobs do not need

    size = _core.placement()[1]
    sets = [
        (number, each.given_ranks, each.ranks, each.ranks_of(size) if each.function else None)
        for number, each in sorted(_kept.items())
    ]
    table = {"epoch": _begun, "ranks": [*_ranks.items()], "sets": sets, "highest": _highest}
    parts = gather_bytes(bytearray(json.dumps(table).encode()), "process_sets", 0)
    tables = [json.loads(bytes(part)) for part in parts]
    return max(table["epoch"] for table in tables), tables


def _register(tables: list[dict[str, Any]], before: list[int]) -> None:
    """Registers the sets of the first table; ``before`` has the rank in its epoch of each rank of this epoch.

    Processes that have joined do not know the functions of sets, so their results are in some of the tables.
    """
    results = {number: now for table in tables for number, _, _, now in table["sets"] if now is not None}
    sets: dict[int, tuple[list[int] | None, list[int]]] = {}
    for number, given, old, _ in tables[0]["sets"]:
        ranks = [rank for rank, place in enumerate(before) if place in old]
        sets[number] = given, results.get(number, ranks)
    found = _sets.find_equal(_sets.requested, sets)
    for number, (given, ranks) in sets.items():
        process_set = found.get(number) or _kept.get(number)
        if process_set is None or (number not in found and process_set.given_ranks != given):
            process_set = ProcessSet(ranks)
            process_set.given_ranks = given
        _sets.register_carried(number, process_set, ranks)
    _sets.use_ids_after(max(table["highest"] for table in tables))
    unknown = [each for each in _sets.requested if each not in found.values()]
    if unknown:
        known = ", ".join(str(old) for _, _, old, _ in tables[0]["sets"]) or "none"
        raise ValueError(
            f"{unknown[0]} is no process set of the job that this process joins; those were, with the ranks "
            f"before: {known}. If it depends on the number of ranks, give it as a function of that number, "
            "on all ranks: ProcessSet(lambda size: range(0, size, 2))"
        )
