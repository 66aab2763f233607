"""The process of one rank, which a Spark task starts. It ends with the task, however that ends.

PySpark reuses the process of a task for later ones, which must not find this rank's variables, threads and
devices there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from horovod.runner.output import Receiver, pass_on
from horovod.runner.task import REPORT_FILE, Report, main, message, read_report

PR_SET_PDEATHSIG = 1  # of prctl(2)
PROGRAM = "from horovod.spark.child import run_child; run_child({report}, {parent})"


def run_child(report: int, parent: int) -> None:
    """Runs the function that is on stdin; its report goes into the file with the descriptor ``report``."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the task has ended meanwhile
        os._exit(1)
    os.dup2(report, REPORT_FILE)
    if report != REPORT_FILE:
        os.close(report)
    main()


def _memory(name: str, data: bytes = b"") -> int:
    """Returns the descriptor of a file in memory with these bytes."""
    descriptor = os.memfd_create(name)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def run_rank(
    function: bytes,
    variables: Mapping[str, str],
    executable: str | None,
    receivers: Sequence[Receiver],
    started: Callable[[int], object] = lambda pid: None,
) -> tuple[int, int, Report | None]:
    """Runs the function in a new process; returns its pid, its exit code and its report, if it has sent one.

    Args:
        function: what ``horovod.runner.functions.pickled`` returns.
        variables: the whole environment of the process.
        executable: its Python; None: the one of the task.
        receivers: get what it writes to stdout and to stderr.
        started: gets its pid, which is that of its process group, too.
    """
    files = [_memory("function", message(function)), _memory("report")]
    words = [executable or sys.executable, "-c", PROGRAM.format(report=files[1], parent=os.getpid())]
    try:
        with subprocess.Popen(
            words,
            env=variables,
            stdin=files[0],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=files[1:],
            start_new_session=True,
        ) as process:
            try:
                started(process.pid)
                pass_on(process, receivers)
            finally:
                with contextlib.suppress(ProcessLookupError):  # also of what the function has started
                    os.killpg(process.pid, signal.SIGKILL)
        return process.pid, process.returncode, read_report(Path(f"/proc/self/fd/{files[1]}"))
    finally:
        for file in files:
            os.close(file)
