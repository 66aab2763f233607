"""How a process leaves an elastic job that goes on: with the next epoch, after SIGTERM or by its own wish."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from horovod import _core
from horovod.common import epochs


def leave() -> None:
    """Lets this process leave the job at the next commit, if the other ranks are enough for it.

    Its function ends there with ``SystemExit(0)``. Until then it takes part as before.

    Raises:
        RuntimeError: this job is not elastic.
    """
    if not epochs.is_elastic():
        raise RuntimeError("hvd.elastic.leave: this job is not elastic, so its ranks stay to its end")
    _core.epoch_leave()


def _end(number: int) -> None:
    """Lets the signal act as if nobody had handled it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextlib.contextmanager
def on_sigterm() -> Iterator[None]:
    """Makes the first SIGTERM call ``leave``, unless the program handles that signal by itself."""
    in_main = threading.current_thread() is threading.main_thread()
    if not (epochs.is_elastic() and in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL):
        yield
        return
    own = os.getpid()

    def handle(number: int, _: FrameType | None) -> None:
        if os.getpid() != own:  # of a child that was forked, such as a worker of a data loader
            _end(number)
            return
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process
        try:
            leave()
        except Exception as error:
            if getattr(error, "code", "") != "TIMED_OUT":  # otherwise the starter is late, and will read it
                _end(number)

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
