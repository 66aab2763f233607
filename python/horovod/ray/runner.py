"""``RayExecutor``: runs functions on ranks that are actors of a Ray cluster."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from horovod.ray.elastic import ElasticJob, RayHostDiscovery
from horovod.ray.places import Coordinator as Coordinator
from horovod.ray.places import by_node, interface_list, variables, visible_devices
from horovod.ray.results import Callback, Log, results
from horovod.ray.strategy import PLACEMENT_SECONDS, ColocatedStrategy, PGStrategy, Strategy, needs
from horovod.ray.worker import BaseHorovodWorker as BaseHorovodWorker
from horovod.ray.worker import serve
from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.elastic.driver import ELASTIC_TIMEOUT_SECS

START_SECONDS = 30.0


@dataclass(kw_only=True)
class MiniSettings(BaseSettings):
    """The settings of a job on Ray, as ``RayExecutor.create_settings`` makes them.

    Attributes:
        timeout_s: the seconds for which ``init`` waits for all ranks.
        placement_group_timeout_s: the seconds to wait for room in the cluster.
        discovery: finds the hosts of an elastic job.
    """

    timeout_s: float = START_SECONDS
    placement_group_timeout_s: float = PLACEMENT_SECONDS
    discovery: Any = None


class FixedJob:
    """Ranks that all stay until the end.

    Attributes:
        workers: the actors, in the order of their ranks.
    """

    def __init__(self, settings: Any, strategy: Callable[[], Strategy]) -> None:
        self._settings, self._make_strategy = settings, strategy
        self._strategy: Strategy | None = None
        self.workers: list[Any] = []

    def start(self, executable: Sequence[Any], extra_env_vars: Mapping[str, Any]) -> None:
        self.shutdown()
        self._strategy = self._make_strategy()
        try:
            workers = self._strategy.create_workers()
            nodes = ray.get([worker.node_id.remote() for worker in workers])
            order = by_node(nodes)
            self.workers = [workers[number] for number in order]
            self._set_variables([nodes[number] for number in order], extra_env_vars)
            self._results(lambda worker: worker.start_executable.remote(*executable))
        except BaseException:
            self.shutdown()
            raise

    def _set_variables(self, nodes: Sequence[str], extra: Mapping[str, Any]) -> None:
        secret, interfaces = secrets.token_hex(32), interface_list(self._settings.nics)
        rendezvous = ray.get(self.workers[0].execute.remote(lambda _: serve(secret, interfaces)))
        timeout = float(getattr(self._settings, "timeout_s", START_SECONDS))
        own = variables(nodes, f"ray-{secrets.token_hex(4)}", rendezvous, secret, timeout, interfaces)
        devices = self._visible_devices(nodes)
        ray.get(
            [
                worker.update_env_vars.remote({**own[rank], **devices[nodes[rank]], **extra})
                for rank, worker in enumerate(self.workers)
            ]
        )

    def _visible_devices(self, nodes: Sequence[str]) -> dict[str, dict[str, str]]:
        """Returns for each node the variable by which its workers also see each other's GPUs."""
        reserved = ray.get([worker.get_gpu_ids.remote() for worker in self.workers])
        found: dict[str, list[list[str]]] = {}
        for node, own in zip(nodes, reserved, strict=True):
            found.setdefault(node, []).append(own)
        return {
            node: {"CUDA_VISIBLE_DEVICES": visible_devices(own)} if all(own) else {}
            for node, own in found.items()
        }

    def _results(self, call: Callable[[Any], Any], callbacks: Sequence[Callback] | None = None) -> list[Any]:
        log = Log(callbacks)
        try:
            log.set_on(self.workers)
            return results([call(worker) for worker in self.workers], log, self.shutdown)
        finally:
            log.close()

    def execute(self, function: Callable[[Any], Any], callbacks: Sequence[Callback] | None) -> list[Any]:
        self._check_started()
        return self._results(lambda worker: worker.execute.remote(function), callbacks)

    def futures(self, function: Callable[[Any], Any], ranks: slice = slice(None)) -> list[Any]:
        self._check_started()
        return [worker.execute.remote(function) for worker in self.workers[ranks]]

    def _check_started(self) -> None:
        if not self.workers:
            raise ValueError("RayExecutor: call start first, and again after a failure that has ended ranks")

    def shutdown(self) -> None:
        self.workers = []
        if self._strategy:
            self._strategy.shutdown()
        self._strategy = None


class RayExecutor:
    """Runs functions on the ranks of a job, which are actors of the Ray cluster of this program.

    Say ``num_workers`` for ranks wherever there is room, ``num_hosts`` and ``num_workers_per_host`` for the
    same number on each of several nodes, or ``min_workers`` for an elastic job on the whole cluster.

    Args:
        settings: what ``create_settings`` returns.
        num_workers: the number of ranks.
        num_hosts: on how many nodes they are.
        num_workers_per_host: how many are on each of these.
        cpus_per_worker: the CPUs that Ray reserves for a rank.
        use_gpu: whether it also reserves GPUs.
        gpus_per_worker: how many; None: 1.
        use_current_placement_group: use the placement group in which this program runs, if there is one.
        min_workers: the job is elastic: it goes on as long as it has that many ranks.
        max_workers: the largest number of them; None: as many as the cluster has room for.
        reset_limit: how often the ranks may change; None: any number.
        cooldown_range: the shortest and longest time in seconds for which a node with a failed rank is left
            out; None: forever.
        elastic_timeout: how many seconds to wait for enough room.
        override_discovery: all nodes of the cluster are used; false: those that ``settings.discovery`` finds.

    Raises:
        ValueError: parameters that exclude each other, or none that says how many.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = START_SECONDS,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = PLACEMENT_SECONDS,
        nics: set[str] | None = None,
    ) -> MiniSettings:
        """Returns the settings of a job.

        Args:
            timeout_s: how many seconds ``hvd.init`` waits for all ranks.
            ssh_identity_file: without meaning, as ``ssh_str``: Ray starts the ranks.
            ssh_str: see there.
            placement_group_timeout_s: how many seconds ``start`` waits for room in the cluster.
            nics: the network interfaces that the ranks use; None: any.
        """
        return MiniSettings(
            timeout_s=timeout_s,
            ssh_identity_file=ssh_identity_file,
            placement_group_timeout_s=placement_group_timeout_s,
            nics=nics,
        )

    def __init__(
        self,
        settings: Any,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: float | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: tuple[int, int] | None = None,
        elastic_timeout: float = ELASTIC_TIMEOUT_SECS,
        override_discovery: bool = True,
    ) -> None:
        _check_numbers(num_workers, num_hosts, min_workers, max_workers)
        need = needs(cpus_per_worker, use_gpu, gpus_per_worker)
        self.settings = settings
        self.adapter: FixedJob | ElasticJob
        common: dict[str, Any] = {
            "use_gpu": use_gpu,
            "cpus_per_worker": cpus_per_worker,
            "gpus_per_worker": gpus_per_worker,
        }
        if min_workers:
            discovery = RayHostDiscovery(**common) if override_discovery else settings.discovery
            limits = (min_workers, max_workers, elastic_timeout, reset_limit, cooldown_range)
            self.adapter = ElasticJob(settings, discovery, need, *limits)
            return
        strategy: Callable[[], Strategy]
        if num_workers:
            strategy = functools.partial(
                PGStrategy,
                settings=settings,
                num_workers=num_workers,
                force_create_placement_group=not use_current_placement_group,
                **common,
            )
        else:
            assert num_hosts
            strategy = functools.partial(
                ColocatedStrategy,
                settings=settings,
                num_hosts=num_hosts,
                num_workers_per_host=num_workers_per_host,
                **common,
            )
        self.adapter = FixedJob(settings, strategy)

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts the ranks; those of an earlier start end.

        Args:
            executable_cls: a class; each rank makes an object of it, which stays, and on which ``execute``
                calls its function.
            executable_args: the positional arguments of the class.
            executable_kwargs: its named arguments.
            extra_env_vars: environment variables of all ranks.

        Raises:
            TimeoutError: there is no room for them; the text says what the cluster has.
            JobFailedError: the class failed on a rank.
        """
        self.adapter.start((executable_cls, executable_args, executable_kwargs), extra_env_vars or {})

    def execute(self, fn: Callable[[Any], Any], callbacks: Sequence[Callback] | None = None) -> list[Any]:
        """Calls ``fn(executable)`` on every rank; returns the results in the order of the ranks.

        Args:
            fn: the function. Ray sends it to the ranks.
            callbacks: functions that this program calls with what ranks give to ``ray_logger.log``.

        Raises:
            JobFailedError: a RuntimeError: a rank failed. Its ``__cause__`` is the exception that Ray has for
                the rank that failed first; the others have ended, or are ended.
        """
        return self.adapter.execute(fn, callbacks)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> list[Any]:
        """Calls ``fn(*args, **kwargs)`` on every rank; see ``execute``."""
        return self.execute(lambda _: fn(*args or (), **kwargs or {}), callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Does the same, but returns at once what ``ray.get`` waits for; not of an elastic job."""
        return self.adapter.futures(lambda _: fn(*args or (), **kwargs or {}))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Calls ``fn(executable)`` on rank 0 alone; not of an elastic job."""
        return ray.get(self.adapter.futures(fn, slice(1)))[0]

    def shutdown(self) -> None:
        """Ends the ranks and gives back what was reserved for them."""
        self.adapter.shutdown()


def _check_numbers(
    num_workers: int | None, num_hosts: int | None, min_workers: int | None, max_workers: int | None
) -> None:
    given = {"num_workers": num_workers, "num_hosts": num_hosts, "min_workers": min_workers}
    kinds = [f"{name}={value}" for name, value in given.items() if value is not None]
    if max_workers is not None and not min_workers:
        raise ValueError(f"RayExecutor: max_workers={max_workers} needs min_workers")
    if len(kinds) != 1:
        raise ValueError(
            "RayExecutor needs one of num_workers, num_hosts and min_workers, the last for an elastic job, "
            f"and got {' and '.join(kinds) or 'none'}"
        )
    if any(value is not None and value < 1 for value in given.values()):
        raise ValueError(f"RayExecutor: {kinds[0]} must be at least 1")
    if min_workers and max_workers is not None and max_workers < min_workers:
        raise ValueError(f"RayExecutor: max_workers={max_workers} is less than min_workers={min_workers}")
