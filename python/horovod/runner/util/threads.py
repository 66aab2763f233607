"""Runs functions in threads, at once or when an event is set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

Function = Callable[..., object]


def _check_arguments(args: object) -> None:
    if not isinstance(args, (tuple, list)):
        raise ValueError(f"args must be a tuple or a list, not {args!r}; for one argument (x,)")


def in_thread(
    target: Function,
    args: Sequence[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Runs a function in a thread of its own, which is returned. ``silent``: its exceptions are not printed.

    Raises:
        ValueError: ``args`` is no tuple or list.
    """
    _check_arguments(args)

    def run() -> None:
        try:
            target(*args)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Function,
    args: Sequence[Any] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Runs a function in a thread once the event is set, unless ``stop`` is set before.

    Args:
        event: the event to wait for.
        func: the function to call then.
        args: its arguments.
        stop: ends the wait if it is set.
        check_stop_interval_s: the seconds between checks of ``stop``.
        daemon: whether the thread ends with the program.
        silent: whether exceptions of ``func`` are dropped.

    Returns:
        The thread that waits.

    Raises:
        ValueError: ``event`` or ``stop`` is no event, or ``args`` no tuple or list.
    """
    _check_arguments(args)
    for each in (event, stop):
        if each is not None and not hasattr(each, "is_set"):
            raise ValueError(f"{each!r} is no event")

    def wait() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)
