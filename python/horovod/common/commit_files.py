"""Commits in files, from which a job can start when all of its processes have ended.

A folder has the two newest ones. Each is written while training goes on, under another name until it is
complete, and has a checksum, so that a file that was damaged or cut off is noticed and the one before it is
used.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from horovod import _core
from horovod.common.exchange import pickler

_KEPT = 2
_NAME = re.compile(r"commit-(\d{15})")
_MAGIC = b"horovod commit 1"
_HEADER = struct.Struct("<16sQQ")  # bytes of the description, and of the memory
_CHECKSUM = struct.Struct("<I")  # of all that is before it
_PIECE_BYTES = 1 << 22


class CommitFiles:
    """The files of one state. One thread at a time.

    Args:
        folder: where they are; it is made when the first one is written.
        seconds: how much time passes between two of them, at least.
    """

    def __init__(self, folder: str | os.PathLike[str], seconds: float) -> None:
        self._folder = Path(folder)
        self._seconds = seconds
        self._next = time.monotonic() + seconds
        self._writer: threading.Thread | None = None
        self._copied = threading.Event()  # the commit that is being written is in memory of its own
        self._copied.set()

    def write_if_due(self, version: int, contents: Callable[[], tuple[Any, list[Any]]]) -> None:
        """Starts to write a commit if it is time. Its memory must not change before `wait` has returned."""
        if time.monotonic() < self._next or (self._writer and self._writer.is_alive()):
            return
        self._next = time.monotonic() + self._seconds
        description, memory = contents()
        staged = _core.Snapshot()
        staged.save(version, memory)
        self._copied.clear()
        length = sum(len(each) for each in memory)
        arguments = (staged, version, pickler().dumps(description), length)
        self._writer = threading.Thread(target=self._write, args=arguments, name="horovod-commit-file")
        self._writer.start()

    def wait(self) -> None:
        """Waits until the memory of the commit may change; it may still be on its way to the disk."""
        self._copied.wait()

    def _write(self, staged: _core.Snapshot, version: int, description: bytes, length: int) -> None:
        """Runs in a thread of its own. Training goes on if there is no room."""
        partial = self._folder / f".commit-{os.getpid()}"
        try:
            staged.wait()
            self._copied.set()
            self._folder.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                _write_all(file, _pieces_of(staged, version, description, length))
            partial.replace(self._path(version))
            self._remove_old()
        except OSError as error:
            warnings.warn(f"can't write a commit to {self._folder}: {error}", stacklevel=1)
            with contextlib.suppress(OSError):
                partial.unlink()
        finally:
            self._copied.set()

    def _remove_old(self) -> None:
        for number in self.numbers()[_KEPT:]:
            self._path(number).unlink()
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _path(self, number: int) -> Path:
        return self._folder / f"commit-{number:015}"

    def numbers(self) -> list[int]:
        """Returns the versions of the commits that are there, the newest first."""
        names = [_NAME.fullmatch(path.name) for path in self._folder.glob("commit-*")]
        return sorted((int(name[1]) for name in names if name), reverse=True)

    def read(self, number: int, make_room: Callable[[Any], list[Any]]) -> bool:
        """Fills the memory that `make_room` returns; false: the file is damaged."""
        try:
            with self._path(number).open("rb") as file:
                description, memory = _read_all(file)
        except (OSError, ValueError) as error:
            warnings.warn(f"{self._path(number)} is not used: {error}", stacklevel=1)
            return False
        room = make_room(pickler().loads(description))
        if sum(len(each) for each in room) != len(memory):
            raise ValueError(f"{self._path(number)} is a commit of another state than that of this program")
        staged = _core.Snapshot()
        staged.save(number, [memory])
        staged.wait()
        staged.read(number, 0, room)
        return True


def _pieces_of(staged: _core.Snapshot, version: int, description: bytes, length: int) -> Iterator[Any]:
    yield _HEADER.pack(_MAGIC, len(description), length)
    yield description
    for start in range(0, length, _PIECE_BYTES):
        piece = bytearray(min(_PIECE_BYTES, length - start))
        staged.read(version, start, [piece])
        yield piece


def _write_all(file: BinaryIO, pieces: Iterator[Any]) -> None:
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
        file.write(piece)
    file.write(_CHECKSUM.pack(checksum))
    file.flush()
    os.fsync(file.fileno())


def _read_all(file: BinaryIO) -> tuple[bytearray, bytearray]:
    """Returns description and memory.

    Raises:
        ValueError: the file is no commit, or is damaged.
    """
    header = file.read(_HEADER.size)
    left = os.fstat(file.fileno()).st_size - _HEADER.size - _CHECKSUM.size
    if len(header) < _HEADER.size or header[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it is no commit")
    _, *lengths = _HEADER.unpack(header)
    if sum(lengths) != left:
        raise ValueError("it is cut off")
    checksum, parts = zlib.crc32(header), []
    for length in lengths:
        parts.append(bytearray(length))
        file.readinto(parts[-1])  # type: ignore[attr-defined]
        checksum = zlib.crc32(parts[-1], checksum)
    if file.read() != _CHECKSUM.pack(checksum):
        raise ValueError("its checksum is wrong")
    return parts[0], parts[1]
