"""``horovod.run``: starts ranks that run a Python function, and returns its results."""

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

# Programs search for this text to find out that ranks have failed.
FAILED = "Horovod detected that one or more processes exited with non-zero status"
TRACEBACK_LINES = 40
OUTCOME = "outcome"  # the file in which horovodrun writes how the job ended


def pickled(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Returns a function with its arguments as bytes; ImportError if cloudpickle is missing and needed."""
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
            f"horovod.run can't send {name} to the ranks, as it is in no module that they can import: pip "
            "install cloudpickle, or move the function into a module"
        ) from None
    data: bytes = cloudpickle.dumps((function, args, kwargs))
    return data


def launch(words: Sequence[str]) -> tuple[int, list[Output]]:
    """Runs horovodrun; returns its exit code and the two streams of its output.

    The output is written to sys.stdout and sys.stderr, which in a notebook are not those of the process.
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
    """Returns the reports that have arrived, by epoch and rank. Only this user can write to the folder."""
    reports = [report for path in folder.glob(f"{REPORT}*") if (report := read_report(path))]
    return sorted(reports, key=lambda report: (report.epoch, report.rank))


def _unpickled(error: bytes | None) -> BaseException | None:
    """Returns a rank's exception; None if it can't be unpickled, e.g. because its module is missing here."""
    try:
        found = pickle.loads(error) if error else None
    except Exception:
        return None
    return found if isinstance(found, BaseException) else None


def _outcome(folder: Path) -> dict[str, Any]:
    """Returns what horovodrun has written about the end of the job (``faults_write_outcome``)."""
    try:
        found: dict[str, Any] = json.loads((folder / OUTCOME).read_bytes())
    except (OSError, ValueError):  # it was killed
        return {}
    return found


def _failure(reports: Sequence[Report], outcome: Mapping[str, Any], last_lines: str) -> JobFailedError:
    """Returns the error to raise.

    Its cause is the exception of the rank that horovodrun names, if that rank has sent one; otherwise an
    exception of another rank, if possible not one about a lost rank.
    """
    first = Fault(**outcome["first"]) if outcome.get("first") else None
    faults = {each["rank"]: Fault(**each) for each in outcome.get("ranks", [])}
    failed = [(report, _unpickled(report.error)) for report in reports if report.traceback]
    code, verdict = (
        outcome.get("exit_code", 1),
        f"horovodrun: {outcome['verdict']}" if outcome.get("verdict") else "",
    )
    if code:  # a process that leaves an elastic job, or is notified of its end, ends with 0: no cause
        failed = [each for each in failed if not isinstance(each[1], SystemExit) or each[1].code]
    if not failed:
        text = f"{FAILED}: horovodrun ended with exit code {code}; its last lines:\n{last_lines}"
        return JobFailedError(f"{text}\n\n{verdict}".rstrip(), first, faults, code)
    rank, pid = (first.rank, first.pid) if first else (None, None)
    report, cause = min(
        failed,
        key=lambda each: (
            each[0].rank != rank,
            each[0].pid != pid,
            isinstance(each[1], HorovodInternalError),
            each[0].when,
        ),
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
            f"the result of rank {report.rank} can't be unpickled here, {error!r}: return objects whose "
            "modules this process can import"
        ) from error


def _counted(reports: Sequence[Report]) -> list[Report]:
    """Returns the reports of the last epoch, and before them those of functions that had returned earlier.

    An elastic job goes on without ranks that have failed, and without processes that never joined it.
    """
    last = max((report.epoch for report in reports), default=0)
    return [each for each in reports if each.epoch >= 0 and (each.epoch == last or each.result is not None)]


def _results(reports: Sequence[Report]) -> list[Any]:
    """Returns the results of all ranks; RuntimeError if a rank ended without one, e.g. by ``os._exit(0)``."""
    last = reports[-1].epoch if reports else 0
    found = {report.rank for report in reports if report.epoch == last}
    size = reports[-1].size if reports else 0
    missing = [str(rank) for rank in range(size) if rank not in found]
    if missing or not reports:
        whom = f"rank {', '.join(missing)} of {size}" if reports else "any rank"
        raise RuntimeError(
            f"no result came from {whom}: did the function call os._exit, or replace the process by another "
            "program?"
        )
    return [_result(report) for report in reports]


def results_at_end(reports: Sequence[Report]) -> list[Any]:
    """Returns the results of the ranks of the last epoch, and before them those that had returned earlier."""
    return _results(_counted(sorted(reports, key=lambda report: (report.epoch, report.rank))))


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
    spares: int | None = None,
    elastic_timeout: int | None = None,
    rejoin_seconds: int | None = None,
    failed_slot: str | None = None,
) -> list[T]:
    """Runs ``func(*args, **kwargs)`` on every rank of a new job, and returns the results in rank order.

    The function, which may be defined in a notebook or in ``__main__``, is sent to the ranks by cloudpickle,
    and so are its results: through pipes, over ssh to other hosts, and through files on this host that only
    this user can read. The ranks' stdin is empty. Their output is written to sys.stdout and sys.stderr;
    characters that the encoding lacks become escapes. A RuntimeWarning at the end says if output was lost.

    Args:
        func: the function; every rank calls it once.
        args: its positional arguments.
        kwargs: its named arguments.
        num_proc: the number of ranks; None: as many as the hosts have slots, or 1 without hosts.
        min_num_proc: the job is elastic: it goes on as long as it has that many ranks, see docs/elastic.md.
            The results are then those of the ranks at the end, and a rank that fails before is no error.
        host_discovery_script: the job is elastic, and has the hosts that this command prints.
        executable: the Python that runs the ranks; None: this one.
        use_mpi: only warns: mpirun has no channel for functions and results.

    The other parameters are the options of ``horovodrun`` with these names. ``np``, ``min_np``, ``max_np``
    and ``network_interface`` are old names.

    Raises:
        ValueError: parameters that exclude each other, or that ``horovodrun`` refuses.
        ImportError: the function can't be sent without cloudpickle.
        JobFailedError: a RuntimeError: a rank failed; the text says which one and how. Its ``__cause__`` is
            the rank's exception, unless that can't be unpickled here; ``fault`` is the first cause as data,
            and ``faults`` has the reason of each rank that failed.
    """
    parameters = locals()
    function = pickled(parameters.pop("func"), parameters.pop("args"), parameters.pop("kwargs") or {})
    executable, options = parameters.pop("executable"), options_of(parameters)
    if use_mpi:
        warnings.warn(
            "horovod.run(use_mpi=True): the ranks start without mpirun; use `horovodrun --mpi` instead",
            stacklevel=2,
        )
    return run_pickled(function, executable, options)


def run_pickled(function: bytes, executable: str | None, options: Sequence[str]) -> list[Any]:
    """Does ``run`` for the bytes that ``pickled`` returns, with options of horovodrun."""
    with private_folder(Path(tempfile.gettempdir()), "horovod-run-") as folder:
        send_function(folder, function)
        command = [executable or sys.executable, "-c", TASK]
        code, outputs = launch(["--task", str(folder), *options, "--", *command])
        outcome, reports = _outcome(folder), _reports(folder)
    if "refusal" in outcome:
        raise ValueError(outcome["refusal"])
    counted = _counted(reports)
    failed = code or any(report.traceback for report in counted)
    error = _failure(reports, {"exit_code": code, **outcome}, "".join(outputs[1].last)) if failed else None
    try:
        warn_of_loss(outputs)  # raises where warnings are errors
    finally:
        if error:
            raise error
    return _results(counted)
