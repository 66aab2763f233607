"""``horovod.spark.run``: runs a function on ranks in tasks of a barrier stage; returns its results."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from horovod.common.exceptions import JobFailedError
from horovod.runner.functions import FAILED, pickled
from horovod.runner.output import Output
from horovod.spark import failure
from horovod.spark.barrier import OUTPUT, PLACE, SCHEMA, STREAMS, Job, run_task
from horovod.spark.lines import Listener
from horovod.spark.slots import is_classic, parallelism, slots, wait_for_slots

T = TypeVar("T")

START_SECONDS = 600.0
# Variables of the driver that say something about its own host, or that no log may hold.
OWN = PLACE | {"HOROVOD_HOST_ID", "HOROVOD_ADVERTISED_ADDRESS"}


def active_session() -> Any:
    """Returns the Spark session of this thread, or the only one.

    Raises:
        ImportError: PySpark is missing.
        RuntimeError: there is no session.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("horovod.spark needs PySpark 3.5 or later: pip install 'horovod[spark]'") from error
    try:
        return SparkSession.active()
    except RuntimeError as error:
        raise RuntimeError(
            "horovod.spark: there is no Spark session; SparkSession.builder.getOrCreate() starts one"
        ) from error


def is_local(spark: Any) -> bool:
    """Returns true if the session runs its tasks in one process of this host."""
    return is_classic(spark) and spark.sparkContext.master.split("[")[0] == "local"


def start_seconds(start_timeout: float | None) -> float:
    """Returns how long to wait for slots, and in ``init`` for the other ranks."""
    if start_timeout is not None:
        return float(start_timeout)
    return float(os.environ.get("HOROVOD_SPARK_START_TIMEOUT", START_SECONDS))


def variables(env: Mapping[str, str] | None, seconds: float) -> dict[str, str]:
    """Returns what the environment of a task gets: the settings of this process, and those of the caller."""
    own = {
        name: value for name, value in os.environ.items() if name.startswith("HOROVOD_") and name not in OWN
    }
    given = {name: str(value) for name, value in (env or {}).items()}
    return {"HOROVOD_START_TIMEOUT": f"{seconds:g}"} | own | given


class Show:
    """Writes the output of ranks to streams of the caller, whole lines with the rank in front."""

    def __init__(self, stdout: Any, stderr: Any, with_time: bool) -> None:
        self._streams, self._with_time = (stdout, stderr), with_time
        self._outputs: dict[tuple[int, int], Output] = {}

    def __call__(self, stream: int, rank: int, data: bytes) -> None:
        """Takes bytes of a rank."""
        output = self._outputs.get((stream, rank))
        if not output:
            output = self._outputs[stream, rank] = Output(
                f"sys.{STREAMS[stream]}",
                lambda: self._streams[stream] or getattr(sys, STREAMS[stream]),
                lambda: f"{time.asctime() if self._with_time else ''}[{rank}]<{STREAMS[stream]}>: ",
            )
        output.receive(data)


@contextlib.contextmanager
def shown_output(spark: Any, ranks: int, show: Show) -> Iterator[None]:
    """Shows the output of the ranks that this thread lets Spark run meanwhile.

    If this process can't listen where executors know it, as on Spark Connect, the output is in their logs.
    """
    listener = None
    if is_classic(spark):
        conf = spark.sparkContext.getConf()
        host = conf.get("spark.driver.host", "127.0.0.1")
        with contextlib.suppress(OSError):
            listener = Listener(conf.get("spark.driver.bindAddress", host), ranks, show)
    if not listener:
        yield
        return
    at = f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"
    spark.sparkContext.setLocalProperty(OUTPUT, f"{at} {listener.secret.hex()}")
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(OUTPUT, None)
        listener.close()


def spark_failed(error: Exception, ranks: int) -> JobFailedError:
    """Returns the error to raise after Spark has raised one."""
    found = failure.find(str(error))
    if found:
        return found.job_failed()
    text = f"{FAILED}: Spark has ended the stage of its {ranks} tasks, and none has reported why"
    if "No module named 'horovod'" in str(error):
        text = f"{FAILED}: horovod is not installed on the executors; install this version there"
    failed = JobFailedError(f"{text}: {error}", exit_code=1)
    failed.__cause__ = error
    return failed


def _number_of_ranks(spark: Any, num_proc: int | None, seconds: float) -> int:
    """Returns the number of ranks, for which there are slots."""
    if num_proc is not None and num_proc < 1:
        raise ValueError(f"num_proc={num_proc} must be at least 1")
    if is_classic(spark):
        wanted = num_proc or max(1, slots(spark))
        wait_for_slots(lambda: slots(spark), wanted, seconds, is_fixed=is_local(spark))
        return wanted
    found = parallelism(spark)
    if num_proc and num_proc > found:
        warnings.warn(
            f"horovod.spark: {num_proc} ranks need that many slots of Spark at the same time; its default "
            f"parallelism is {found}. If it has fewer slots, Spark asks for them for 10 minutes",
            stacklevel=3,
        )
    return num_proc or found


def run(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[T]:
    """Runs ``fn(*args, **kwargs)`` on ranks in the tasks of a Spark job; returns the results in rank order.

    All ranks run at the same time, one in each task of a barrier stage, in a process of its own that ends
    with the task. Ranks of a host are neighbours. The function is sent by cloudpickle, as Spark sends its
    own; the executors need this package. If a rank fails, Spark ends the others, and nothing is repeated.

    On classic Spark the output of the ranks is written to ``stdout`` and ``stderr`` here; on Spark Connect,
    and where the executors can't connect to this host, it is in the executors' logs.

    Args:
        fn: the function; every rank calls it once.
        args: its positional arguments.
        kwargs: its named arguments.
        num_proc: the number of ranks; None: one for each slot that Spark has now.
        start_timeout: the seconds to wait for slots, and in ``init`` for other ranks; None:
            HOROVOD_SPARK_START_TIMEOUT, or 600.
        use_mpi: only warns, as does ``extra_mpi_args``: the tasks start the ranks without mpirun.
        use_gloo: has no effect.
        env: variables for the ranks, in addition to those of the executors and HOROVOD_* of this process.
        stdout: gets the ranks' stdout; None: sys.stdout.
        stderr: gets the ranks' stderr; None: sys.stderr.
        verbose: 0 says nothing about where output is.
        nics: the network interfaces that the ranks use; None: any.
        prefix_output_with_timestamp: puts the time in front of each line of output.
        executable: the Python of the ranks on the executors; None: the one of Spark's tasks.

    Raises:
        ValueError: Spark can't have that many slots.
        RuntimeError: there is no Spark session.
        JobFailedError: a RuntimeError: a rank failed; the text says which one, where and how, and
            ``__cause__`` is its exception, unless that can't be unpickled here. Or there were too few slots
            for too long.
    """
    if use_mpi or extra_mpi_args:
        warnings.warn(
            "horovod.spark.run: use_mpi and extra_mpi_args have no effect: Spark's tasks start the ranks, "
            "and their bytes do not go through MPI",
            stacklevel=2,
        )
    spark, seconds = active_session(), start_seconds(start_timeout)
    function = pickled(fn, args, kwargs or {})
    ranks = _number_of_ranks(spark, num_proc, seconds)
    job = Job(function, variables(env, seconds), executable, ",".join(nics or ()), is_local(spark))
    if verbose and not is_classic(spark):
        print(
            "horovod.spark: on Spark Connect the output of the ranks is in the executors' logs",
            file=sys.stderr,
        )
    return run_job(spark, job, ranks, Show(stdout, stderr, prefix_output_with_timestamp))


def run_job(spark: Any, job: Job, ranks: int, show: Show) -> list[Any]:
    """Runs a job in a barrier stage; returns the results in rank order, or raises as ``run`` does."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        return run_task(job, batches)

    rows, failed = [], None
    with shown_output(spark, ranks, show):
        try:
            rows = spark.range(0, ranks, 1, ranks).mapInArrow(task, SCHEMA, barrier=True).collect()
        except Exception as error:
            failed = spark_failed(error, ranks)
    if failed:
        raise failed
    return [_result(row.rank, row.result) for row in sorted(rows, key=lambda row: row.rank)]


def _result(rank: int, data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:
        raise RuntimeError(
            f"the result of rank {rank} can't be unpickled here, {error!r}: return objects whose modules "
            "this process can import"
        ) from error
