"""horovod.spark.run on sessions that need a process of their own: Spark Connect, and no session at all."""

from __future__ import annotations

import subprocess
import sys

from conftest import SETTINGS

DEADLINE = 240.0  # seconds

CONNECT = f"""
import os
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config(map={SETTINGS}).getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
import horovod.spark
"""


def run(program: str, *arguments: str) -> str:
    """Runs a program; returns what it writes to stdout."""
    words = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_spark_connect() -> None:
    text = run(
        CONNECT + "def f(x):\n"
        "    import horovod as hvd, numpy as np\n"
        "    hvd.init()\n"
        "    return hvd.rank(), hvd.size(), float(hvd.allreduce(np.full(1, x), op=hvd.Sum)[0])\n"
        "print(horovod.spark.run(f, (2.0,)))\n"
        "def g():\n"
        "    import os\n"
        "    if os.environ['HOROVOD_RANK'] == '1': raise KeyError('missing')\n"
        "    import horovod as hvd\n"
        "    hvd.init()\n"
        "try:\n"
        "    horovod.spark.run(g, num_proc=2)\n"
        "except RuntimeError as error:\n"
        "    print(type(error).__name__, error.fault.rank, repr(error.__cause__))\n"
    )
    assert text.splitlines() == ["[(0, 2, 4.0), (1, 2, 4.0)]", "JobFailedError 1 KeyError('missing')"]


def test_without_a_session() -> None:
    text = run("import horovod.spark\ntry:\n    horovod.spark.run(print)\nexcept RuntimeError as e: print(e)")
    assert text == (
        "horovod.spark: there is no Spark session; SparkSession.builder.getOrCreate() starts one\n"
    )


def test_executors_of_their_own_that_start_later() -> None:
    text = run(
        f"""
from pyspark.sql import SparkSession
settings = {SETTINGS} | {{"spark.executor.memory": "512m"}}
spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
import horovod.spark
def f():
    import horovod as hvd, numpy as np, os
    hvd.init()
    total = hvd.allreduce(np.ones(1), op=hvd.Sum)
    return hvd.rank(), hvd.local_rank(), hvd.local_size(), float(total[0]), os.getcwd()
found = horovod.spark.run(f, num_proc=2)
print([each[:4] for each in found], found[0][4] != found[1][4])
try:
    horovod.spark.run(f, num_proc=3, start_timeout=1)
except RuntimeError as error:
    print(error)
"""
    )
    first, second = text.splitlines()[-2:]
    assert first == "[(0, 0, 2, 2.0), (1, 1, 2, 2.0)] True"
    assert second.startswith("3 ranks need 3 slots of Spark at the same time, and it has 2, after 1 s")
