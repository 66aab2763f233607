"""Jobs of horovod.tensorflow that end early, and lives of a job beside threads that submit."""

from __future__ import annotations

import importlib.util
import os

import pytest
from conftest import Launcher

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)

KILLED = """
import os, signal, time
import tensorflow as tf, horovod.tensorflow as hvd
hvd.init()

@tf.function
def step(x):
    for _ in range(3):
        x = tf.add_n([hvd.allreduce(x + i) for i in range(20)]) / 20
    return x

for i in range(1000000):
    if hvd.rank() == 1 and i == 20:
        print("killed at", time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        step(tf.ones([1000]))
    except tf.errors.AbortedError as error:
        print("aborted at", time.time(), i, str(error).replace("\\n", " "), flush=True)
        raise SystemExit(9)
"""


def test_a_killed_rank_is_an_error_inside_a_function(launcher: Launcher) -> None:
    result = launcher.run("-np", "3", *launcher.python(KILLED))
    assert result.returncode == 128 + 9, result.stderr
    lines = [line.partition(" at ")[2].split(maxsplit=2) for line in result.stdout.splitlines()]
    (killed,) = [float(words[0]) for words in lines if len(words) == 1]
    others = [words for words in lines if len(words) > 1]
    assert len(others) == 2, result.stdout
    for when, step, text in others:
        assert step == "20" and "rank 1" in text
        assert 0 < float(when) - killed < 1
    assert launcher.none_alive()


LIVES = """
import os, threading
import tensorflow as tf, horovod.tensorflow as hvd
stop = threading.Event()
function = tf.function(lambda x: hvd.allreduce(x, name="beside"))

def submit():
    while not stop.is_set():
        try:
            function(tf.ones([8]))
        except tf.errors.OpError:
            pass

thread = threading.Thread(target=submit)
thread.start()
for life in range(int(os.environ["LIVES"])):
    hvd.init()
    for i in range(5):
        hvd.allreduce(tf.ones([8]), name=f"{i}")
    hvd.shutdown()
stop.set()
thread.join()
print("done", flush=True)
"""


def test_lives_of_a_job_beside_a_thread_that_submits(launcher: Launcher) -> None:
    lives = "300" if "HOROVOD_TEST_FULL" in os.environ else "20"
    result = launcher.run("-np", "1", *launcher.python(LIVES), env=launcher.environment(LIVES=lives))
    assert result.returncode == 0, result.stderr
    assert "done" in result.stdout
    assert launcher.none_alive()
