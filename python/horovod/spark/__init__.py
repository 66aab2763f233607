"""Horovod in the tasks of a Spark job, on classic Spark and on Spark Connect; docs/spark.md is the guide."""

from horovod.spark.elastic import run_elastic
from horovod.spark.jobs import run

__all__ = ["run", "run_elastic"]
