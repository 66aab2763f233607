"""A barrier task of Spark: meets the other tasks, and runs one rank in a process of its own."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from horovod import _core
from horovod.common import addresses
from horovod.runner.common.util.host_hash import host_hash
from horovod.runner.output import Output
from horovod.spark import failure
from horovod.spark.child import run_rank
from horovod.spark.lines import Sender
from horovod.spark.task import DEVICES

SCHEMA = "rank int, result binary"
OUTPUT = "horovod.output.secret"  # a property of the job; Spark's own logs hide what is called a secret
GRACE_SECONDS = 5.0  # in which a rank that has only lost another one lets that one's task report first
LAST_LINES, LAST_BYTES = 10, 4096
STREAMS = ("stdout", "stderr")
# Variables that say which rank of which job a process is: those of the task belong to something else.
PLACE = {
    *(f"HOROVOD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")),
    *(f"HOROVOD_{name}" for name in ("RANKS", "HOSTNAME", "SLOT", "EPOCH", "ELASTIC", "JOB", "RENDEZVOUS")),
    *(f"HOROVOD_{name}" for name in ("SECRET", "SECRET_FILE")),
    *(f"HOROVOD_GLOO_RENDEZVOUS_{name}" for name in ("ADDR", "PORT")),
}


class RankFailedError(RuntimeError):
    """A rank has failed; the text holds its ``Failure``."""


@dataclass(frozen=True)
class Job:
    """What all tasks of a job get.

    Attributes:
        function: what ``horovod.runner.functions.pickled`` returns.
        variables: are added to the environment of a task.
        executable: the Python of the ranks; None: the one of the tasks.
        interfaces: the network interfaces that the ranks use, as HOROVOD_NETWORK_INTERFACE; "": any.
        is_local: all tasks are in one process of Spark on one host.
    """

    function: bytes
    variables: dict[str, str]
    executable: str | None
    interfaces: str
    is_local: bool


@dataclass(frozen=True)
class Member:
    """What a task says of itself to the others. The first rank's rendezvous and secret are used."""

    host: str  # the same for tasks of one host
    addresses: list[str]
    port: int  # of its rendezvous
    secret: str
    devices: list[str]


def order(hosts: Sequence[str]) -> list[int]:
    """Returns the partitions in the order of ranks: those of a host are neighbours, hosts as they occur."""
    first = {host: partition for partition, host in reversed([*enumerate(hosts)])}
    return sorted(range(len(hosts)), key=lambda partition: (first[hosts[partition]], partition))


def visible_devices(devices: Sequence[Sequence[str]]) -> list[str]:
    """Returns the devices of a host's ranks, ordered so that a local rank is the index of its first one."""
    firsts = [each[0] for each in devices if each]
    return [*firsts, *(device for each in devices for device in each[1:])]


class Pipe:
    """One stream of a rank: sends it to the program, and writes it to the executor's log if that fails."""

    def __init__(self, stream: int, rank: int, sender: Sender | None) -> None:
        name = STREAMS[stream]
        self._last = b""
        self._stream, self._sender = stream, sender
        self._log = Output(f"sys.{name}", lambda: getattr(sys, name), lambda: f"[{rank}]<{name}>: ")

    def receive(self, data: bytes) -> None:
        """Passes on the next bytes."""
        self._last = (self._last + data)[-LAST_BYTES:]
        if self._sender:
            try:
                self._sender.send(self._stream, data)
                return
            except OSError:
                self._sender = None
        self._log.receive(data)

    def last_lines(self) -> str:
        """Returns the last lines that were written."""
        return "\n".join(self._last.decode(errors="replace").splitlines()[-LAST_LINES:])


def connected(target: str | None, rank: int) -> Sender | None:
    """Returns the connection to the program, which has given its address and secret; None: there is none."""
    if not target:
        return None
    at, _, secret = target.partition(" ")
    host, port = addresses.split(at)
    try:
        return Sender(host, port or 0, bytes.fromhex(secret), rank)
    except OSError as error:
        print(f"horovod.spark: the output of rank {rank} is here, as {at} can't be reached: {error}")
        return None


def _met(context: Any, rendezvous: _core.Rendezvous, job: Job, secret: str) -> list[Member]:
    gpus = context.resources().get("gpu")
    own = Member(
        os.environ.get("HOROVOD_HOST_ID") or host_hash(),
        [addresses.LOOPBACK] if job.is_local else _core.addresses(job.interfaces).split(","),
        rendezvous.port or 0,
        secret,
        list(gpus.addresses) if gpus else [],
    )
    return [Member(**json.loads(text)) for text in context.allGather(json.dumps(vars(own)))]


def variables_of(job: Job, members: Sequence[Member], partition: int) -> dict[str, str]:
    """Returns the variables that make a process the rank of this partition."""
    ranks = order([each.host for each in members])
    root, own = members[ranks[0]], members[partition]
    is_alone = len({each.host for each in members}) == 1
    hosts = [addresses.LOOPBACK] if is_alone else root.addresses
    found = {
        "HOROVOD_RANK": str(ranks.index(partition)),
        "HOROVOD_SIZE": str(len(members)),
        "HOROVOD_RENDEZVOUS": ",".join(addresses.join(host, root.port) for host in hosts),
        "HOROVOD_SECRET": root.secret,
        "HOROVOD_JOB": f"spark-{root.port}",
        DEVICES: ",".join(own.devices),
        "PYTHONUNBUFFERED": "1",
    }
    if job.interfaces:
        found["HOROVOD_NETWORK_INTERFACE"] = job.interfaces
    if own.devices:
        local = [members[each].devices for each in ranks if members[each].host == own.host]
        found["CUDA_VISIBLE_DEVICES"] = ",".join(visible_devices(local))
    return found


def run_task(job: Job, batches: Iterable[Any]) -> Iterator[Any]:
    """Runs the rank of this task; yields one record batch, with its result.

    Raises:
        RankFailedError: the rank has failed. Spark then ends the other tasks, and their ranks with them.
    """
    import pyarrow as pa
    from pyspark import BarrierTaskContext

    for _ in batches:  # they mean nothing, but PySpark requires them to be read
        pass
    context = BarrierTaskContext.get()
    secret = secrets.token_hex(32)
    with _core.Rendezvous(addresses.LOOPBACK if job.is_local else None, secret) as rendezvous:
        members = _met(context, rendezvous, job, secret)
        place = variables_of(job, members, context.partitionId())
        rank = int(place["HOROVOD_RANK"])
        if rank:
            rendezvous.close()
        sender = connected(context.getLocalProperty(OUTPUT), rank)
        pipes = [Pipe(stream, rank, sender) for stream in range(len(STREAMS))]
        own = {name: value for name, value in os.environ.items() if name not in PLACE}
        pid, code, report = run_rank(job.function, own | job.variables | place, job.executable, pipes)
        if sender:
            sender.close()
    last = pipes[1].last_lines() or pipes[0].last_lines()
    failed = failure.of_process(rank, socket.gethostname(), pid, code, report, last)
    if failed:
        if "HorovodInternalError" in failed.summary:
            time.sleep(GRACE_SECONDS)
        raise RankFailedError(f"{failed.text()}\n{failed.record()}")
    assert report
    yield pa.RecordBatch.from_pydict(
        {"rank": pa.array([rank], pa.int32()), "result": pa.array([report.result], pa.binary())}
    )
