"""A shell command with all its processes: output goes where the caller wants, and none outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from horovod.runner.util.threads import in_thread, on_event

GRACEFUL_TERMINATION_TIME_S = 5


def _copy(source: IO[str], target: Any, prefix: str) -> None:
    for line in source:
        target.write(f"{prefix}{line}")
    with contextlib.suppress(AttributeError):
        target.flush()


def _signal_group(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _end(process: subprocess.Popen[str]) -> None:
    """SIGTERM for the process group; what is left after the grace gets SIGKILL."""
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACEFUL_TERMINATION_TIME_S)
    _signal_group(process, signal.SIGKILL)


def execute(
    command: str,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
) -> int:
    """Runs a command with the shell and returns its exit code, or minus the signal that has ended it.

    Args:
        command: for ``/bin/sh``.
        env: its environment; None: this process's.
        stdout: has ``write``, which gets every line; None: sys.stdout.
        stderr: likewise.
        index: a number that is put before each line, as ``[1]<stdout>:``.
        events: the command is ended when one of them is set.
    """
    process = subprocess.Popen(
        command,
        shell=True,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout
    assert process.stderr
    over = threading.Event()
    streams = [("stdout", process.stdout, stdout or sys.stdout)]
    streams.append(("stderr", process.stderr, stderr or sys.stderr))
    readers = [
        in_thread(_copy, (source, target, "" if index is None else f"[{index}]<{name}>:"))
        for name, source, target in streams
    ]
    for event in events or ():
        on_event(event, _end, (process,), stop=over, check_stop_interval_s=0.1)
    try:
        code = process.wait()
    finally:
        over.set()
        _end(process)
        for reader in readers:
            reader.join()
        process.stdout.close()
        process.stderr.close()
    return code
