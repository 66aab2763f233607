"""Steps of Keras's fit, for bench/keras_fit.py: microseconds each, one file a rank.

    horovodrun -np N python bench/peer_keras.py horovod|strategy|apart SECONDS RESULTS CASE...

strategy: TensorFlow's MultiWorkerMirroredStrategy. apart: every rank trains alone, which is what N ranks
could do if communication cost nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

RANK, SIZE = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
INPUTS, WIDE, OUTPUTS = 784, 1536, 10
BATCH = 64  # of each rank
WARM_UP = 3
SHARE = 40  # of the seconds of a collective's case: training steps are long
DEADLINE = 30.0


def all_addresses(folder: Path) -> list[str]:
    """A free port of each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / f"new.{RANK}").write_text(address)
    (folder / f"new.{RANK}").rename(folder / f"address.{RANK}")
    files, begin = [folder / f"address.{rank}" for rank in range(SIZE)], time.monotonic()
    while not all(file.exists() for file in files):
        if time.monotonic() - begin > DEADLINE:
            raise TimeoutError("not all ranks have an address")
        time.sleep(0.01)
    return [file.read_text() for file in files]


def strategy_of(folder: Path) -> Any:
    cluster = {"worker": all_addresses(folder)}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": RANK}})
    return tf.distribute.MultiWorkerMirroredStrategy()


def make_model(name: str) -> Any:
    """14 MB of weights."""
    keras.utils.set_random_seed(1)
    layers = [
        keras.layers.Input((INPUTS,)),
        keras.layers.Dense(WIDE, "relu"),
        keras.layers.Dense(WIDE, "relu"),
        keras.layers.Dense(OUTPUTS),
    ]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.SGD(0.01)
    if name == "horovod":
        import horovod.keras as hvd

        hvd.init()
        optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def mend_keras(model: Any, strategy: Any) -> None:
    """Keras 3.15 fails with this strategy: it builds anew from a part of the batch, and reduces the loss, a
    scalar, over its first dimension."""
    model._maybe_symbolic_build = lambda **_: None
    keras.src.backend.tensorflow.trainer.reduce_per_replica = lambda values, *_, **__: tf.nest.map_structure(
        lambda value: strategy.experimental_local_results(value)[0], values
    )


def batches(rows: int) -> Any:
    """The same random one forever; a strategy gives each rank its part of it."""
    x = tf.random.stateless_normal((rows, INPUTS), (1, RANK))
    y = tf.random.stateless_uniform((rows,), (2, RANK), 0, OUTPUTS, tf.int32)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_tensors((x, y)).repeat().with_options(options)


class Steps(keras.callbacks.Callback):  # type: ignore[misc]
    """When each step ended: fit itself also waits up to seconds for the threads of its data at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.ends.append(time.perf_counter())


def step_time(model: Any, data: Any, seconds: float) -> float:
    """Mean seconds of a step; the number of steps is the same on all ranks."""
    steps = Steps()
    count = WARM_UP + max(int(SHARE * seconds / 0.02), 2)
    model.fit(data, steps_per_epoch=count, verbose=0, callbacks=[steps])
    return (steps.ends[-1] - steps.ends[WARM_UP]) / (count - 1 - WARM_UP)


def main() -> None:
    """Trains for a while."""
    name, seconds, folder, case = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = strategy_of(folder) if name == "strategy" else None
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = make_model(name)
    if strategy:
        mend_keras(model, strategy)
    assert case == f"fit:{4 * model.count_params()}"
    time_of_one = step_time(model, batches(BATCH * SIZE if strategy else BATCH), seconds)
    (folder / str(RANK)).write_text(f"{case},{1e6 * time_of_one:.3f}\n")


if __name__ == "__main__":
    main()
