"""Reserves room for the workers of a job in a Ray cluster, and starts them there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import ray
from ray.util.placement_group import get_current_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from horovod.ray.places import shortage
from horovod.ray.worker import BaseHorovodWorker

PLACEMENT_SECONDS = 100.0  # unless the settings say otherwise
ANY_BUNDLE = -1  # of a placement group


def needs(cpus: float, use_gpu: bool, gpus: float | None) -> dict[str, float]:
    """Returns what each worker needs; ValueError for GPUs without ``use_gpu``, and for less than one."""
    if gpus and not use_gpu:
        raise ValueError(f"{gpus} GPUs for each worker have no meaning without use_gpu=True")
    if gpus is not None and use_gpu and gpus < 1:
        raise ValueError(f"with use_gpu=True each worker needs a GPU at least, not {gpus}")
    return {"CPU": cpus, **({"GPU": gpus or 1} if use_gpu else {})}


def nodes_by_name() -> dict[str, dict[str, Any]]:
    """Returns the nodes that the cluster has now, as Ray describes them.

    The name is the address and the beginning of the id, since several nodes may be on one machine.
    """
    return {
        f"{each['NodeManagerAddress']}-{each['NodeID'][:8]}": each for each in ray.nodes() if each["Alive"]
    }


class Strategy:
    """Where workers run.

    Args:
        settings: ``placement_group_timeout_s`` is how long to wait for room, and then for the workers.
        need: what each worker needs.
        bundles: how many parts of the cluster are reserved.
        per_bundle: how many workers each part has.
        kind: how the parts are placed, as Ray calls it.
        current: a placement group that has room for the workers; None: one is made.
    """

    def __init__(
        self,
        settings: Any,
        need: Mapping[str, float],
        bundles: int,
        per_bundle: int,
        kind: str,
        current: Any = None,
    ) -> None:
        self._seconds = float(getattr(settings, "placement_group_timeout_s", PLACEMENT_SECONDS))
        self._need, self._bundles, self._per_bundle, self._kind = need, bundles, per_bundle, kind
        self._current, self._own = current, cast(Any, None)
        self.workers: list[Any] = []

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return self._bundles * self._per_bundle

    def create_workers(self) -> list[Any]:
        """Starts the workers and returns their handles; TimeoutError if there is no room for them."""
        if not self._current:
            self._reserve()
        kind = ray.remote(BaseHorovodWorker)
        self.workers = [
            kind.options(
                num_cpus=self._need["CPU"],
                num_gpus=self._need.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._current or self._own,
                    placement_group_bundle_index=ANY_BUNDLE if self._current else number // self._per_bundle,
                ),
            ).remote(number, self.num_workers)
            for number in range(self.num_workers)
        ]
        started = [worker.hostname.remote() for worker in self.workers]
        ready, missing = ray.wait(started, num_returns=len(started), timeout=self._seconds)
        if missing:
            raise self._timeout(f"only {len(ready)} of {self.num_workers} workers have started")
        ray.get(started)  # raises what has ended a worker
        return self.workers

    def _reserve(self) -> None:
        bundle = {name: amount * self._per_bundle for name, amount in self._need.items()}
        self._own = placement_group([bundle] * self._bundles, strategy=self._kind)
        if not self._own.wait(self._seconds):
            nodes = {name: node["Resources"] for name, node in nodes_by_name().items()}
            spread = self._kind == "STRICT_SPREAD"
            free = ray.available_resources()
            raise self._timeout(shortage(self._bundles, self._per_bundle, self._need, spread, nodes, free))

    def _timeout(self, text: str) -> TimeoutError:
        return TimeoutError(f"{text}. Waited {self._seconds:g} s (placement_group_timeout_s)")

    def shutdown(self) -> None:
        """Ends the workers and gives back what was reserved for them."""
        for worker in self.workers:
            ray.kill(worker)
        self.workers = []
        if self._own:
            remove_placement_group(self._own)
        self._own = None


class ColocatedStrategy(Strategy):
    """The same number of workers on each of several nodes."""

    def __init__(
        self,
        *,
        settings: Any,
        num_hosts: int,
        num_workers_per_host: int,
        use_gpu: bool,
        cpus_per_worker: float,
        gpus_per_worker: float | None,
    ) -> None:
        need = needs(cpus_per_worker, use_gpu, gpus_per_worker)
        super().__init__(settings, need, num_hosts, num_workers_per_host, "STRICT_SPREAD")


class PGStrategy(Strategy):
    """Workers wherever there is room, on as few nodes as possible.

    Args:
        placement_group: one of the program; None: that in which the program itself runs, if there is one.
        force_create_placement_group: make one in any case.
    """

    def __init__(
        self,
        *,
        settings: Any,
        num_workers: int,
        use_gpu: bool,
        cpus_per_worker: float,
        gpus_per_worker: float | None,
        placement_group: Any = None,
        force_create_placement_group: bool = False,
    ) -> None:
        need = needs(cpus_per_worker, use_gpu, gpus_per_worker)
        current = None
        if not force_create_placement_group:
            current = placement_group or get_current_placement_group()
        super().__init__(settings, need, num_workers, 1, "PACK", current)
