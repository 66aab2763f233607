"""The program of every rank of ``horovod.run``: ``main``.

``horovodrun --task FOLDER`` gives every rank, on any host, FOLDER/function as stdin, and writes the bytes
that a process sends to descriptor 3 into FOLDER/report.<process>; the number of a process is its rank at the
start. Only the caller's user can read the folder.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horovod.common import epochs
from horovod.runner.common.util.env import get_env_rank_and_size

try:
    import cloudpickle as pickler
except ImportError:  # then the function was pickled by its name, and so is the result
    pickler = pickle

FUNCTION = "function"
REPORT = "report."
REPORT_FILE = 3
LENGTH_BYTES = 8  # before a report, which is incomplete if its rank was killed


@dataclass
class Report:
    """How the function ended in one process, which was this rank in the last epoch that it was in."""

    epoch: int  # -1: it was in none
    rank: int
    size: int
    pid: int
    result: bytes | None = None  # pickled
    error: bytes | None = None  # the exception, if it can be pickled
    traceback: str = ""  # "": there was no exception
    summary: str = ""  # type and text of the exception
    when: float = field(default_factory=time.time)


def message(function: bytes) -> bytes:
    """Returns what a rank reads from stdin: the folders of the function's modules, and the function."""
    return pickle.dumps(sys.path) + function


def send_function(folder: Path, function: bytes) -> None:
    """Writes the function into the file that the ranks read."""
    (folder / FUNCTION).write_bytes(message(function))


def read_report(path: Path) -> Report | None:
    """Returns the report of a rank; None if it is incomplete."""
    data = path.read_bytes()
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    whole = len(data) > LENGTH_BYTES and len(data) == LENGTH_BYTES + length
    return pickle.loads(data[LENGTH_BYTES:]) if whole else None


def _receive_function() -> Any:
    """Reads the function from stdin, which is empty afterwards, also for processes that the function starts.

    The ranks of a host share the position in the file, so it is mapped instead of read.
    """
    with mmap.mmap(0, 0, access=mmap.ACCESS_READ) as file:
        known = set(sys.path)
        sys.path += [path for path in pickle.load(file) if path not in known]
        function = pickle.load(file)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return function


def _write(report: Report) -> None:
    data = pickler.dumps(report)
    with open(REPORT_FILE, "wb", closefd=False) as file:
        file.write(len(data).to_bytes(LENGTH_BYTES, "little"))
        file.write(data)


def _pickled(error: BaseException) -> bytes | None:
    """Returns the pickled exception; None if it can't be unpickled, as is the case for many."""
    try:
        data: bytes = pickler.dumps(error)
        return data if isinstance(pickle.loads(data), BaseException) else None
    except Exception:
        return None


def _place() -> tuple[int, int, int, int]:
    """Returns the epoch, rank, size and pid of this process, for a report.

    In epoch 0 are those that were started with the job, also if the function does not call ``init``.
    """
    first = 0 if int(os.environ.get("HOROVOD_EPOCH", "0")) == 0 else -1
    rank, size = epochs.place() or get_env_rank_and_size()
    return max(epochs.number(), first), rank, size, os.getpid()


def _run() -> None:
    function, args, kwargs = _receive_function()
    result = function(*args, **kwargs)
    try:
        data = pickler.dumps(result)
    except Exception as error:
        raise TypeError(
            f"rank {_place()[1]} returned a {type(result).__name__}, which can't be pickled"
        ) from error
    epochs.done()
    _write(Report(*_place(), data))


def main() -> None:
    """Runs the function and reports its result or its exception."""
    os.set_inheritable(REPORT_FILE, False)
    try:
        _run()
    except BaseException as error:
        summary = "".join(traceback.format_exception_only(error)).strip()
        _write(Report(*_place(), None, _pickled(error), traceback.format_exc(), summary))
        raise
