"""Passes the output of a process on to streams of the caller."""

from __future__ import annotations

import codecs
import contextlib
import io
import locale
import os
import re
import select
import selectors
import subprocess
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from horovod.common.caller import warn_caller

LAST_LINES = 40
LINE = re.compile(r"[^\n]*\n|[^\n]+")
HELD_CHARACTERS = 1 << 16  # of an incomplete line; a longer one is passed on in parts
PIECE = 1024  # characters; encoded, they fit into a pipe that polls as writable
PIPE_BYTES = 1 << 20  # the most that a pipe holds, so one read empties it
CHECK_SECONDS = 0.5  # between checks whether the process has ended while others keep its pipes open
FLUSHES = 100  # attempts, for a stream that polls as writable but accepts nothing


def _encoding() -> str:
    """Returns the encoding in which Python programs write to a pipe in this environment."""
    with contextlib.suppress(LookupError):
        return codecs.lookup(os.environ.get("PYTHONIOENCODING", "").partition(":")[0]).name
    return locale.getpreferredencoding(False)


def _wait_until_ready(stream: Any) -> None:
    waiting = select.poll()
    waiting.register(stream, select.POLLOUT)
    waiting.poll()


def _write(stream: Any, text: str) -> None:
    """Writes a text; characters that the stream's encoding lacks become escapes, such as ``\\xf6``."""
    if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
        # With `python -u` a write to a full non-blocking pipe silently drops the rest of the text.
        _wait_until_ready(stream)
    try:
        stream.write(text)
    except UnicodeEncodeError:
        name = "ascii"
        with contextlib.suppress(AttributeError, LookupError, TypeError):
            name = codecs.lookup(stream.encoding).name
        stream.write(text.encode(name, "backslashreplace").decode(name))


def _flush_when_ready(stream: Any) -> None:
    """Flushes the buffer of a non-blocking pipe, as fast as its reader reads."""
    for _ in range(FLUSHES):
        _wait_until_ready(stream)
        with contextlib.suppress(BlockingIOError):
            stream.flush()
            return
    raise BlockingIOError("the stream is writable, but accepts nothing")


class Receiver(Protocol):
    """What gets the bytes of one pipe of a process."""

    def receive(self, data: bytes, /) -> None:
        """Takes the next bytes; none are the end."""


class Output:
    """One pipe of a process: receives bytes and writes lines to a stream of the caller.

    Args:
        name: the name of the stream, for the warning if it refuses output.
        target: returns the stream, which the program may replace while the process runs.
        prefix: returns a text that is put before a line.
    """

    def __init__(self, name: str, target: Callable[[], Any], prefix: Callable[[], str] = str) -> None:
        self.name = name
        self.refusal = ""  # why the first lost line could not be written; "": none is lost
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self._target, self._prefix = target, prefix
        self._decoder = codecs.getincrementaldecoder(_encoding())("backslashreplace")
        self._held, self._line_starts = "", True

    def receive(self, data: bytes) -> None:
        """Writes all complete lines. Empty ``data`` is the end: the rest is written as well."""
        text = self._held + self._decoder.decode(data, final=not data)
        complete = max(text.rfind("\n"), text.rfind("\r")) + 1
        if not data or len(text) - complete > HELD_CHARACTERS:
            complete = len(text)
        self._held = text[complete:]
        for line in LINE.findall(text[:complete]):
            self.last.append(line)
            whole = self._prefix() + line if self._line_starts else line
            self._line_starts = line.endswith("\n")
            for at in range(0, len(whole), PIECE):
                self._offer(whole[at : at + PIECE])

    def _offer(self, piece: str) -> None:
        """Writes and flushes a piece. If the stream raises, the piece is lost, and the job continues."""
        try:
            stream = self._target()
            if stream is None:
                raise ValueError("it is None")
            try:
                _write(stream, piece)
                if hasattr(stream, "flush"):
                    stream.flush()
            except BlockingIOError:
                _flush_when_ready(stream)
        except Exception as error:
            self.refusal = self.refusal or "".join(traceback.format_exception_only(error)).strip()


def pass_on(process: subprocess.Popen[bytes], outputs: Sequence[Receiver]) -> None:
    """Passes on the output of a process until it has ended, in the caller's thread.

    If a stream blocks, the process waits. Processes that have inherited its pipes may outlive it.
    """
    with selectors.DefaultSelector() as selector:
        for pipe, output in zip((process.stdout, process.stderr), outputs, strict=True):
            assert pipe
            selector.register(pipe, selectors.EVENT_READ, output)
        ended = False
        while selector.get_map() and not ended:
            ended = process.poll() is not None  # all that it has written is in the pipes
            for key, _ in selector.select(0 if ended else CHECK_SECONDS):
                if data := os.read(key.fd, PIPE_BYTES):
                    key.data.receive(data)
                else:
                    selector.unregister(key.fileobj)
    for output in outputs:
        output.receive(b"")


def warn_of_loss(outputs: Sequence[Output]) -> None:
    """Warns the caller if a stream has refused any output."""
    refusals = [f"{output.name} refused it ({output.refusal})" for output in outputs if output.refusal]
    if not refusals:
        return
    try:
        warn_caller(f"some output of the processes is lost: {'; '.join(refusals)}", RuntimeWarning)
    except RuntimeWarning:
        raise  # warnings are errors here
    except Exception:  # sys.stderr refuses the warning, too
        pass
