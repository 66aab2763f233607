"""Jobs of horovod.mxnet that end early: a killed rank, and operations in flight at the end."""

from __future__ import annotations

import pytest
from conftest import Launcher

pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)

KILLED = """
import os, signal, mxnet as mx, horovod.mxnet as hvd
hvd.init()
net = mx.gluon.nn.Dense(10, in_units=10)
net.initialize()
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")
x = mx.nd.ones((5, 10))
for i in range(1000000):
    if hvd.rank() == 1 and i == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        with mx.autograd.record():
            loss = net(x).sum()
        loss.backward()
        trainer.step(5)
        mx.nd.waitall()
    except mx.base.MXNetError as error:
        print(i, str(error).strip().splitlines()[-1], flush=True)
        raise SystemExit(9)
"""


def test_a_killed_rank_is_an_error_in_training(launcher: Launcher) -> None:
    result = launcher.run("-np", "3", *launcher.python(KILLED))
    assert result.returncode == 128 + 9, result.stderr
    for rank in (0, 2):
        assert f"[{rank}]<stdout>: 20 " in result.stdout, result.stdout + result.stderr
    assert result.stdout.count("rank 1") == 2, result.stdout
    assert launcher.none_alive()


IN_FLIGHT = """
import mxnet as mx, horovod.mxnet as hvd
hvd.init()
for i in range(20):
    sums = [hvd.allreduce(mx.nd.full((100000,), j)) for j in range(20)]
"""


def test_the_end_with_operations_in_flight(launcher: Launcher) -> None:
    result = launcher.run("-np", "2", *launcher.python(IN_FLIGHT))
    assert result.returncode == 0, result.stderr
    assert launcher.none_alive()


LIVES = """
import threading, mxnet as mx, horovod.mxnet as hvd
stop = threading.Event()

def submit():
    while not stop.is_set():
        try:
            hvd.allreduce(mx.nd.ones((8,)), name="beside").wait_to_read()
        except (ValueError, mx.base.MXNetError):
            pass

thread = threading.Thread(target=submit)
thread.start()
for life in range(20):
    hvd.init()
    try:
        for i in range(5):
            hvd.allreduce(mx.nd.ones((8,)), name=f"{i}").wait_to_read()
    except mx.base.MXNetError:  # the other rank has left already
        pass
    hvd.shutdown()
stop.set()
thread.join()
print("done", flush=True)
"""


def test_lives_of_a_job_beside_a_thread_that_submits(launcher: Launcher) -> None:
    result = launcher.run("-np", "1", *launcher.python(LIVES))
    assert result.returncode == 0, result.stderr
    assert "done" in result.stdout
    assert launcher.none_alive()
