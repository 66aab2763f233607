"""A pipe between threads."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any


class Pipe:
    """One thread writes texts, which another one reads. A writer waits until its text has been read."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._texts: deque[Any] = deque()
        self._closed = False

    def write(self, buf: Any) -> int:
        """Waits for the reader; returns the length.

        Raises:
            ValueError: the pipe is closed.
        """
        with self._changed:
            if self._closed:
                raise ValueError("the pipe is closed")
            if buf:
                self._texts.append(buf)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or not self._texts)
        return len(buf)

    def read(self, length: int = -1, timeout: float | None = None) -> Any:
        """Returns the next text, or ``length`` characters of it; None at the end and after ``timeout`` s."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._texts, timeout)
            if not self._texts:
                return None
            text = self._texts.popleft()
            if 0 <= length < len(text):
                self._texts.appendleft(text[length:])
                text = text[:length]
            self._changed.notify_all()
            return text

    def flush(self) -> None:
        """Does nothing: a reader gets a text as soon as it is written."""

    def close(self) -> None:
        """Closes the pipe for both sides; unread texts can still be read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
