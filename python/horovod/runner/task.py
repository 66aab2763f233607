"""What every rank of ``horovod.run`` executes: ``main``.

``horovodrun --task FOLDER`` gives every rank, on whatever host, FOLDER/function on stdin, and keeps what it
writes to the descriptor behind stderr in FOLDER/report.<rank>. The folder is the caller's own, readable by
nobody else.
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

from horovod.runner.common.util.env import get_env_rank_and_size

try:
    import cloudpickle as pickler
except ImportError:  # then the function came by its name, and so does the result
    pickler = pickle

FUNCTION = "function"
REPORT = "report."
REPORT_FILE = 3
LENGTH_BYTES = 8  # in front of a report, which may be cut when its rank is killed


@dataclass
class Report:
    """How the function ended on one rank."""

    rank: int
    size: int
    result: bytes | None = None  # pickled
    error: bytes | None = None  # the exception, if it can be pickled
    traceback: str = ""  # "" when there was no exception
    summary: str = ""  # type and text of the exception
    when: float = field(default_factory=time.time)


def send_function(folder: Path, function: Any) -> None:
    """Leaves the function, and the folders where its modules are found, to the ranks."""
    with open(folder / FUNCTION, "wb") as file:
        pickle.dump(sys.path, file)
        file.write(function)


def read_report(path: Path) -> Report | None:
    """What a rank has left, if it is whole."""
    data = path.read_bytes()
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    whole = len(data) > LENGTH_BYTES and len(data) == LENGTH_BYTES + length
    return pickle.loads(data[LENGTH_BYTES:]) if whole else None


def _receive_function() -> Any:
    """Afterwards stdin is empty: what the function starts must not find it.

    Ranks share the position in it, and leave that where it is.
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
    """The exception as the caller can read it back, or None: many can be written, but not read."""
    try:
        data: bytes = pickler.dumps(error)
        return data if isinstance(pickle.loads(data), BaseException) else None
    except Exception:
        return None


def _run(rank: int, size: int) -> None:
    function, args, kwargs = _receive_function()
    result = function(*args, **kwargs)
    try:
        data = pickler.dumps(result)
    except Exception as error:
        raise TypeError(f"rank {rank} returned a {type(result).__name__}, which can't be pickled") from error
    _write(Report(rank, size, data))


def main() -> None:
    """Runs the function and reports."""
    rank, size = get_env_rank_and_size()
    os.set_inheritable(REPORT_FILE, False)
    try:
        _run(rank, size)
    except BaseException as error:
        summary = "".join(traceback.format_exception_only(error)).strip()
        _write(Report(rank, size, None, _pickled(error), traceback.format_exc(), summary))
        raise
