"""How many tasks Spark can run at the same time, which a job must not exceed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from horovod.common.exceptions import JobFailedError

POLL_SECONDS = 0.5
PATIENCE_SECONDS = 5.0  # before a line says what is waited for


def is_classic(spark: Any) -> bool:
    """Returns true if the session has a SparkContext in this process; false on Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def slots(spark: Any) -> int:
    """Returns the number of tasks that the executors of a classic session can run now at the same time."""
    context = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def parallelism(spark: Any) -> int:
    """Returns the default number of partitions, which is all that Spark Connect shows of slots."""
    from pyspark.sql.functions import spark_partition_id

    return int(spark.range(1 << 20).select(spark_partition_id()).distinct().count())


def wait_for_slots(
    count: Callable[[], int],
    wanted: int,
    seconds: float,
    is_fixed: bool,
    say: Callable[[str], object] = lambda text: print(text, file=sys.stderr, flush=True),
) -> None:
    """Waits until Spark has slots for all ranks, for executors may still be starting.

    Args:
        count: returns the number of slots.
        wanted: the number of ranks.
        seconds: the longest wait.
        is_fixed: the number can't change.
        say: gets a line after PATIENCE_SECONDS.

    Raises:
        ValueError: the number can't change, and is too small.
        JobFailedError: it was too small for too long.
    """
    begin, has_said = time.monotonic(), False
    while (found := count()) < wanted:
        text = f"{wanted} ranks need {wanted} slots of Spark at the same time, and it has {found}"
        if is_fixed:
            raise ValueError(f"{text}: ask for fewer ranks (num_proc), or start Spark with more cores")
        waited = time.monotonic() - begin
        if waited >= seconds:
            raise JobFailedError(
                f"{text}, after {seconds:g} s: ask for fewer ranks (num_proc), give Spark more executors or "
                "cores (a slot is spark.task.cpus cores, and spark.task.resource.gpu.amount GPUs if that is "
                "set), or wait longer (start_timeout)"
            )
        if waited >= PATIENCE_SECONDS and not has_said:
            say(f"horovod.spark: {text}; waiting up to {seconds:g} s for executors")
            has_said = True
        time.sleep(POLL_SECONDS)
