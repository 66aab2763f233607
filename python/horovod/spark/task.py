"""What a rank can ask about the Spark task that runs it."""

from __future__ import annotations

import os

DEVICES = "HOROVOD_SPARK_DEVICES"  # set in each rank


def get_available_devices() -> list[str]:
    """Returns the addresses of the GPUs that Spark has given to the task of this rank.

    In a rank of ``horovod.spark.run`` CUDA_VISIBLE_DEVICES lists the GPUs of all ranks of its host, such that
    the GPU with the index ``hvd.local_rank()`` is the first one of these.
    """
    if DEVICES in os.environ:
        return [address for address in os.environ[DEVICES].split(",") if address]
    from pyspark import TaskContext

    context = TaskContext.get()
    return list(context.resources()["gpu"].addresses) if context and "gpu" in context.resources() else []
