"""Exchange of picklable Python objects among the ranks.

Only bytes of this job are unpickled: its connections are authenticated."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from horovod import _core
from horovod.common.basics import rank as own_rank
from horovod.common.process_sets import ProcessSet, check_member, global_process_set
from horovod.framework.requests import ALLGATHER, BROADCAST

_LENGTH_BYTES = 8


@functools.cache
def _pickler() -> Any:
    """Returns cloudpickle or, without it, pickle, which can't send functions and classes of __main__."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return importlib.import_module("pickle")


def _broadcast_bytes(data: bytearray, root: int, name: str, process_set: int) -> None:
    _core.run(_core.describe(BROADCAST, root=root, process_set=process_set), name, (data,))


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
    data = bytearray(_pickler().dumps(obj)) if own_rank() == root_rank else bytearray()
    length = bytearray(len(data).to_bytes(_LENGTH_BYTES, "little"))
    _broadcast_bytes(length, root_rank, f"{name}.sz", number)
    if own_rank() != root_rank:
        data = bytearray(int.from_bytes(length, "little"))
    _broadcast_bytes(data, root_rank, f"{name}.t", number)
    return obj if own_rank() == root_rank else _pickler().loads(data)


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
    data = bytearray(_pickler().dumps(obj))
    length = bytearray(len(data).to_bytes(_LENGTH_BYTES, "little"))
    request = _core.describe(ALLGATHER, process_set=number, grouped=True)
    gathered = _core.run(request, name, (length, data))
    assert gathered is not None
    lengths, everything = (memoryview(result) for result in gathered)
    objects, end = [], 0
    for at in range(0, len(lengths), _LENGTH_BYTES):
        start, end = end, end + int.from_bytes(lengths[at : at + _LENGTH_BYTES], "little")
        objects.append(_pickler().loads(everything[start:end]))
    return objects
