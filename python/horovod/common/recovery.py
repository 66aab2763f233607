"""How the ranks of an epoch come to one state: an agreement on the commit that counts, and its transfer.

The newest commit that a rank has counts. Ranks that have it keep it and move nothing. The others read it from
the copy of their host, or receive it from one rank of each host, which share the work, and no further rank
takes part. Whoever is interrupted has its own commit still, so the next epoch starts over.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from horovod import _core
from horovod.common import resets
from horovod.common.commit_files import CommitFiles
from horovod.common.exchange import BROADCAST, broadcast_bytes, gather_bytes, pickler
from horovod.common.host_copy import HostCopy

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
        host_copy: has the last `host_copy_parts` vectors of the memory in the copy of this host; None: all
            ranks keep a copy of everything.
        host_copy_parts: see `host_copy`.
        files: where the commits of an earlier job are; None: nowhere.
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
        self.host_copy: HostCopy | None = None
        self.host_copy_parts = 0
        self.files: CommitFiles | None = None


_FORMAT = struct.Struct("<??qqqqqqq")  # of a record
_NUMBERS = struct.Struct("<qq")  # of a commit that is kept in memory, and of a file


class _Record(NamedTuple):
    """What a rank says in the agreement."""

    holds: bool
    shares: bool  # see Commit.share
    version: int
    transfers: int
    host: int
    copied: int = -1  # the number that its host's copy has, see HostCopy
    number: int = -1  # of its own commit there
    top: int = -1  # the highest number that it knows
    steps: int = 0  # since the commit, see HostCopy.steps

    def pack(self) -> bytearray:
        return bytearray(_FORMAT.pack(*self))

    @classmethod
    def unpack(cls, data: memoryview) -> _Record:
        return cls(*_FORMAT.unpack(data))


class _Verdict(NamedTuple):
    """What all ranks conclude from the records."""

    version: int  # of the commit that counts
    sources: list[int]  # ranks that send, one of each host
    receivers: list[int]
    far: list[int]  # receivers whose host has no copy
    first_set: int  # an id from which on ids of sets are free
    top: int  # no number of a host's copy is higher


def _host() -> int:
    name = os.environ.get("HOROVOD_HOST_ID") or os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()
    return zlib.crc32(name.encode())


def decide(records: Sequence[_Record]) -> _Verdict:
    """Returns the same verdict on every rank. If no rank holds a commit, what rank 0 has counts.

    That of rank 0 also counts if only rank 0 can give away a part of it. A newer one has not returned on all
    ranks, as rank 0 lacks it. Of ranks that could not undo steps since the commit, those with the fewest
    count.
    """
    first = records[0]
    held = [record.version for record in records if record.holds]
    commit = first.version if not held or (first.shares and first.holds) else max(held)
    steps = min((each.steps for each in records if each.holds and each.version == commit), default=0)
    holders = [
        rank
        for rank, each in enumerate(records)
        if each.holds and each.version == commit and each.steps == steps
    ] or [0]
    sources: dict[int, int] = {}
    for rank in holders:
        sources.setdefault(records[rank].host, rank)
    receivers = [rank for rank in range(len(records)) if rank not in holders]
    number = records[holders[0]].number
    far = [rank for rank in receivers if not held or number < 0 or records[rank].copied != number]
    first_set = _FIRST_SET + max(record.transfers for record in records)
    return _Verdict(commit, [*sources.values()], receivers, far, first_set, max(each.top for each in records))


def is_alone() -> bool:
    """Returns true if there is no other rank to agree with, because of the size of the job or before it."""
    return not _core.is_initialized() or _core.placement()[1] == 1


def recover(commit: Commit, joins: bool) -> None:
    """Gives every rank the commit that counts. All ranks call it.

    Args:
        commit: the copy of this rank.
        joins: the ranks have just come together; if none of them has a commit, one of an earlier job counts.

    Raises:
        HorovodInternalError: a rank is lost. The copy of a rank that was to receive one is lost.
        RuntimeError: on rank 0, which lacks what only it could give to the others.
    """
    global _transfers
    host_copy = commit.host_copy
    copied = host_copy.join() if host_copy and _core.is_initialized() else -1
    if is_alone():
        if joins and not commit.holds:
            _load_alone(commit)
        return
    own = _core.placement()[0]
    record = _Record(commit.holds, commit.share is not None, commit.version, _transfers, _host())
    if host_copy:
        number = host_copy.number if host_copy.tensors else -1
        record = record._replace(copied=copied, number=number, steps=host_copy.steps, top=host_copy.top)
    records = [_Record.unpack(each) for each in gather_bytes(record.pack(), "elastic.agreement", 0)]
    if joins and not any(each.holds for each in records):
        records = _load(commit, records, own)
    verdict = decide(records)
    if host_copy:
        host_copy.top = verdict.top
    if not verdict.receivers:
        return
    if own == 0 and record.shares and not record.holds and any(each.holds for each in records):
        raise RuntimeError(
            "rank 0 lacks the commit that others have, and a handler of the state can only give away what "
            "rank 0 has: this process ends, and the others go on"
        )
    _transfers = verdict.first_set - _FIRST_SET + 2 * len(verdict.sources)
    if own in verdict.receivers:
        _receive(commit, verdict, own)
    elif own in verdict.sources:
        _send(commit, verdict, own)
    if commit.share:
        commit.share()
    if own in verdict.receivers:
        commit.version, commit.holds = verdict.version, True
        commit.fill()
    # A rank whose function returns now would leave the others in the middle of the transfer.
    gather_bytes(bytearray(1), "elastic.received", 0)


@contextlib.contextmanager
def _kept(commit: Commit) -> Iterator[tuple[int, Callable[[], None]]]:
    """Gives the version of the commit that this host keeps in memory, or -1, and what takes it."""
    kept = commit.host_copy.kept if commit.host_copy else None
    if not kept:
        yield -1, lambda: None
        return
    version = kept.find(_core.placement()[2] == 0)

    def take() -> None:
        kept.read(commit.make_room)
        commit.version, commit.holds = version, True
        commit.fill()

    yield version, take
    kept.forget()


def _load_alone(commit: Commit) -> None:
    numbers = commit.files.numbers() if commit.files else []
    with _kept(commit) as (kept, take):
        if kept >= 0 and kept >= max(numbers, default=-1):
            take()
        else:
            _load_file(commit, numbers)


def _load(commit: Commit, records: list[_Record], own: int) -> list[_Record]:
    """Lets ranks read the newest commit of an earlier job; returns the records after that.

    All ranks whose host keeps it in memory read it there. Otherwise the first rank that sees its file does,
    as each host may have files of its own; a file that is damaged is passed over.
    """
    with _kept(commit) as (kept, take):
        return _load_newest(commit, records, own, kept, take)


def _load_newest(
    commit: Commit, records: list[_Record], own: int, kept: int, take: Callable[[], None]
) -> list[_Record]:
    numbers = commit.files.numbers() if commit.files else []
    while True:
        seen = bytearray(_NUMBERS.pack(kept, numbers[0] if numbers else -1))
        found = [_NUMBERS.unpack(each) for each in gather_bytes(seen, "elastic.found", 0)]
        newest = max(map(max, found))
        if newest < 0:
            return records
        readers = [rank for rank, each in enumerate(found) if each[0] == newest]
        if any(each.shares for each in records):
            readers = readers[:1]  # the others receive it, and with it what is in no memory
        if own in readers:
            take()
        elif not readers and own == [each[1] for each in found].index(newest):
            numbers = _load_file(commit, numbers[:1]) or numbers[1:]
        done = gather_bytes(bytearray((commit.holds,)), "elastic.loaded", 0)
        if any(each[0] for each in done):
            return [
                record._replace(holds=True, version=newest) if each[0] else record
                for record, each in zip(records, done, strict=True)
            ]


def _load_file(commit: Commit, numbers: list[int]) -> list[int]:
    """Takes the first commit of these files that can be read; returns it, or nothing."""
    for number in numbers:
        if commit.files and commit.files.read(number, commit.make_room):
            commit.version, commit.holds = number, True
            commit.fill()
            return [number]
    return []


def _open_sets(sources: Sequence[int], receivers: Sequence[int], first_set: int, own: int) -> dict[int, int]:
    """Opens the sets of the sources of which this rank is a member; returns their ids by source.

    Each source has one with all receivers. The set of all ranks needs no other one.
    """
    sets = {}
    everybody = len(sources) == 1 and 1 + len(receivers) == _core.placement()[1]
    for place, source in enumerate(sources):
        if own == source or own in receivers:
            sets[source] = 0 if everybody else first_set + place
            if not everybody:
                _core.process_set_open(sets[source], [source, *receivers])
    return sets


def _pieces(memory: list[Any]) -> list[Any]:
    return [each[at : at + _PIECE_BYTES] for each in memory for at in range(0, len(each), _PIECE_BYTES)]


def _exchange(memory: list[Any], sources: Sequence[int], sets: dict[int, int]) -> None:
    """Sends or receives every piece of the memory that comes from a source whose set is open here."""
    handles = []
    try:
        for number, piece in enumerate(_pieces(memory)):
            source = sources[number % len(sources)]
            if source in sets:
                resets.move("sent" if source == _core.placement()[0] else "received", len(piece))
                request = _core.describe(BROADCAST, root=source, process_set=sets[source])
                handles.append(_core.submit(request, f"elastic.state.{number}", (piece,)))
    finally:
        _core.wait(handles)  # also after an error: until then they write to the memory
    for number in filter(None, sets.values()):
        _core.process_set_remove(number)


def _exchange_far(memory: list[Any], verdict: _Verdict, own: int) -> None:
    """Sends what the host's copies have to receivers on other hosts, or receives it."""
    if verdict.far and memory:
        first_set = verdict.first_set + len(verdict.sources)
        sets = _open_sets(verdict.sources, verdict.far, first_set, own)
        _exchange(memory, verdict.sources, sets)


def _send(commit: Commit, verdict: _Verdict, own: int) -> None:
    description, memory = commit.contents()
    end = len(memory) - commit.host_copy_parts
    sets = _open_sets(verdict.sources, verdict.receivers, verdict.first_set, own)
    if own == verdict.sources[0]:
        sent = bytearray(pickler().dumps((description, end)))
        resets.move("sent", len(sent))
        broadcast_bytes(sent, own, "elastic.description", sets[own])
    _exchange(memory[:end], verdict.sources, sets)
    _exchange_far(memory[end:], verdict, own)


def _receive(commit: Commit, verdict: _Verdict, own: int) -> None:
    first = verdict.sources[0]
    sets = _open_sets(verdict.sources, verdict.receivers, verdict.first_set, own)
    data = broadcast_bytes(None, first, "elastic.description", sets[first])
    resets.move("received", len(data))
    description, end = pickler().loads(data)
    commit.holds = False
    memory = commit.make_room(description)
    _exchange(memory[:end], verdict.sources, sets)
    if own in verdict.far:
        _exchange_far(memory[end:], verdict, own)
    elif commit.host_copy and memory[end:]:
        commit.host_copy.read(memory[end:])
