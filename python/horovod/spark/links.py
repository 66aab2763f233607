"""Connections between the program and the tasks of an elastic job. Both ends prove that they know the secret.

What travels are dicts as JSON, never pickles.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

MESSAGE_BYTES = 1 << 20


class Link:
    """One end of a connection. One thread receives and closes it; any thread sends and ends it."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def send(self, **message: Any) -> None:
        """Sends a dict; OSError if the other end has gone."""
        with self._lock:
            self._connection.send_bytes(json.dumps(message).encode())

    def receive(self) -> dict[str, Any] | None:
        """Returns the next dict; None: the other end has gone, or sends something else."""
        try:
            found = json.loads(self._connection.recv_bytes(MESSAGE_BYTES))
        except (EOFError, OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def end(self) -> None:
        """Lets both ends receive None; the descriptor stays open for the thread that reads from it."""
        with (
            self._lock,
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(self._connection.fileno())) as same,
        ):
            same.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes this end."""
        with self._lock, contextlib.suppress(OSError):
            self._connection.close()


def connect(host: str, port: int, secret: str) -> Link:
    """Connects to ``Links``.

    Raises:
        OSError: it can't be reached.
        multiprocessing.AuthenticationError: it does not know the secret.
    """
    return Link(Client((host, port), authkey=secret.encode()))


class Links:
    """Accepts connections, and serves each in a thread of its own.

    Args:
        host: the address to listen at.
        secret: what both ends know.
        serve: gets a Link, which is closed when it returns.
    """

    def __init__(self, host: str, secret: str, serve: Callable[[Link], None]) -> None:
        self._listener = Listener((host, 0), backlog=256)
        self.port: int = self._listener.address[1]
        self._serve, self._secret, self._closed = serve, secret.encode(), threading.Event()
        threading.Thread(target=self._accept, daemon=True, name="horovod tasks").start()

    def close(self) -> None:
        """Accepts no more."""
        self._closed.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection = self._listener.accept()
            except OSError:  # the connection was given up, or this is closed
                continue
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: Connection) -> None:
        """A connection that sends nothing keeps only this thread."""
        link = Link(connection)
        with contextlib.closing(link), contextlib.suppress(AuthenticationError, EOFError, OSError):
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
            self._serve(link)
