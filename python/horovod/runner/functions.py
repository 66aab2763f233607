"""``horovod.run``: a function instead of a program, on ranks that are started for it."""

from __future__ import annotations

import functools
import json
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from horovod.common.exceptions import HorovodInternalError, JobFailedError
from horovod.common.faults import Fault
from horovod.runner.arguments import options_of
from horovod.runner.output import Output, pass_on, warn_of_loss
from horovod.runner.private import private_folder
from horovod.runner.program import horovodrun
from horovod.runner.task import REPORT, Report, read_report, send_function

T = TypeVar("T")

TASK = "from horovod.runner.task import main; main()"

# How programs know that ranks have failed.
FAILED = "Horovod detected that one or more processes exited with non-zero status"
TRACEBACK_LINES = 40
OUTCOME = "outcome"  # the file in which horovodrun says how the job ended


def pickled(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """A function with its arguments, for ``run_pickled``; ImportError when that needs cloudpickle."""
    try:
        import cloudpickle
    except ImportError:
        name = getattr(function, "__qualname__", repr(function))
        if getattr(function, "__module__", None) != "__main__":
            try:
                return pickle.dumps((function, args, kwargs))
            except (pickle.PicklingError, AttributeError, TypeError):
                pass
        raise ImportError(
            f"horovod.run can't send {name}, which no module can be asked for, to the ranks without "
            "cloudpickle: pip install cloudpickle, or move the function into a module"
        ) from None
    data: bytes = cloudpickle.dumps((function, args, kwargs))
    return data


def _launch(words: Sequence[str]) -> tuple[int, list[Output]]:
    """Runs horovodrun; returns its exit code, and what became of its output.

    The output goes through sys.stdout and sys.stderr, which in a notebook are not the process's own.
    """
    outputs = [Output(f"sys.{name}", functools.partial(getattr, sys, name)) for name in ("stdout", "stderr")]
    with subprocess.Popen(
        [horovodrun(), "--end-with-parent", str(os.getpid()), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            pass_on(process, outputs)
        except BaseException:
            process.terminate()
            pass_on(process, outputs)
            raise
    return process.returncode, outputs


def _reports(folder: Path) -> list[Report]:
    """Of the ranks that came so far, in rank order. Nobody else than this user can write to the folder."""
    reports = [report for path in folder.glob(f"{REPORT}*") if (report := read_report(path))]
    return sorted(reports, key=lambda report: report.rank)


def _unpickled(error: bytes | None) -> BaseException | None:
    """The exception of a rank; None if it can't be brought here, as when its module exists only there."""
    try:
        found = pickle.loads(error) if error else None
    except Exception:
        return None
    return found if isinstance(found, BaseException) else None


def _outcome(folder: Path) -> dict[str, Any]:
    """What horovodrun has left about the end of the job (``faults_write_outcome`` in launch/faults.h)."""
    try:
        found: dict[str, Any] = json.loads((folder / OUTCOME).read_bytes().decode(errors="replace"))
    except (OSError, ValueError):  # it was killed
        return {}
    return found


def _failure(reports: Sequence[Report], outcome: Mapping[str, Any], last_lines: str) -> JobFailedError:
    """The cause is what the rank that horovodrun names raised; else an error that is not of a lost rank."""
    first = Fault(**outcome["first"]) if outcome.get("first") else None
    faults = {each["rank"]: Fault(**each) for each in outcome.get("ranks", [])}
    failed = [(report, _unpickled(report.error)) for report in reports if report.traceback]
    code, verdict = (
        outcome.get("exit_code", 1),
        f"horovodrun: {outcome['verdict']}" if outcome.get("verdict") else "",
    )
    if not failed:
        text = f"{FAILED}: horovodrun ended with exit code {code}; its last lines:\n{last_lines}"
        return JobFailedError(f"{text}\n\n{verdict}".rstrip(), first, faults, code)
    number = first.rank if first else None
    report, cause = min(
        failed,
        key=lambda each: (each[0].rank != number, isinstance(each[1], HorovodInternalError), each[0].when),
    )
    lines = "\n".join(report.traceback.splitlines()[-TRACEBACK_LINES:])
    text = f"{FAILED}.\nrank {report.rank}: {report.summary}\n\nrank {report.rank} raised it here:\n{lines}"
    error = JobFailedError(f"{text}\n\n{verdict}".rstrip(), first, faults, code)
    error.__cause__ = cause
    return error


def _result(report: Report) -> Any:
    try:
        return pickle.loads(report.result or b"")
    except Exception as error:
        raise RuntimeError(
            f"what rank {report.rank} returned can't be unpickled here, {error!r}: return what needs no "
            "module that only the ranks have"
        ) from error


def _results(reports: Sequence[Report]) -> list[Any]:
    """Those of all ranks: one of them may have ended without a result, as by ``os._exit(0)``."""
    found = {report.rank: report for report in reports}
    size = reports[0].size if reports else 0
    missing = [str(rank) for rank in range(size) if rank not in found]
    if missing or not reports:
        whom = f"rank {', '.join(missing)} of {size}" if reports else "any rank"
        raise RuntimeError(
            f"no result came from {whom}: did the function call os._exit, or "
            "replace the process by another program?"
        )
    return [_result(found[rank]) for rank in range(size)]


def run(
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: bool | int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | Sequence[str] | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[T]:
    """Runs ``func(*args, **kwargs)`` on every rank of a new job, and returns the results in rank order.

    The function, also one of a notebook or of ``__main__``, goes to the ranks by cloudpickle, and the results
    come back likewise: through pipes, to other hosts over ssh, and through files of this host that only this
    user can read. Its stdin is empty; what the ranks print is written to sys.stdout and sys.stderr, where
    characters that their encoding lacks become escapes. A stream that refuses output ends nothing: once the
    ranks have ended, a RuntimeWarning says that some of it is lost.
    ``num_proc`` is 1 unless the hosts say more; ``np`` is its old name, as ``min_np``, ``max_np`` and
    ``network_interface`` are old names, too. ``executable`` is the Python to use. The rest are the options of
    ``horovodrun`` of that name, but ``use_mpi`` only warns: mpirun has no channel for functions and results.

    Raises:
        ValueError: parameters that exclude each other, or that ``horovodrun`` refuses.
        ImportError: the function can't be sent without cloudpickle.
        JobFailedError: a RuntimeError: a rank failed; it says which one and how. What it raised is the
            ``__cause__``, unless that can't be brought here; ``fault`` is the first cause as data, ``faults``
            says why each rank failed.
    """
    parameters = locals()
    function = pickled(parameters.pop("func"), parameters.pop("args"), parameters.pop("kwargs") or {})
    executable, options = parameters.pop("executable"), options_of(parameters)
    if use_mpi:
        warnings.warn(
            "horovod.run(use_mpi=True): the ranks start without mpirun, and their bytes do not go through "
            "MPI; `horovodrun --mpi` does both",
            stacklevel=2,
        )
    return run_pickled(function, executable, options)


def run_pickled(function: bytes, executable: str | None, options: Sequence[str]) -> list[Any]:
    """As ``run``, of a function that is ``pickled``, with the options of horovodrun."""
    with private_folder(Path(tempfile.gettempdir()), "horovod-run-") as folder:
        send_function(folder, function)
        command = [executable or sys.executable, "-c", TASK]
        code, outputs = _launch(["--task", str(folder), *options, "--", *command])
        outcome, reports = _outcome(folder), _reports(folder)
    if "refusal" in outcome:
        raise ValueError(outcome["refusal"])
    failed = code or any(report.traceback for report in reports)
    error = _failure(reports, {"exit_code": code, **outcome}, "".join(outputs[1].last)) if failed else None
    try:
        warn_of_loss(outputs)  # raises where warnings are errors
    finally:
        if error:
            raise error
    return _results(reports)
