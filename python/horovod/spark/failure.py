"""How a rank has failed, as its task reports it: in the text of the exception that Spark passes on."""

from __future__ import annotations

import base64
import json
import pickle
import re
import signal
from dataclasses import asdict, dataclass

from horovod.common.exceptions import JobFailedError
from horovod.common.faults import Fault
from horovod.runner.functions import FAILED, TRACEBACK_LINES
from horovod.runner.task import Report

ERROR_BYTES = 1 << 14  # of a pickled exception; a longer one is reported by its text alone
RECORD = re.compile(r"\[horovod-rank-failure (\d+) ([A-Za-z0-9+/=]*)\]")


@dataclass(frozen=True)
class Failure:
    """How the process of a rank has ended. ``summary`` is "" if it ended without an exception."""

    rank: int
    host: str
    pid: int
    exit_code: int
    signal: int
    summary: str
    traceback: str
    last_lines: str
    error: str  # the pickled exception in base64, or ""

    def text(self) -> str:
        """Returns what to show: which rank, where, how."""
        where = f"rank {self.rank} (process {self.pid} on {self.host})"
        if self.summary:
            return f"{where}: {self.summary}\n\nrank {self.rank} raised it here:\n{self.traceback}"
        how = f"ended with exit code {self.exit_code} without a result"
        if self.signal:
            how = f"was killed by {_name(self.signal)}"
            if self.signal == signal.SIGKILL:
                how += ", by somebody, by a limit of its container, or by the kernel if memory ran out"
        return f"{where} {how}{'; its last lines:' if self.last_lines else ''}\n{self.last_lines}".rstrip()

    def record(self) -> str:
        """Returns the failure as a line that ``find`` reads."""
        data = base64.b64encode(json.dumps(asdict(self)).encode()).decode()
        return f"[horovod-rank-failure {len(data)} {data}]"

    def job_failed(self) -> JobFailedError:
        """Returns the error to raise; its cause is the rank's exception if that can be unpickled here."""
        cause = "exception" if self.summary else "signal" if self.signal else "exit"
        fault = Fault(
            self.rank,
            self.host,
            cause,
            exception=self.summary,
            pid=self.pid,
            exit_code=self.exit_code,
            signal=self.signal,
        )
        error = JobFailedError(f"{FAILED}.\n{self.text()}", fault, {self.rank: fault}, self.exit_code or 1)
        error.__cause__ = _unpickled(self.error)
        return error


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _unpickled(error: str) -> BaseException | None:
    try:
        found = pickle.loads(base64.b64decode(error)) if error else None
    except Exception:  # e.g. of a module that is missing here
        return None
    return found if isinstance(found, BaseException) else None


def of_process(
    rank: int, host: str, pid: int, code: int, report: Report | None, last_lines: str
) -> Failure | None:
    """Returns how a rank has failed, given its exit code and report; None: it has not."""
    if not code and report and report.result is not None:
        return None
    error = report.error if report and report.error and len(report.error) <= ERROR_BYTES else b""
    return Failure(
        rank,
        host,
        pid,
        exit_code=code if code >= 0 else 128 - code,
        signal=max(0, -code),
        summary=report.summary if report else "",
        traceback="\n".join(report.traceback.splitlines()[-TRACEBACK_LINES:]) if report else "",
        last_lines="" if report else last_lines,
        error=base64.b64encode(error).decode(),
    )


def find(text: str) -> Failure | None:
    """Returns the first whole record in a text of Spark, if there is one."""
    for length, data in RECORD.findall(text):
        if len(data) == int(length):
            try:
                return Failure(**json.loads(base64.b64decode(data)))
            except (ValueError, TypeError):  # of another release
                continue
    return None
