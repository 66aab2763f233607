"""The record of a rank's failure, which the rank publishes for its starter before it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from horovod import _core

PREFIX = "fault/"  # of the keys under which ranks publish their records at the rendezvous
PUBLISH_SECONDS = 1.0  # the longest wait for a rendezvous that does not answer
PACKAGE = os.path.dirname(os.path.dirname(__file__))


@dataclass(frozen=True)
class Fault:
    """Why a rank, or the whole job, failed.

    Attributes:
        rank: the rank that failed; None: no rank failed by itself, e.g. because a host is lost.
        host: its host; "": unknown.
        cause: ``"exception"``: its program raised one. Or why its engine had stopped before:
            ``"connection"``, ``"silence"``, ``"host"``, ``"network"``, ``"stall"``, ``"left"`` or ``"none"``
            (``hvd_cause`` in horovod.h). Or how its process ended without a record: ``"signal"``, ``"exit"``.
        code: the code of the engine, such as ``"PEER_LOST"``; "": the engine had not stopped.
        lost_rank: the first rank that the engine has lost; -1: none.
        lost_host: its host, or the one that is cut off from all others; "": unknown.
        text: why the engine stopped, as a sentence.
        exception: type and text of the exception that ended the program, ``"KeyError: 'x'"``; "": none did.
        file, line, function: where it was raised: the last frame outside this package, if there is one.
        pid, exit_code, signal: how the process ended; 0: unknown.
    """

    rank: int | None = None
    host: str = ""
    cause: str = "none"
    code: str = ""
    lost_rank: int = -1
    lost_host: str = ""
    text: str = ""
    exception: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    pid: int = 0
    exit_code: int = 0
    signal: int = 0


def read_fault(value: bytes) -> Fault:
    """Returns the record that is the value of a key ``fault/<rank>``.

    Raises:
        HorovodInternalError: the value is malformed, or of another version.
    """
    return Fault(**_core.read_fault(value))


Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]

_previous: Hook | None = None  # None: this module's hook is not installed


def _publish(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not _core.is_initialized() or issubclass(kind, KeyboardInterrupt):
        return
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if not frame.filename.startswith(PACKAGE)] or frames
    file, line, function = (own[-1].filename, own[-1].lineno or 0, own[-1].name) if own else ("", 0, "")
    text = "".join(traceback.format_exception_only(kind, error)).strip()
    _core.publish_fault(text, file, line, function, PUBLISH_SECONDS)


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Publishes before it prints, as printing blocks while nobody reads stderr."""
    with contextlib.suppress(Exception):
        _publish(kind, error, trace)
    (_previous or sys.__excepthook__)(kind, error, trace)


def publish_exceptions() -> None:
    """From now on publishes the exception that ends this process, then calls the hook that was set before."""
    global _previous
    if _previous is None:
        _previous, sys.excepthook = sys.excepthook, _hook
