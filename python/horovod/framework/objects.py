"""Exchange of picklable Python objects among the ranks.

Only bytes of this job are unpickled: its connections are authenticated."""

from __future__ import annotations

from typing import Any

from horovod.common.basics import rank as own_rank
from horovod.common.exchange import broadcast_bytes, gather_bytes, pickler
from horovod.common.process_sets import ProcessSet, check_member, global_process_set


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's object on every rank of the process set. The ``obj`` of other ranks is ignored.

    The names of its two broadcasts are ``<name>.sz`` and ``<name>.t``; ``root_rank`` is a rank of the job.
    Any thread may call.

    Raises:
        ValueError: this rank is not a member, or ``root_rank`` is no member.
        HorovodInternalError: the ranks disagree on the root, or one is lost.
        Exception: the object can't be pickled, or not unpickled here.
    """
    name = "broadcast_object" if name is None else name
    number = check_member(process_set)
    if own_rank() == root_rank:
        broadcast_bytes(bytearray(pickler().dumps(obj)), root_rank, name, number)
        return obj
    return pickler().loads(broadcast_bytes(None, root_rank, name, number))


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order. Any thread may call.

    Raises:
        ValueError: this rank is not a member.
        HorovodInternalError: a rank is lost.
        Exception: an object can't be pickled, or not unpickled here.
    """
    name = "allgather_object" if name is None else name
    number = check_member(process_set)
    parts = gather_bytes(bytearray(pickler().dumps(obj)), name, number)
    return [pickler().loads(part) for part in parts]
