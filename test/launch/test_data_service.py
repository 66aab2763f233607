"""TensorFlow's data service: workers of one job prepare the data of another one."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher

LONG = pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")

TRAINER = """
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
data = tf.data.Dataset.range(40).map(lambda x: x * x)
if config.dispatcher_side == "compute":
    data = data.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True)
    found = [int(each) for each in data]
else:
    with tf_data_service(config, hvd.rank()) as service:
        found = [
            int(each)
            for each in data.apply(tf.data.experimental.service.distribute("distributed_epoch", service))
        ]
print("elements", len(found), sum(found), flush=True)
hvd.barrier()
if hvd.rank() == 0:
    config.compute_client().shutdown()
"""


@LONG
@pytest.mark.parametrize(("side", "dispatchers"), [("compute", 1), ("training", 1), ("training", 2)])
def test_every_element_comes_once(side: str, dispatchers: int, launcher: Launcher) -> None:
    """All ranks together see the data once if they share the epoch, otherwise each of them does."""
    file = launcher.folder / "service.json"
    module = "horovod.tensorflow.data.compute_worker"
    options = ["--dispatchers", str(dispatchers), "--dispatcher-side", side, "--timeout", "60"]
    workers = launcher.start("-np", "2", sys.executable, "-m", module, str(file), *options)
    trainer = launcher.run("-np", "2", sys.executable, "-c", TRAINER, str(file), seconds=2 * DEADLINE)
    assert trainer.returncode == 0, trainer.stderr
    found = [tuple(map(int, each)) for each in re.findall(r"elements (\d+) (\d+)", trainer.stdout)]
    once = 40, sum(x * x for x in range(40))
    if side == "compute":
        assert tuple(map(sum, zip(*found, strict=True))) == once
    else:
        assert found == [once, once]
    _, err = workers.communicate(timeout=DEADLINE)
    assert workers.returncode == 0, err
    assert not Path(file).exists()


@LONG
def test_processes_that_can_not_be_divided(launcher: Launcher) -> None:
    module = "horovod.tensorflow.data.compute_worker"
    done = launcher.run("-np", "1", sys.executable, "-m", module, "x.json", "--dispatchers", "2")
    assert done.returncode == 1
    assert "1 processes can't be divided among 2 dispatchers: start a multiple" in done.stderr
