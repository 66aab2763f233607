"""A task of an elastic job on Spark: offers itself to the program, which may let it run one rank."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from horovod.runner.task import Report
from horovod.spark import failure
from horovod.spark.barrier import OUTPUT, PLACE, Pipe, RankFailedError, connected
from horovod.spark.child import run_rank
from horovod.spark.links import Link, connect
from horovod.spark.task import DEVICES

ADDRESS, SECRET = "horovod.elastic.address", "horovod.elastic.secret"  # properties of the Spark job


@dataclass(frozen=True)
class ElasticJob:
    """What all tasks get: as in ``barrier.Job``."""

    function: bytes
    variables: dict[str, str]
    executable: str | None


class _Rank:
    """The process of a rank, which the program may end."""

    def __init__(self, link: Link) -> None:
        self._link, self._lock = link, threading.Lock()
        self._pid: int | None = None
        self._is_over = False
        self.commands: list[dict[str, Any]] = []
        self.arrived = threading.Condition(self._lock)
        threading.Thread(target=self._listen, daemon=True).start()

    def started(self, pid: int) -> None:
        """Takes the pid of the process."""
        with self._lock:
            self._pid = pid
            if self._is_over:
                self._kill()

    def ended(self) -> None:
        """Forgets the pid, which may soon be that of another process."""
        with self._lock:
            self._pid = None

    def next(self) -> dict[str, Any]:
        """Waits for the next command; the end of the connection is one, too."""
        with self._lock:
            self.arrived.wait_for(lambda: self.commands)
            return self.commands.pop(0)

    def _listen(self) -> None:
        while True:
            message = self._link.receive()
            with self._lock:
                if not message or message.get("end"):
                    self._is_over = True
                    self._kill()
                self.commands.append(message or {"over": True})
                self.arrived.notify_all()
            if not message:
                self._link.close()
                return

    def _kill(self) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)


def run_task(job: ElasticJob) -> Iterator[bytes]:
    """Runs the rank of this task, if the job needs it; yields its report, when all is over.

    Raises:
        RankFailedError: the rank has failed. Spark then starts the task again, as a newcomer.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context
    name = f"{context.partitionId()}-{context.attemptNumber()}"
    host, _, port = (context.getLocalProperty(ADDRESS) or "").rpartition(":")
    secret = context.getLocalProperty(SECRET) or ""
    link = connect(host, int(port), secret)
    rank = _Rank(link)
    link.send(name=name)
    report: Report | None = None
    try:
        while not (command := rank.next()).get("over"):
            if "variables" in command and not report:
                report = _run(job, context, rank, link, command["variables"] | {"HOROVOD_SECRET": secret})
    finally:
        link.end()
    if report:
        yield pickle.dumps(report)


def _run(job: ElasticJob, context: Any, rank: _Rank, link: Link, variables: dict[str, str]) -> Report | None:
    number = int(variables["HOROVOD_RANK"])
    gpus = context.resources().get("gpu")
    devices = list(gpus.addresses) if gpus else []
    place = {DEVICES: ",".join(devices), "PYTHONUNBUFFERED": "1"} | variables
    if devices:
        place["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    sender = connected(context.getLocalProperty(OUTPUT), number)
    pipes = [Pipe(stream, number, sender) for stream in range(2)]
    own = {each: value for each, value in os.environ.items() if each not in PLACE}
    pid, code, report = run_rank(
        job.function, own | job.variables | place, job.executable, pipes, rank.started
    )
    rank.ended()
    if sender:
        sender.close()
    last = pipes[1].last_lines() or pipes[0].last_lines()
    failed = failure.of_process(number, socket.gethostname(), pid, code, report, last)
    leaves = report is not None and "SystemExit: 0" in report.summary  # it has no place in the next epoch
    with contextlib.suppress(OSError):
        text = failed.text() if failed and not leaves else ""
        link.send(code=0 if leaves else failed.exit_code if failed else 0, text=text)
    if failed and not leaves:
        print(f"horovod.spark: {failed.text()}", file=sys.stderr)
        raise RankFailedError(f"{failed.text()}\n{failed.record()}")
    return None if leaves else report
