"""The commits of a host in memory that stays when all ranks have ended, for HOROVOD_ELASTIC_KEEP.

The host's copy (`host_copy.py`) has with each of its versions what only the first rank of the host has, so
that it is a whole commit. A process apart keeps that memory, see `snapshot_server.py`, and the ranks of a job
that starts later read it there.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod import _core
from horovod.common import snapshot_server
from horovod.common.exchange import pickler

_HEADER = struct.Struct("<qQ")  # the version of a commit, and the bytes of its description
_ANSWER_SECONDS = 20.0  # for the server to answer, on a busy machine
_OWNED_SECONDS = 10.0  # for the processes of an earlier job to end
_PAUSE = 0.05
_LONGEST = 64
_VARIABLES = ("PATH", "LD_LIBRARY_PATH")  # by which Python finds itself

_connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_connections() -> None:
    """A child of fork() must not look like the process that owns the memory."""
    for connection in [*_connections]:
        connection.close()


os.register_at_fork(after_in_child=_close_connections)


def own_parts(version: int, description: Any, memory: Sequence[Any], end: int) -> list[Any]:
    """Returns what the first rank of a host adds to the host's copy, which has the memory from `end` on."""
    data = pickler().dumps((description, end))
    return [bytearray(_HEADER.pack(version, len(data)) + data), *memory[:end]]


def _bytes(memory: Iterable[Any]) -> int:
    return sum(len(each) for each in memory)


def _ask(connection: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> tuple[bytes, int]:
    """Returns the answer, and the descriptor that came with it or -1."""
    socket.send_fds(connection, [message], descriptors)
    answer, received, _, _ = socket.recv_fds(connection, _LONGEST, 1)
    if not answer:
        raise ConnectionError("the process that keeps the commits has ended")
    return answer, received[0] if received else -1


class KeptSnapshot:
    """What the server of a name keeps. One thread at a time.

    Args:
        name: of the training; jobs of one user find each other's commits by it.
        seconds: for how long commits are kept without a job.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._owned: socket.socket | None = None  # the connection by which this process owns the memory
        self._found: _core.Snapshot | None = None
        self.is_given = False  # the server has the memory into which this epoch copies

    def _connect(self) -> socket.socket | None:
        """Returns a connection to the server, or None if there is no server."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(snapshot_server.address_of(self._name))
        except ConnectionRefusedError:
            connection.close()
            return None
        if snapshot_server.credentials(connection)[1] == os.geteuid():
            return connection
        connection.close()
        raise RuntimeError(
            f"a process of another user has the address for HOROVOD_ELASTIC_NAME={self._name}: choose "
            "another name"
        )

    def _own(self) -> int:
        """Starts the server if there is none. Returns which other process owns the memory.

        That is -1 if none does, and 0 if the server has just ended: another one can be started.

        Raises:
            OSError: the server can't be started.
        """
        if self._owned:
            return -1
        connection = self._connect()
        if not connection:
            self._start()
            connection = self._connect()
        if not connection:
            return 0
        try:
            answer = _ask(connection, b"own")[0].split()
        except ConnectionError:
            answer = [b"no", b"0"]
        if answer[0] != b"yes":
            connection.close()
            return int(answer[1])
        _connections.add(connection)
        self._owned = connection
        return -1

    def _start(self) -> None:
        server = [snapshot_server.__file__, self._name, str(self._seconds), "detach"]
        words = [sys.executable, "-I", "-S", *server]
        environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        made = subprocess.run(words, env=environment, capture_output=True, stdin=subprocess.DEVNULL)
        if made.returncode not in (0, snapshot_server.IN_USE):
            raise OSError(f"{' '.join(words)} has ended: {made.stderr.decode(errors='replace')}")

    def find(self, owns: bool) -> int:
        """Returns the version of the commit that an earlier job has left on this host; -1: there is none.

        Args:
            owns: this process is the first of its host, whose commits will be kept.

        Raises:
            RuntimeError: another job has the same name and still runs.
        """
        deadline = time.monotonic() + _OWNED_SECONDS
        while owns and (process := self._own()) >= 0:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"HOROVOD_ELASTIC_NAME={self._name} is used by another job of this user, to which "
                    f"process {process} belongs: each training needs a name of its own"
                )
            time.sleep(_PAUSE)
        _, descriptor = self._query(b"find")
        if descriptor < 0:
            return -1
        try:
            self._found = _core.Snapshot(descriptor)
        except ValueError as error:
            warnings.warn(f"commits that were kept in memory are not used: {error}", stacklevel=2)
            return -1
        finally:
            os.close(descriptor)
        return self._header()[0]

    def _query(self, message: bytes) -> tuple[bytes, int]:
        """Returns the server's answer as `_ask` does; nothing and -1 if there is no server."""
        connection = self._connect()
        if not connection:
            return b"", -1
        with connection:
            try:
                return _ask(connection, message)
            except ConnectionError:  # it has just ended
                return b"", -1

    def _header(self) -> tuple[int, int]:
        """Returns the version of the commit that was found, and the bytes of its description; -1: none."""
        assert self._found
        number, start, own = self._found.version()
        header = bytearray(_HEADER.pack(-1, 0))
        if own:
            self._found.read(number, start, [header])
        version, length = _HEADER.unpack(header)
        return version, length

    def read(self, make_room: Callable[[Any], list[Any]]) -> None:
        """Fills the memory that `make_room` returns with the commit that was found.

        Raises:
            ValueError: it is that of another state.
        """
        assert self._found
        number, start, own = self._found.version()
        data = bytearray(self._header()[1])
        self._found.read(number, start + _HEADER.size, [data])
        description, end = pickler().loads(data)
        at = _HEADER.size + len(data)
        try:
            room = make_room(description)
            if (_bytes(room[end:]), _bytes(room[:end]) + at) != (start, own):
                raise ValueError("its tensors have other sizes")
        except ValueError as error:
            raise ValueError(
                f"the commit that this host keeps in memory under HOROVOD_ELASTIC_NAME={self._name} does not "
                "fit this program: choose another name, or end the process hvd-snapshots, which keeps it: "
                f"{error}"
            ) from error
        self._found.read(number, 0, room[end:])
        self._found.read(number, start + at, room[:end])

    def forget(self) -> None:
        """Releases the memory that was found, so that it is free once the server has other memory."""
        self._found = None

    def begin_epoch(self) -> None:
        """Notes that the host's copy may be in other memory from now on."""
        self.is_given = False

    def give(self, snapshot: _core.Snapshot) -> None:
        """Lets the server keep this memory, in place of what it has, unless another process owns that."""
        try:
            if self._own() < 0 and self._owned:
                _ask(self._owned, b"keep", [snapshot.descriptor()])
                self.is_given = True
        except OSError as error:
            warnings.warn(f"commits are not kept in memory (HOROVOD_ELASTIC_KEEP): {error}", stacklevel=2)
            self._owned = None

    def done(self, ranks: int) -> None:
        """Reports that the function of this rank has returned; the memory is freed when all have.

        Args:
            ranks: on this host.
        """
        self._query(b"done %d" % ranks)
