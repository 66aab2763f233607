"""What every rank of ``horovod.run`` executes: ``main``, with a folder as the program's argument.

The folder is the caller's own, readable by nobody else. Here the function is found, and here each rank leaves
its report for the caller.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import cloudpickle as pickler
except ImportError:  # then the function came by its name, and so does the result
    pickler = pickle

FUNCTION = "function"
REPORT = "report."


@dataclass
class Report:
    """How the function ended on one rank."""

    rank: int
    result: Any = None
    error: bytes | None = None  # the exception, if it can be pickled
    traceback: str = ""  # "" when there was no exception
    summary: str = ""  # type and text of the exception
    when: float = field(default_factory=time.time)


def send_function(folder: Path, function: Any) -> None:
    """Leaves the function, and the folders where its modules are found, to the ranks."""
    with open(folder / FUNCTION, "wb") as file:
        pickle.dump(sys.path, file)
        file.write(function)


def _receive_function(folder: Path) -> Any:
    with open(folder / FUNCTION, "rb") as file:
        known = set(sys.path)
        sys.path += [path for path in pickle.load(file) if path not in known]
        return pickle.load(file)


def _write(folder: Path, report: Report) -> None:
    unfinished = folder / f"unfinished.{report.rank}"
    unfinished.write_bytes(pickler.dumps(report))
    unfinished.rename(folder / f"{REPORT}{report.rank}")


def _pickled(error: BaseException) -> bytes | None:
    """The exception as the caller can read it back, or None: many can be written, but not read."""
    try:
        data: bytes = pickler.dumps(error)
        return data if isinstance(pickle.loads(data), Exception) else None
    except Exception:
        return None


def _run(folder: Path, rank: int) -> None:
    function, args, kwargs = _receive_function(folder)
    result = function(*args, **kwargs)
    try:
        _write(folder, Report(rank, result))
    except Exception as error:
        raise TypeError(f"rank {rank} returned a {type(result).__name__}, which can't be pickled") from error


def main() -> None:
    """Runs the function and reports."""
    folder, rank = Path(sys.argv[1]), int(os.environ["HOROVOD_RANK"])
    try:
        _run(folder, rank)
    except BaseException as error:
        summary = "".join(traceback.format_exception_only(error)).strip()
        _write(folder, Report(rank, None, _pickled(error), traceback.format_exc(), summary))
        raise
