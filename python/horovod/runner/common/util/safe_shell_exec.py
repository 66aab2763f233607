"""Runs a shell command whose processes all end with it, and passes its output to the caller's streams."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from horovod.runner.output import Output, pass_on, warn_of_loss
from horovod.runner.util.threads import on_event

GRACEFUL_TERMINATION_TIME_S = 5


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM to the process group, and after the grace period SIGKILL to the remaining processes."""
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACEFUL_TERMINATION_TIME_S)
    _signal_group(process, signal.SIGKILL)


def _output(name: str, stream: Any, index: int | None) -> Output:
    prefix = "" if index is None else f"[{index}]<{name}>:"
    if stream is None:
        return Output(f"sys.{name}", functools.partial(getattr, sys, name), lambda: prefix)
    return Output(name, lambda: stream, lambda: prefix)


def execute(
    command: str,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
) -> int:
    """Runs a command with the shell; returns its exit code, or the negative number of the signal that
    ended it.

    Args:
        command: for ``/bin/sh``.
        env: its environment; None: the environment of this process.
        stdout: an object whose ``write`` gets every line; None: sys.stdout. If it refuses a line, the command
            continues, and a RuntimeWarning follows.
        stderr: the same for stderr.
        index: a number that is put before each line, as ``[1]<stdout>:``.
        events: if one of them is set, the command is ended.
    """
    outputs = [_output("stdout", stdout, index), _output("stderr", stderr, index)]
    over = threading.Event()
    with subprocess.Popen(
        command,
        shell=True,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        for event in events or ():
            on_event(event, _end, (process,), stop=over, check_stop_interval_s=0.1)
        try:
            pass_on(process, outputs)
            process.wait()
        finally:
            over.set()
            _end(process)
            pass_on(process, outputs)  # the last lines of processes that outlived the shell
    warn_of_loss(outputs)
    return process.returncode
