"""horovod.spark.run_elastic: a killed rank is replaced by the next attempt of its task."""

from __future__ import annotations

from pathlib import Path

from test_other_sessions import run

SESSION = """
from conftest import SETTINGS
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2,4]").config(map=SETTINGS).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
import os, signal, sys, time
import horovod.spark
folder = sys.argv[1]
"""

TRAIN = """
def train(folder, deaths):
    import numpy as np, horovod as hvd, horovod.elastic, os, signal
    hvd.init()
    state = hvd.elastic.ObjectState(step=0, sizes=[])
    @hvd.elastic.run
    def loop(state):
        while state.step < 30:
            hvd.allreduce(np.ones(4), name="x")
            state.step += 1
            state.sizes.append(hvd.size())
            state.commit()
            mark = os.path.join(folder, f"died{state.step}")
            if hvd.rank() == 1 and state.step in deaths and not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return hvd.rank(), hvd.size(), state.step, os.getpid()
    return loop(state)
"""


def test_a_killed_rank_is_replaced(tmp_path: Path) -> None:
    text = run(
        SESSION + TRAIN + "found = horovod.spark.run_elastic(train, (folder, [10, 20]), num_proc=2)\n"
        "print([each[:3] for each in found], sorted(os.listdir(folder)))\n",
        str(tmp_path),
    )
    assert text.splitlines()[-1] == "[(0, 2, 30), (1, 2, 30)] ['died10', 'died20']"


def test_a_job_goes_on_with_fewer_ranks(tmp_path: Path) -> None:
    text = run(
        SESSION
        + TRAIN
        + "found = horovod.spark.run_elastic(train, (folder, [10]), num_proc=2, min_num_proc=1)\n"
        "print(len(found), [each[2] for each in found])\n",
        str(tmp_path),
    )
    assert text.splitlines()[-1] in ("1 [30]", "2 [30, 30]")


def test_a_function_that_always_fails_ends_the_job(tmp_path: Path) -> None:
    text = run(
        SESSION + "def fail():\n    raise KeyError('missing')\n"
        "try:\n    horovod.spark.run_elastic(fail, num_proc=2, elastic_timeout=10)\n"
        "except RuntimeError as error:\n    print(type(error).__name__, 'KeyError' in str(error))\n",
        str(tmp_path),
    )
    assert text.splitlines()[-1] == "JobFailedError True"
