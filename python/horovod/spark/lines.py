"""The output of ranks on its way from Spark's tasks to the program that has called ``run``.

The program listens; each task connects once. The listener sends a random nonce, and then only receives. A
message is

    length of the rest (4 bytes) | HMAC-SHA256 (32) | stream (1: 0 is stdout, 1 stderr) | rank (4) | bytes

with numbers in big endian. The MAC is over the nonce, the number of the message on this connection and what
follows the MAC, so no message can be forged, left out, repeated or moved. Empty bytes end a stream.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

NONCE_BYTES, MAC_BYTES = 16, 32
LENGTH, HEAD = struct.Struct(">I"), struct.Struct(">BI")
DATA_BYTES = 1 << 16  # of one message
SHORTEST, LONGEST = MAC_BYTES + HEAD.size, MAC_BYTES + HEAD.size + DATA_BYTES
READ_BYTES = 1 << 18
CONNECT_SECONDS = 5.0
SEND_SECONDS = 60.0  # without progress, after which a task keeps its output
LAST_SECONDS = 5.0  # without more output, when all tasks have ended
MOST_SECONDS = 60.0  # of waiting for output and showing it then
UNAUTHENTICATED = 16  # connections beyond one for each rank

Show = Callable[[int, int, bytes], object]  # gets stream, rank and bytes


def _mac(secret: bytes, nonce: bytes, number: int, payload: bytes) -> bytes:
    return hmac.digest(secret, nonce + number.to_bytes(8, "big") + payload, "sha256")


class Decoder:
    """The messages of one connection."""

    def __init__(self, secret: bytes) -> None:
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self._secret, self._number, self._held = secret, 0, b""

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yields stream, rank and bytes of the messages that are complete; ValueError if one is forged."""
        self._held += data
        while len(self._held) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._held)
            if not SHORTEST <= length <= LONGEST:
                raise ValueError(f"a message of {length} bytes")
            rest = self._held[LENGTH.size : LENGTH.size + length]
            if len(rest) < length:
                return
            mac, payload = rest[:MAC_BYTES], rest[MAC_BYTES:]
            if not hmac.compare_digest(mac, _mac(self._secret, self.nonce, self._number, payload)):
                raise ValueError("a message with a wrong MAC")
            self._number += 1
            self._held = self._held[LENGTH.size + length :]
            stream, rank = HEAD.unpack_from(payload)
            if stream > 1:
                raise ValueError(f"a message for stream {stream}")
            yield stream, rank, payload[HEAD.size :]


class Sender:
    """A task's connection to the program.

    Raises:
        OSError: the program can't be reached, or does not answer.
    """

    def __init__(self, host: str, port: int, secret: bytes, rank: int) -> None:
        self._secret, self._rank, self._number = secret, rank, 0
        self._socket = socket.create_connection((host, port), CONNECT_SECONDS)
        self._nonce = b""
        while len(self._nonce) < NONCE_BYTES:
            part = self._socket.recv(NONCE_BYTES - len(self._nonce))
            if not part:
                self._socket.close()
                raise ConnectionError(f"{host}:{port} has closed the connection")
            self._nonce += part
        self._socket.settimeout(SEND_SECONDS)

    def send(self, stream: int, data: bytes) -> None:
        """Sends bytes of a stream; OSError if they may be lost."""
        for at in range(0, max(len(data), 1), DATA_BYTES):
            payload = HEAD.pack(stream, self._rank) + data[at : at + DATA_BYTES]
            mac = _mac(self._secret, self._nonce, self._number, payload)
            self._number += 1
            self._socket.sendall(LENGTH.pack(len(mac) + len(payload)) + mac + payload)

    def close(self) -> None:
        """Closes the connection; what was sent still arrives."""
        self._socket.close()


class Listener:
    """Receives the output of all ranks in a thread, and shows it there.

    Args:
        host: the address to listen at.
        ranks: how many there are.
        show: gets stream, rank and bytes of every message.
    """

    def __init__(self, host: str, ranks: int, show: Show) -> None:
        self.secret = secrets.token_bytes(32)
        self._limit, self._show = ranks + UNAUTHENTICATED, show
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, 0), family=family)
        self.port: int = self._server.getsockname()[1]
        self._wake, self._closing = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="horovod output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends once the tasks have closed their connections, or have sent nothing for LAST_SECONDS."""
        self._closing.close()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._server, self._wake:
            for each in (self._server, self._wake):
                selector.register(each, selectors.EVENT_READ)
            limit: float | None = None  # None: `close` was not called
            try:
                while limit is None or len(selector.get_map()) > 1:
                    ready = selector.select(None if limit is None else LAST_SECONDS)
                    if limit and (not ready or time.monotonic() > limit):
                        return
                    for key, _ in ready:
                        if key.fileobj is self._wake:
                            selector.unregister(self._wake)
                            limit = time.monotonic() + MOST_SECONDS
                        elif key.fileobj is self._server:
                            self._accept(selector)
                        else:
                            self._read(selector, key)
            finally:
                for key in [*selector.get_map().values()]:
                    if key.data:
                        key.fileobj.close()  # type: ignore[union-attr]

    def _accept(self, selector: selectors.BaseSelector) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            connection.setblocking(False)
            decoder = Decoder(self.secret)
            if len(selector.get_map()) - 2 < self._limit and connection.send(decoder.nonce) == NONCE_BYTES:
                selector.register(connection, selectors.EVENT_READ, decoder)
            else:
                connection.close()

    def _read(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        connection, decoder = key.fileobj, key.data
        assert isinstance(connection, socket.socket)
        try:
            data = connection.recv(READ_BYTES)
            for message in decoder.feed(data):
                self._show(*message)
        except (OSError, ValueError):
            data = b""
        if not data:
            selector.unregister(connection)
            connection.close()
