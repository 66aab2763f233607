"""Horovod as a back end of Ray Train: docs/ray.md.

Ray starts the workers, restarts them, and keeps checkpoints and data sets; this gives each worker its rank.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

try:
    import ray
    from ray.train.backend import Backend, BackendConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
except ImportError as error:
    raise ImportError(
        f"horovod.ray.train needs Ray Train, version 2: pip install 'horovod[ray]' ({error})"
    ) from error

from horovod.common import basics
from horovod.ray.places import interface_list, variables
from horovod.ray.worker import node_id, serve

__all__ = ["HorovodConfig", "HorovodTrainer"]

START_SECONDS = 60.0
LEAVE_SECONDS = 10.0  # in which ranks leave the job at its end


def _join(own: Mapping[str, str]) -> None:
    """Runs in a worker, which may have been a rank of an earlier job."""
    basics.shutdown()
    os.environ.update(own)


class _HorovodBackend(Backend):  # type: ignore[misc]
    share_cuda_visible_devices = True  # the local rank is the index of a device

    def on_start(self, worker_group: Any, backend_config: HorovodConfig) -> None:
        nodes = worker_group.execute(node_id)
        secret, interfaces = secrets.token_hex(32), interface_list(backend_config.nics)
        rendezvous = worker_group.execute_single(0, serve, secret, interfaces)
        job = f"ray-{secrets.token_hex(4)}"
        own = variables(nodes, job, rendezvous, secret, backend_config.timeout_s, interfaces)
        ray.get([worker_group.execute_single_async(rank, _join, each) for rank, each in enumerate(own)])

    def on_shutdown(self, worker_group: Any, backend_config: HorovodConfig) -> None:
        left = worker_group.execute_async(basics.shutdown)
        ray.wait(left, num_returns=len(left), timeout=LEAVE_SECONDS)


@dataclass
class HorovodConfig(BackendConfig):  # type: ignore[misc]
    """How the ranks of a ``HorovodTrainer`` meet.

    Attributes:
        timeout_s: the seconds for which ``hvd.init`` waits for all ranks.
        nics: the network interfaces that they use; None: any.
    """

    timeout_s: float = START_SECONDS
    nics: set[str] | None = None

    @property
    def backend_cls(self) -> type[_HorovodBackend]:
        """The class by which Ray calls this package."""
        return _HorovodBackend


class HorovodTrainer(DataParallelTrainer):  # type: ignore[misc]
    """Runs a training function on workers of Ray Train, each of which is a rank.

    Args:
        train_loop_per_worker: the function; it calls ``hvd.init()``.
        horovod_config: how the ranks meet.
        keywords: those of ``ray.train.torch.TorchTrainer``, such as ``train_loop_config``,
            ``scaling_config``, ``run_config`` and ``datasets``.
    """

    def __init__(
        self, train_loop_per_worker: Any, *, horovod_config: HorovodConfig | None = None, **keywords: Any
    ) -> None:
        super().__init__(train_loop_per_worker, backend_config=horovod_config or HorovodConfig(), **keywords)
