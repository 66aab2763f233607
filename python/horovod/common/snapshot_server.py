"""A process that keeps the memory of this host's snapshot when the ranks of a job have ended.

A rank starts it, or a user where a scheduler or container would end it with the ranks:

    python -m horovod.common.snapshot_server NAME SECONDS

It listens at a local address that is made of the user and the name. One process at a time owns the snapshot,
and gives it the descriptor of the memory. When none does, it ends after some seconds, or at once without
memory. It knows nothing of what is in there. Only the standard library is needed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import selectors
import socket
import struct
import sys
import time

PROCESS = "hvd-snapshots"  # its name in the system, by which horovodrun spares it: launch/guard.c
_CREDENTIALS = struct.Struct("3i")  # of a peer: process, user, group
IN_USE = 75  # exit code: there is such a server, or there was one a moment ago
_FIRST_SECONDS = 20.0  # at least, for the process that has started it to come, on a busy machine
_LONGEST = 64
_QUEUE = 128


def address_of(name: str) -> bytes:
    """Returns the local address of a name; another one for each user."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:40]
    return f"\0horovod-snapshots-{os.geteuid()}-{digest}".encode()


def credentials(connection: socket.socket) -> tuple[int, int]:
    """Returns process and user of the other side; process 0: it is not in this container."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(data)
    return process, user


class Server:
    """Answers all connections.

    Args:
        listener: of `address_of`.
        seconds: for how long it keeps memory that no process owns, or waits for the first process.
    """

    def __init__(self, listener: socket.socket, seconds: float) -> None:
        self._listener, self._seconds = listener, seconds
        self._owner: socket.socket | None = None
        self._memory = -1
        self._done = 0
        self._deadline = time.monotonic() + max(seconds, _FIRST_SECONDS)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def run(self) -> None:
        """Returns when nothing is left to be kept."""
        while True:
            wait = None if self._owner else max(0.0, self._deadline - time.monotonic())
            ready = self._selector.select(wait)
            if not ready and not self._owner and time.monotonic() >= self._deadline:
                return  # what arrived during a standstill was answered before
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._receive(key.fileobj)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        if credentials(connection)[1] == os.geteuid():
            self._selector.register(connection, selectors.EVENT_READ)
        else:
            connection.close()

    def _receive(self, connection: socket.socket) -> None:
        received: list[int] = []
        try:
            message, received, _, _ = socket.recv_fds(connection, _LONGEST, 1)
            if message:
                answer = self._answer(connection, message.split(), received)
                sent = [self._memory] if answer == b"found" else []
                socket.send_fds(connection, [answer], sent)
            else:
                self._end(connection)
        except OSError:  # it has ended, or does not read its answers
            self._end(connection)
        finally:
            for descriptor in received:
                os.close(descriptor)

    def _answer(self, connection: socket.socket, words: list[bytes], received: list[int]) -> bytes:
        if words == [b"find"] and self._memory >= 0:
            return b"found"
        if words == [b"own"]:
            if not self._owner:  # a job begins, or its first rank is another process
                self._owner, self._done = connection, 0
            return b"yes" if self._owner is connection else b"no %d" % credentials(self._owner)[0]
        if words == [b"keep"] and received and self._owner is connection:
            self._replace(received.pop())
            return b"yes"
        if words[:1] == [b"done"] and len(words) == 2 and words[1].isdigit():
            self._done += 1
            if self._done >= int(words[1]):
                self._replace(-1)
                self._deadline = time.monotonic()
            return b"yes"
        return b"no"

    def _replace(self, memory: int) -> None:
        if self._memory >= 0:
            os.close(self._memory)
        self._memory = memory

    def _end(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
        if self._owner is connection:
            self._owner = None
            self._deadline = time.monotonic() + (self._seconds if self._memory >= 0 else 0)


def _leave(listener: socket.socket) -> None:
    """Goes on in a child that no terminal or process group ends; this process ends when the child listens."""
    listens, done = os.pipe()
    if os.fork():
        os.close(done)
        os.read(listens, 1)
        os._exit(0)
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in range(3):
        os.dup2(nothing, file)
    listener.listen(_QUEUE)  # as this process, for those who ask which one it is
    for file in (nothing, listens, done):
        os.close(file)


def main(name: str, seconds: str, detach: str = "") -> None:
    """Is the server of a name until nothing is left to be kept."""
    with open("/proc/self/comm", "w") as own:
        own.write(PROCESS)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(address_of(name))
    except OSError as error:
        print(f"can't keep commits under the name {name}: {error}", file=sys.stderr)
        sys.exit(IN_USE if error.errno == errno.EADDRINUSE else 1)
    listener.listen(_QUEUE)
    if detach:
        _leave(listener)
    Server(listener, float(seconds)).run()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python -m horovod.common.snapshot_server NAME SECONDS [detach]")
    main(*sys.argv[1:])
