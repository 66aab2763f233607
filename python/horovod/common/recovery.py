"""How the ranks of an epoch come to one state: an agreement on the commit that counts, and its transfer.

The newest commit that a rank has counts. Ranks that have it keep it and move nothing. The others receive it
from one rank of each host, which share the work, and no further rank takes part. Whoever is interrupted has
its own commit still, so the next epoch starts over.
"""

from __future__ import annotations

import os
import socket
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from horovod import _core
from horovod.common import resets
from horovod.common.exchange import BROADCAST, broadcast_bytes, gather_bytes, pickler

_FIRST_SET = (1 << 20) + (1 << 28)  # ids of the sets in which states are sent; other opened sets are below
_PIECE_BYTES = 1 << 24  # a larger tensor is sent in pieces, by several sources

_transfers = 0  # sets that this process has seen opened in any epoch


class Commit:
    """The copy of a state that a rank keeps.

    Memory is a list of vectors of bytes, which the engine can reach and which can be sliced.

    Args:
        contents: returns a description that can be pickled, and the memory that belongs to it.
        make_room: returns memory for the contents of another rank, by their description.
        fill: is called when that memory has been filled.

    Attributes:
        version: commits so far.
        holds: this copy belongs to the job, not only to this process, and is complete.
        share: all ranks call it to give those contents of rank 0 that are in no memory to the others; None:
            there are no such contents.
    """

    def __init__(
        self,
        contents: Callable[[], tuple[Any, list[Any]]],
        make_room: Callable[[Any], list[Any]],
        fill: Callable[[], None],
    ) -> None:
        self.contents, self.make_room, self.fill = contents, make_room, fill
        self.version = 0
        self.holds = False
        self.share: Callable[[], None] | None = None


_FORMAT = struct.Struct("<??qqq")  # of a record


class _Record(NamedTuple):
    """What a rank says in the agreement."""

    holds: bool
    shares: bool  # see Commit.share
    version: int
    transfers: int
    host: int

    def pack(self) -> bytearray:
        return bytearray(_FORMAT.pack(*self))

    @classmethod
    def unpack(cls, data: memoryview) -> _Record:
        return cls(*_FORMAT.unpack(data))


class _Verdict(NamedTuple):
    """What all ranks conclude from the records."""

    version: int
    sources: list[int]  # ranks that send, one of each host
    receivers: list[int]
    first_set: int  # the id of the set of the first source; each has one with all receivers. 0: all ranks


def _host() -> int:
    name = os.environ.get("HOROVOD_HOST_ID") or os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()
    return zlib.crc32(name.encode())


def decide(records: Sequence[_Record]) -> _Verdict:
    """Returns the same verdict on every rank. If no rank holds a commit, what rank 0 has counts.

    That of rank 0 also counts if only rank 0 can give away a part of it. A newer one has not returned on all
    ranks, as rank 0 lacks it.
    """
    first = records[0]
    held = [record.version for record in records if record.holds]
    version = first.version if not held or (first.shares and first.holds) else max(held)
    holders = [rank for rank, each in enumerate(records) if each.holds and each.version == version] or [0]
    sources: dict[int, int] = {}
    for rank in holders:
        sources.setdefault(records[rank].host, rank)
    receivers = [rank for rank in range(len(records)) if rank not in holders]
    everybody = len(sources) + len(receivers) == len(records) and len(sources) == 1
    number = 0 if everybody else _FIRST_SET + max(record.transfers for record in records)
    return _Verdict(version, [*sources.values()], receivers, number)


def is_alone() -> bool:
    """Returns true if there is no other rank to agree with, because of the size of the job or before it."""
    return not _core.is_initialized() or _core.placement()[1] == 1


def recover(commit: Commit) -> None:
    """Gives every rank the commit that counts. All ranks call it.

    Raises:
        HorovodInternalError: a rank is lost. The copy of a rank that was to receive one is lost.
        RuntimeError: on rank 0, which lacks what only it could give to the others.
    """
    global _transfers
    if is_alone():
        return
    own = _core.placement()[0]
    record = _Record(commit.holds, commit.share is not None, commit.version, _transfers, _host())
    records = [_Record.unpack(each) for each in gather_bytes(record.pack(), "elastic.agreement", 0)]
    verdict = decide(records)
    if not verdict.receivers:
        return
    if own == 0 and record.shares and not record.holds and any(each.holds for each in records):
        raise RuntimeError(
            "rank 0 lacks the commit that others have, and a handler of the state can only give away what "
            "rank 0 has: this process ends, and the others go on"
        )
    if verdict.first_set:
        _transfers = verdict.first_set - _FIRST_SET + len(verdict.sources)
    if own in verdict.receivers:
        _receive(commit, verdict)
    elif own in verdict.sources:
        _send(commit, verdict, own)
    if commit.share:
        commit.share()
    if own in verdict.receivers:
        commit.version, commit.holds = verdict.version, True
        commit.fill()
    # A rank whose function returns now would leave the others in the middle of the transfer.
    gather_bytes(bytearray(1), "elastic.received", 0)


def _open_sets(verdict: _Verdict, own: int) -> dict[int, int]:
    """Opens the sets of the sources of which this rank is a member; returns their ids by source."""
    sets = {}
    for place, source in enumerate(verdict.sources):
        if own == source or own in verdict.receivers:
            sets[source] = verdict.first_set + place
            if verdict.first_set:
                _core.process_set_open(sets[source], [source, *verdict.receivers])
    return sets


def _pieces(memory: list[Any]) -> list[Any]:
    return [each[at : at + _PIECE_BYTES] for each in memory for at in range(0, len(each), _PIECE_BYTES)]


def _exchange(memory: list[Any], verdict: _Verdict, sets: dict[int, int]) -> None:
    """Sends or receives every piece of the memory that comes from a source whose set is open here."""
    handles = []
    try:
        for number, piece in enumerate(_pieces(memory)):
            source = verdict.sources[number % len(verdict.sources)]
            if source in sets:
                resets.move("sent" if source == _core.placement()[0] else "received", len(piece))
                request = _core.describe(BROADCAST, root=source, process_set=sets[source])
                handles.append(_core.submit(request, f"elastic.state.{number}", (piece,)))
    finally:
        _core.wait(handles)  # also after an error: until then they write to the memory
    for number in filter(None, sets.values()):
        _core.process_set_remove(number)


def _send(commit: Commit, verdict: _Verdict, own: int) -> None:
    description, memory = commit.contents()
    sets = _open_sets(verdict, own)
    if own == verdict.sources[0]:
        data = bytearray(pickler().dumps(description))
        resets.move("sent", len(data))
        broadcast_bytes(data, own, "elastic.description", sets[own])
    _exchange(memory, verdict, sets)


def _receive(commit: Commit, verdict: _Verdict) -> None:
    first = verdict.sources[0]
    sets = _open_sets(verdict, _core.placement()[0])
    data = broadcast_bytes(None, first, "elastic.description", sets[first])
    resets.move("received", len(data))
    description = pickler().loads(data)
    commit.holds = False
    _exchange(commit.make_room(description), verdict, sets)
