"""What libraries import of horovod._keras, whose functions take a Keras or its back end first."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
pytest.importorskip("keras", reason="Keras is not installed")

import keras

from horovod import _keras
from horovod._keras import callbacks

hvd = importlib.import_module("horovod.keras")
KINDS = ("BroadcastGlobalVariables", "MetricAverage", "LearningRateSchedule", "LearningRateWarmup")


def test_functions(rank: int, size: int) -> None:
    backend, ones = keras.backend, np.full((size, 2), rank + 1.0, "float32")
    total = size * (size + 1) / 2
    assert np.asarray(_keras.allreduce(backend, ones, None, False)).tolist() == [[total] * 2] * size
    assert np.asarray(_keras.allreduce(backend, ones, "n", None, 2.0))[0, 0] == pytest.approx(
        2 * total / size
    )
    assert np.asarray(_keras.allgather(backend, ones)).shape == (size * size, 2)
    assert np.asarray(_keras.broadcast(backend, ones, size - 1))[0, 0] == size
    assert np.asarray(_keras.reducescatter(backend, ones, op=hvd.Sum)).tolist() == [[total] * 2]
    with pytest.raises(RuntimeError, match="no global variables"):
        _keras.broadcast_global_variables(backend, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_callbacks_are_instances(kind: str) -> None:
    own = getattr(hvd.callbacks, f"{kind}Callback")
    assert issubclass(own, getattr(callbacks, f"{kind}CallbackImpl"))


def test_callbacks_derived_from_them(rank: int, size: int) -> None:
    class Mean(callbacks.MetricAverageCallbackImpl, keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(keras.backend, "")

    class Warm(callbacks.LearningRateWarmupCallbackImpl, keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(keras.backend, 0.5, 3, steps_per_epoch=2)

    logs = {"loss": float(rank)}
    Mean().on_epoch_end(0, logs)
    assert logs == {"loss": (size - 1) / 2}
    assert (Warm().initial_lr, Warm().end_epoch, Warm().steps_per_epoch) == (0.5, 3, 2)


def test_a_saved_model(rank: int, tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")

    def wrap(kind: Any) -> Any:
        return lambda **config: hvd.DistributedOptimizer(kind(**config), compression=hvd.Compression.fp16)

    loaded = _keras.load_model(keras, wrap, None, tmp_path / "model.keras", None, None)
    assert loaded.optimizer._hvd.compression is hvd.Compression.fp16
