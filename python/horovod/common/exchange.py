"""Bytes from one rank to the others, and from all to all, for what is no tensor. Any thread may call.

Only bytes of this job are exchanged: its connections are authenticated."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from horovod import _core

ALLGATHER = _core.operations["allgather"]
BROADCAST = _core.operations["broadcast"]
LENGTH_BYTES = 8


@functools.cache
def pickler() -> Any:
    """Returns cloudpickle or, without it, pickle, which can't send functions and classes of __main__."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return importlib.import_module("pickle")


def broadcast_bytes(data: bytearray | None, root: int, name: str, process_set: int) -> bytearray:
    """Returns the root's bytes, by two broadcasts, <name>.sz and <name>.t. The other ranks pass None."""
    request = _core.describe(BROADCAST, root=root, process_set=process_set)
    length = bytearray(len(data or b"").to_bytes(LENGTH_BYTES, "little"))
    _core.run(request, f"{name}.sz", (length,))
    data = bytearray(int.from_bytes(length, "little")) if data is None else data
    _core.run(request, f"{name}.t", (data,))
    return data


def gather_bytes(data: bytearray, name: str, process_set: int) -> list[memoryview]:
    """Returns every rank's bytes, in rank order."""
    length = bytearray(len(data).to_bytes(LENGTH_BYTES, "little"))
    request = _core.describe(ALLGATHER, process_set=process_set, grouped=True)
    gathered = _core.run(request, name, (length, data))
    assert gathered is not None
    lengths, everything = (memoryview(result) for result in gathered)
    parts, end = [], 0
    for at in range(0, len(lengths), LENGTH_BYTES):
        start, end = end, end + int.from_bytes(lengths[at : at + LENGTH_BYTES], "little")
        parts.append(everything[start:end])
    return parts
