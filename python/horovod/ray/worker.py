"""The actor in which a rank runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from horovod import _core
from horovod.common import addresses
from horovod.ray import ray_logger

_served: list[_core.Rendezvous] = []  # as long as this process lives


def node_id() -> str:
    """Returns the id of the node on which this process runs."""
    found: str = ray.get_runtime_context().get_node_id()
    return found


def serve(secret: str, interfaces: str) -> str:
    """Serves the rendezvous of a job in this process until it ends; returns ``address:port,…``."""
    rendezvous = _core.Rendezvous(None, secret)
    _served.append(rendezvous)
    assert rendezvous.port
    return ",".join(addresses.join(each, rendezvous.port) for each in _core.addresses(interfaces).split(","))


class BaseHorovodWorker:
    """One worker, whose methods Ray calls in a process of its own.

    Attributes:
        executable: an object of the program, on which it calls functions; None: there is none.
    """

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        self.update_env_vars(
            {
                "HOROVOD_HOSTNAME": self.hostname(),
                "HOROVOD_RANK": world_rank,
                "HOROVOD_SIZE": world_size,
            }
        )

    def hostname(self) -> str:
        """Returns the name of the host."""
        return socket.gethostname()

    def node_id(self) -> str:
        """Returns the id of the node."""
        return node_id()

    def get_gpu_ids(self) -> list[str]:
        """Returns the GPUs that Ray has reserved for this worker."""
        return [*ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        """Sets environment variables of the process."""
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        """Returns the environment of the process."""
        return dict(os.environ)

    def start_executable(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Makes the object that ``execute`` gives to its function."""
        if executable_cls:
            self.executable = executable_cls(*executable_args or (), **executable_kwargs or {})

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """Calls a function with the executable, and returns what it returns."""
        return func(self.executable)

    def set_queue(self, queue: Any) -> None:
        """Sets where ``ray_logger.log`` puts its values."""
        ray_logger.configure(queue)
