"""Elastic jobs on Ray: ranks on all nodes that the cluster has at the moment."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.common import basics, epochs
from horovod.common.caller import warn_caller
from horovod.common.exceptions import JobFailedError
from horovod.ray.places import interface_list, listed_resources, room
from horovod.ray.results import GRACE_SECONDS, Callback, Log, first_cause
from horovod.ray.strategy import needs, nodes_by_name
from horovod.ray.worker import BaseHorovodWorker
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.elastic.driver import ELASTIC_TIMEOUT_SECS, ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.functions import FAILED
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer

LOOK_SECONDS = 0.2  # between two looks whether a rank is to end
WORKER_SECONDS = 60.0  # in which Ray starts a worker on a node


class RayHostDiscovery(HostDiscovery):
    """All nodes of the cluster, with a slot for each rank that they have room for when nothing else runs.

    Args:
        use_gpu: whether each rank needs GPUs.
        cpus_per_worker: the CPUs that it needs.
        gpus_per_worker: the GPUs; None: 1.
    """

    def __init__(
        self, use_gpu: bool = False, cpus_per_worker: float = 1, gpus_per_worker: float | None = None
    ) -> None:
        self._need = needs(cpus_per_worker, use_gpu, gpus_per_worker)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Returns the slots of each node that has some, by its name."""
        found = {name: room(node["Resources"], self._need) for name, node in nodes_by_name().items()}
        return {name: slots for name, slots in found.items() if slots}


@dataclass
class Outcome:
    """How the function of the program ended in one process."""

    epoch: int
    rank: int
    value: Any = None
    exit_code: int = 0


class _EndedError(Exception):
    """A rank that was to end has not done so by itself."""


def _run(function: Callable[[Any], Any], executable: Any) -> Outcome:
    """Runs in a worker."""
    try:
        value = function(executable)
    except SystemExit as left:  # the process has left the job
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        return Outcome(-1, -1, exit_code=code)
    epochs.done()
    rank, _ = epochs.place() or (int(os.environ["HOROVOD_RANK"]), 0)
    basics.shutdown()  # before the process is killed, which the others would take for a loss
    return Outcome(max(epochs.number(), 0), rank, value)


class ElasticJob:
    """Ranks that come and go.

    Args:
        settings: those of the job.
        discovery: finds the nodes.
        need: what each rank needs.
        minimum: the least number of ranks.
        maximum: the largest number; None: any.
        timeout: how many seconds to wait for enough room.
        reset_limit: how often the ranks may change; None: any number.
        cooldown_range: how long a node with a failed rank is left out; None: forever.
    """

    def __init__(
        self,
        settings: Any,
        discovery: HostDiscovery | None,
        need: Mapping[str, float],
        minimum: int,
        maximum: int | None,
        timeout: float,
        reset_limit: int | None,
        cooldown_range: tuple[int, int] | None,
    ) -> None:
        if not discovery:
            raise ValueError("override_discovery=False needs settings.discovery, which finds the nodes")
        self._settings, self._discovery, self._need = settings, discovery, need
        self._first = settings.num_proc or minimum  # ranks to wait for at the start
        self._limits = (minimum, maximum, timeout, reset_limit, cooldown_range)
        self._driver: ElasticDriver | None = None
        self._executable: Sequence[Any] = (None, None, None)
        self._variables: dict[str, str] = {}
        self._lock = threading.Lock()  # guards what follows
        self._outcomes: list[Outcome] = []
        self._errors: list[BaseException] = []

    def start(self, executable: Sequence[Any], extra_env_vars: Mapping[str, Any]) -> None:
        if ray.util.client.ray.is_connected():
            raise ValueError(
                "an elastic job can't be run through ray://, as its program serves the rendezvous: run the "
                "program on a node of the cluster, e.g. by `ray job submit`"
            )
        self.shutdown()
        server = RendezvousServer(self._settings.verbose)
        self._driver = ElasticDriver(server, self._discovery, *self._limits)
        try:
            port = server.start(create_rendezvous_handler(self._driver))
            self._wait_for_room()
        except BaseException:
            self.shutdown()
            raise
        interfaces = [*filter(None, interface_list(self._settings.nics).split(","))]
        self._executable = executable
        self._variables = {
            **create_run_env_vars(ray.util.get_node_ip_address(), interfaces, port, elastic=True),
            "PYTHONUNBUFFERED": "1",
            **{name: str(value) for name, value in extra_env_vars.items()},
        }

    def _wait_for_room(self) -> None:
        assert self._driver
        try:
            self._driver.wait_for_available_slots(self._first)
        except TimeoutException as error:
            found = self._discovery.find_available_hosts_and_slots()
            listed = ", ".join(f"{slots} on {name}" for name, slots in found.items())
            raise TimeoutException(
                f"{self._first} ranks were asked for, each with {listed_resources(self._need)}, and the "
                f"cluster has room for {sum(found.values())}{listed and ': '}{listed}. Waited "
                f"{self._limits[2]:g} s (elastic_timeout)"
            ) from error

    def execute(self, function: Callable[[Any], Any], callbacks: Sequence[Callback] | None) -> list[Any]:
        driver = self._driver
        if not driver:
            raise ValueError("the elastic job has not been started, or has ended: call start first")
        self._outcomes, self._errors = [], []
        log = Log(callbacks)
        try:
            driver.start(self._first, functools.partial(self._run_worker, function, log))
            while not driver.finished():
                time.sleep(LOOK_SECONDS)
                log.pass_on()
            ended = driver.get_results()
            log.pass_on()
        finally:
            self.shutdown()
            log.close()
        codes = {name: code for name, (code, _) in ended.worker_results.items() if code}
        if ended.error_message or codes:
            raise self._failure(ended.error_message or f"exit codes {codes}")
        last = max((each.epoch for each in self._outcomes), default=0)
        of_last = [each for each in self._outcomes if each.epoch == last]
        return [each.value for each in sorted(of_last, key=lambda each: each.rank)]

    def _failure(self, text: str) -> JobFailedError:
        """Returns the error to raise. Earlier failures may have done no harm, so the last one counts."""
        text = f"{FAILED}: {text}"
        if not self._errors:
            return JobFailedError(text)
        cause = first_cause(self._errors[::-1])
        error = JobFailedError(f"{text}\nThe last rank that failed:\n{cause}")
        error.__cause__ = cause
        return error

    def _run_worker(
        self, function: Callable[[Any], Any], log: Log, slot: SlotInfo, events: Sequence[threading.Event]
    ) -> tuple[int, float]:
        """Runs one rank, in a thread of the driver, until it ends or one of the events has been set."""
        worker = None
        try:
            worker = self._start_worker(slot)
            self._wait(worker.hostname.remote(), events, WORKER_SECONDS)
            log.set_on([worker])
            self._wait(worker.start_executable.remote(*self._executable), events)
            outcome: Outcome = self._wait(worker.execute.remote(functools.partial(_run, function)), events)
        except _EndedError:
            return 1, time.time()
        except Exception as error:
            with self._lock:
                self._errors.append(error)
            return 1, time.time()
        finally:
            if worker:
                ray.kill(worker)
        if not outcome.exit_code and outcome.epoch >= 0:
            with self._lock:
                self._outcomes.append(outcome)
        return outcome.exit_code, time.time()

    def _start_worker(self, slot: SlotInfo) -> Any:
        nodes = nodes_by_name()
        node = nodes.get(slot.hostname) or next(
            (each for each in nodes.values() if each["NodeManagerAddress"] == slot.hostname), None
        )
        if not node:
            raise RuntimeError(f"node {slot.hostname} is no longer there")
        worker = (
            ray.remote(BaseHorovodWorker)
            .options(
                num_cpus=self._need["CPU"],
                num_gpus=self._need.get("GPU", 0),
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote(slot.rank, slot.size)
        )
        devices = {}
        if "GPU" in self._need:  # all of the node: the local rank, which is the index, may change
            devices["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(int(node["Resources"]["GPU"]))))
        worker.update_env_vars.remote({**create_slot_env_vars(slot), **devices, **self._variables})
        return worker

    def _wait(self, future: Any, events: Sequence[threading.Event], seconds: float | None = None) -> Any:
        """Returns the result; _EndedError if the rank was to end before, RuntimeError if time is over."""
        begin, requested = time.monotonic(), None
        while True:
            done, _ = ray.wait([future], timeout=LOOK_SECONDS)
            now = time.monotonic()
            if done:
                return ray.get(future)
            if requested is None and any(event.is_set() for event in events):
                requested = now
            if requested is not None and now - requested > GRACE_SECONDS:
                raise _EndedError
            if seconds is not None and now - begin > seconds:
                raise RuntimeError(f"Ray has not started the worker within {seconds:g} s: is its room taken?")

    def futures(self, function: Callable[[Any], Any], ranks: slice = slice(None)) -> list[Any]:
        raise NotImplementedError("the ranks of an elastic job come and go: use run or execute")

    def shutdown(self) -> None:
        if self._driver:
            self._driver.stop()
            self._driver.get_results()  # no worker is left
        self._driver = None


class ElasticRayExecutor:
    """Runs a function on the ranks of an elastic job, on all nodes of the Ray cluster of this program.

    ``RayExecutor(settings, min_workers=…)`` does the same with the parameters of ``RayExecutor``.

    Args:
        settings: what ``create_settings`` returns.
        use_gpu: whether Ray reserves GPUs for each rank.
        cpus_per_slot: the CPUs that it reserves.
        gpus_per_slot: the GPUs; None: 1.
        env_vars: environment variables of all ranks.
        override_discovery: all nodes of the cluster are used; false: those that ``settings.discovery`` finds.
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: float = ELASTIC_TIMEOUT_SECS,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        nics: set[str] | None = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """Returns the settings of an elastic job.

        Args:
            min_num_proc: the least number of ranks.
            max_num_proc: the largest number; None: as many as the cluster has room for.
            reset_limit: how often the ranks may change; None: any number.
            elastic_timeout: how many seconds to wait for enough room.
            timeout_s: without meaning, as ``ssh_identity_file``: Ray starts the ranks.
            ssh_identity_file: see there.
            nics: the network interfaces that the ranks use; None: any.
            min_np: the old name of ``min_num_proc``.
            max_np: the old name of ``max_num_proc``.
            kwargs: other fields of ``ElasticSettings``, such as ``verbose`` and ``cooldown_range``.
        """
        if min_np is not None or max_np is not None:
            warn_caller("min_np and max_np are old names: pass min_num_proc and max_num_proc")
        least = min_num_proc if min_np is None else min_np
        return ElasticSettings(
            discovery=None,
            num_proc=least,
            min_num_proc=least,
            max_num_proc=max_num_proc if max_np is None else max_np,
            elastic_timeout=elastic_timeout,
            reset_limit=reset_limit,
            ssh_identity_file=ssh_identity_file,
            start_timeout=Timeout(timeout_s, "Timed out waiting for {activity}."),
            nics=nics,
            **kwargs,
        )

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: float = 1,
        gpus_per_slot: float | None = None,
        env_vars: Mapping[str, Any] | None = None,
        override_discovery: bool = True,
    ) -> None:
        need = needs(cpus_per_slot, use_gpu, gpus_per_slot)
        if override_discovery:
            settings.discovery = RayHostDiscovery(use_gpu, cpus_per_slot, gpus_per_slot)
        self.settings, self._env_vars = settings, env_vars or {}
        self._job = ElasticJob(
            settings,
            settings.discovery,
            need,
            settings.min_num_proc or 1,
            settings.max_num_proc,
            settings.elastic_timeout or ELASTIC_TIMEOUT_SECS,
            settings.reset_limit,
            settings.cooldown_range,
        )

    def start(self) -> None:
        """Waits until the cluster has room for ``min_num_proc`` ranks.

        Raises:
            TimeoutException: it has not had it for too long; the text says what it has.
        """
        self._job.start((None, None, None), self._env_vars)

    def run(self, worker_fn: Callable[[], Any], callbacks: Sequence[Callback] | None = None) -> list[Any]:
        """Calls ``worker_fn()`` on every rank; returns the results of those at the end, in their order.

        Args:
            worker_fn: the function, which uses ``hvd.elastic.run``. Ray sends it to the ranks.
            callbacks: functions that this program calls with what ranks give to ``ray_logger.log``.

        Raises:
            JobFailedError: a RuntimeError: too few ranks are left. Its ``__cause__`` is the exception that
                Ray has for the last one that failed.
        """
        return self._job.execute(lambda _: worker_fn(), callbacks)
