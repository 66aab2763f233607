"""TensorFlow's data service for the ranks of a job: other processes prepare the data."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.common.addresses import join, of_this_host
from horovod.tensorflow.data.registry import Addresses, ComputeClient

SIDES = ("compute", "training")
FILE_SECONDS = 0.2  # between two looks for a file
HEARTBEAT_MILLISECONDS = 1000


@dataclass(frozen=True)
class TfDataServiceConfig:
    """How to find a data service. Whoever has it can use the service.

    Attributes:
        dispatchers: 1 for all ranks together, or one for each rank.
        workers_per_dispatcher: how many workers each of them has.
        dispatcher_side: ``"compute"``: they run beside the workers; ``"training"``: in the ranks.
        addresses: of the process at which all register.
        key: proves that a process belongs to the service.
        timeout: the seconds for which they wait for one another.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Addresses
    key: bytes
    timeout: float = 60

    def __post_init__(self) -> None:
        if self.dispatcher_side not in SIDES:
            raise ValueError(f"dispatcher_side='{self.dispatcher_side}' is neither compute nor training")

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """Returns the client by which to register, to wait, and to end the service."""
        return ComputeClient(self.addresses, self.key, verbose)

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold."""
        return {**asdict(self), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """Returns the configuration that ``to_dict`` has turned into a dict."""
        addresses = {
            name: [(host, port) for host, port in each] for name, each in config["addresses"].items()
        }
        return TfDataServiceConfig(**{**config, "addresses": addresses, "key": bytes.fromhex(config["key"])})

    def write(self, filename: str | os.PathLike[str]) -> None:
        """Writes a file, which only this user can read, and which is there as a whole or not at all."""
        path = Path(filename)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
            json.dump(self.to_dict(), file)
        os.replace(file.name, path)

    @staticmethod
    def read(filename: str | os.PathLike[str], wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Reads a file, and waits for it if that is requested."""
        path = Path(filename)
        while wait_for_file_creation and not path.exists():
            time.sleep(FILE_SECONDS)
        return TfDataServiceConfig.from_dict(json.loads(path.read_text()))


def _own_address() -> str:
    return of_this_host()[0]


@contextlib.contextmanager
def _dispatcher() -> Iterator[str]:
    """Runs a dispatcher; gives the address by which other hosts reach it."""
    server = tf.data.experimental.service.DispatchServer()
    protocol, _, address = server.target.partition("://")
    try:
        yield f"{protocol}://{join(_own_address(), address.rpartition(':')[2])}"
    finally:
        server._server.stop()


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """Gives the address of the dispatcher that a rank uses; runs it, if the ranks are to do that.

    All ranks enter it, and leave it together if one of them runs the dispatcher of all.

    Args:
        compute_config: how to find the service.
        rank: the rank of this process.

    Raises:
        TimeoutException: dispatcher or workers have not come in time.
    """
    compute, shared = compute_config.compute_client(), compute_config.dispatchers == 1
    number = 0 if shared else rank
    with contextlib.ExitStack() as running:
        if compute_config.dispatcher_side == "training" and (rank == 0 or not shared):
            compute.register_dispatcher(number, running.enter_context(_dispatcher()))
        address = compute.wait_for_dispatcher_registration(number, compute_config.timeout)
        compute.wait_for_dispatcher_worker_registration(number, compute_config.timeout)
        yield address
        if compute_config.dispatcher_side == "training" and shared:
            hvd.barrier()  # the dispatcher ends when no rank needs it


def send_to_data_service(
    dataset: Any,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: Any = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> Any:
    """Returns a data set whose elements the service prepares; also a method of ``tf.data.Dataset``.

    Args:
        dataset: the data set up to the part that other processes are to do.
        compute_config: how to find the service; its dispatchers run beside the workers.
        rank: the rank of this process.
        size: the number of ranks, for ``round_robin``.
        processing_mode: as for ``tf.data.experimental.service.distribute``.
        reuse_dataset: all ranks together go through the data once; otherwise each of them does.
        round_robin: with ``reuse_dataset``: the ranks take elements in turns.

    Raises:
        RuntimeError: the dispatchers are to run in the ranks: use ``tf_data_service``.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "send_to_data_service needs dispatchers that outlive the call: use `with tf_data_service(...)`, "
            "or start the workers with --dispatcher-side compute"
        )
    in_turns = reuse_dataset and round_robin
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if in_turns else None,
                num_consumers=size if in_turns else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Runs a worker of the service, and its dispatcher if that is this rank's turn, until the service ends.

    All ranks of a job of their own call it.
    """
    hvd.init()
    number, first = divmod(hvd.rank(), compute_config.workers_per_dispatcher)
    compute = compute_config.compute_client()
    with contextlib.ExitStack() as running:
        if compute_config.dispatcher_side == "compute" and first == 0:
            compute.register_dispatcher(number, running.enter_context(_dispatcher()))
        address = compute.wait_for_dispatcher_registration(number, compute_config.timeout)
        worker = tf.data.experimental.service.WorkerServer(
            tf.data.experimental.service.WorkerConfig(
                dispatcher_address=address.partition("://")[2],
                worker_address=join(_own_address(), "%port%"),
                heartbeat_interval_ms=HEARTBEAT_MILLISECONDS,
                dispatcher_timeout_ms=int(compute_config.timeout * 1000),
            )
        )
        running.callback(worker._server.stop)
        compute.register_worker_for_dispatcher(number, hvd.rank())
        compute.wait_for_shutdown()
        hvd.barrier()  # rank 0 may end the service when all have received it
