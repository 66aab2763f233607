"""``horovod.spark.run_elastic``: ranks in ordinary tasks of Spark, which come and go.

Each attempt of a task is a host of one slot for the driver of elastic jobs. A task whose rank has failed also
fails, so Spark starts it again, and its next attempt is a newcomer.
"""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from horovod.common.exceptions import JobFailedError
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.functions import FAILED, pickled, results_at_end
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.task import Report
from horovod.spark import jobs
from horovod.spark.elastic_task import ADDRESS, SECRET, ElasticJob, run_task
from horovod.spark.links import Link, Links
from horovod.spark.slots import is_classic, slots

T = TypeVar("T")

END_SECONDS = 5.0  # for a rank to end by itself, before its task ends it
TASKS_SECONDS = 60.0  # for all tasks to end, of which Spark may just start one again


class _Server(RendezvousServer):
    def host_of(self, place: SlotInfo) -> str | None:
        """Returns None: tasks of one host are hosts of their own for the driver, but share memory."""
        return None


class Tasks(HostDiscovery):
    """The tasks that are there, by name; each is a host of one slot until its rank has ended."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._links: dict[str, Link] = {}
        self._codes: dict[str, int] = {}  # of ranks that have ended
        self._gone: set[str] = set()  # tasks that have ended
        self._is_over = False
        self.failures: list[str] = []  # texts, in the order in which they arrived

    def serve(self, link: Link) -> None:
        """Follows one task until its connection ends."""
        hello = link.receive()
        name = hello.get("name") if hello else None
        if not isinstance(name, str) or name in self._links:
            return
        with self.changed:
            self._links[name] = link
            if self._is_over:  # Spark has started it late
                self._send(link, over=True)
            self.changed.notify_all()
        while message := link.receive():
            with self.changed:
                code, text = message.get("code"), message.get("text")
                if isinstance(code, int):
                    self._codes[name] = code
                    if text and isinstance(text, str):
                        self.failures.append(text)
                self.changed.notify_all()
        with self.changed:
            self._gone.add(name)
            self.changed.notify_all()

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Returns one slot for each task whose rank has not ended."""
        with self.changed:
            return {name: 1 for name in self._links if name not in self._gone and not self._codes.get(name)}

    def run(self, name: str, variables: Mapping[str, str], events: Sequence[threading.Event]) -> int:
        """Lets a task run a rank; returns its exit code."""
        with self.changed:
            link = self._links[name]
            self._codes.pop(name, None)
        try:
            link.send(variables=dict(variables))
        except OSError:
            return 1
        asked: float | None = None
        with self.changed:
            while name not in self._codes and name not in self._gone:
                self.changed.wait(0.2)
                if asked is None and any(event.is_set() for event in events):
                    asked = time.monotonic()
                if asked is not None and time.monotonic() >= asked + END_SECONDS:
                    self._send(link, end=True)
                    asked = float("inf")
            return self._codes.get(name, 1)

    def over(self) -> None:
        """Ends all tasks, also those that come later."""
        with self.changed:
            self._is_over = True
            for link in self._links.values():
                self._send(link, over=True)

    @staticmethod
    def _send(link: Link, **message: Any) -> None:
        try:
            link.send(**message)
        except OSError:
            link.end()


def run_elastic(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[T]:
    """Runs a function as an elastic job: lost ranks are replaced when Spark starts their tasks again.

    The function uses ``hvd.elastic.run``, as in docs/elastic.md. Spark starts a failed task again as often as
    ``spark.task.maxFailures`` says (4; in a session ``local[2]`` never, in ``local[2,4]`` 3 times), and then
    ends the job. The ranks connect to this program, which must therefore be classic Spark.

    Args:
        fn: the function; args and kwargs are its arguments.
        args: see fn.
        kwargs: see fn.
        num_proc: the ranks to begin with; None: one for each slot that Spark has now.
        min_num_proc: the least number of ranks; None: num_proc.
        max_num_proc: the largest number, which Spark starts tasks for; None: num_proc.
        start_timeout: the seconds to wait for the first ranks, and in ``init``; None:
            HOROVOD_SPARK_START_TIMEOUT, or 600.
        elastic_timeout: the seconds to wait for enough ranks later; None: HOROVOD_ELASTIC_TIMEOUT, or 600.
        reset_limit: how often the ranks may change; None: any number.
        env: variables for the ranks, as for ``run``, and likewise the next ones.
        stdout: see run.
        stderr: see run.
        verbose: see run.
        nics: see run.
        prefix_output_with_timestamp: see run.
        min_np: the old name of min_num_proc.
        max_np: the old name of max_num_proc.

    Returns:
        The results of the ranks at the end, in their order.

    Raises:
        ValueError: the session is one of Spark Connect, or the numbers contradict each other.
        JobFailedError: there were too few ranks for too long, or the function failed.
    """
    spark, seconds = jobs.active_session(), jobs.start_seconds(start_timeout)
    if not is_classic(spark):
        raise ValueError("horovod.spark.run_elastic: its ranks can't connect to a client of Spark Connect")
    first = num_proc or max(1, slots(spark))
    least, most = min_num_proc or min_np or first, max_num_proc or max_np or first
    if not 1 <= least <= first <= most:
        raise ValueError(f"min_num_proc={least}, num_proc={first}, max_num_proc={most} must not fall")
    function = pickled(fn, args, kwargs or {})
    job = ElasticJob(function, jobs.variables(env, seconds), None)
    show = jobs.Show(stdout, stderr, prefix_output_with_timestamp)
    elastic = _Elastic(spark, job, most, ",".join(nics or ()), show)
    return elastic.run(first, least, most, seconds, elastic_timeout, reset_limit, verbose)


class _Elastic:
    """One elastic job: its tasks in a thread, its driver in this one."""

    def __init__(self, spark: Any, job: ElasticJob, tasks: int, nics: str, show: jobs.Show) -> None:
        self._spark, self._job, self._count, self._nics, self._show = spark, job, tasks, nics, show
        self._tasks, self._done, self._group = Tasks(), threading.Event(), f"horovod-{uuid.uuid4().hex}"
        self._reports: list[Report] = []
        self._error: Exception | None = None
        self._driver: ElasticDriver | None = None

    def run(
        self,
        first: int,
        least: int,
        most: int,
        seconds: float,
        elastic_timeout: float | None,
        reset_limit: int | None,
        verbose: int,
    ) -> list[Any]:
        conf = self._spark.sparkContext.getConf()
        host = conf.get("spark.driver.host", "127.0.0.1")
        server = _Server()
        driver = ElasticDriver(
            server, self._tasks, least, most, elastic_timeout, reset_limit, (1, 1), max(0, verbose - 1)
        )
        self._driver = driver
        port = server.start(create_rendezvous_handler(driver))
        variables = create_run_env_vars(host, filter(None, self._nics.split(",")), port, elastic=True)
        secret = variables.pop("HOROVOD_SECRET")  # goes by Spark, not by a connection that is not encrypted
        links = Links(conf.get("spark.driver.bindAddress", host), secret, self._tasks.serve)
        context = self._spark.sparkContext

        def start(slot: SlotInfo, events: Sequence[threading.Event]) -> tuple[int, float]:
            place = create_slot_env_vars(slot)
            del place["HOROVOD_HOSTNAME"]
            if place["HOROVOD_EPOCH"] == "0":  # these are wrong: a host may have several tasks
                for name in ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"):
                    del place[f"HOROVOD_{name}"]
            return self._tasks.run(slot.hostname, {**variables, **place}, events), time.time()

        stage = threading.Thread(target=self._collect, args=(f"{host}:{links.port}", secret), daemon=True)
        ended = None
        try:
            stage.start()
            self._wait(first, seconds)
            driver.start(first, start)
            ended = driver.get_results()
        except TimeoutException as error:
            raise JobFailedError(f"{FAILED}: {error}") from error
        finally:
            driver.stop()
            driver.get_results()  # after an exception, too: no rank is left
            self._tasks.over()
            self._done.wait(TASKS_SECONDS)
            if not self._done.is_set():
                context.cancelJobGroup(self._group)
            stage.join()
            links.close()
        failed = {name: code for name, (code, _) in ended.worker_results.items() if code}
        if ended.error_message or failed or self._error:
            raise self._failure(ended.error_message)
        return results_at_end(self._reports)

    def _wait(self, first: int, seconds: float) -> None:
        """Waits until the first tasks are there; JobFailedError if Spark does not start them."""
        deadline = time.monotonic() + seconds
        with self._tasks.changed:
            while len(there := self._tasks.find_available_hosts_and_slots()) < first:
                if self._error:
                    raise self._failure(None)
                if time.monotonic() >= deadline:
                    raise JobFailedError(
                        f"{first} ranks need that many tasks of Spark at the same time, and after "
                        f"{seconds:g} s there are {len(there)}: ask for fewer (num_proc), or give "
                        "Spark more cores"
                    )
                self._tasks.changed.wait(0.2)

    def _failure(self, message: str | None) -> JobFailedError:
        text = f"{FAILED}: {message or 'the job has failed'}"
        causes = [each for each in self._tasks.failures if "HorovodInternalError" not in each]
        last = (causes or self._tasks.failures)[-1:]
        error = JobFailedError("\n".join([text, *last]), exit_code=1)
        error.__cause__ = self._error
        return error

    def _collect(self, address: str, secret: str) -> None:
        """Runs the stage of tasks, and keeps their reports; the properties belong to this thread."""
        context, job = self._spark.sparkContext, self._job

        def task(_: int, rows: Iterator[Any]) -> Iterator[Any]:
            return run_task(job)

        context.setJobGroup(self._group, "an elastic job of Horovod", interruptOnCancel=True)
        context.setLocalProperty(ADDRESS, address)
        context.setLocalProperty(SECRET, secret)
        try:
            with jobs.shown_output(self._spark, self._count, self._show):
                rdd = context.parallelize(range(self._count), self._count)
                self._reports = [*map(pickle.loads, rdd.mapPartitionsWithIndex(task).collect())]
        except Exception as error:
            self._error = error
            if self._driver:
                self._driver.stop(f"Spark has ended its tasks: {str(error).splitlines()[0]}")
        finally:
            self._done.set()
