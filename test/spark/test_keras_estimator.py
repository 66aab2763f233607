"""KerasEstimator on a real Spark, with the back end that KERAS_BACKEND names."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import keras
import pytest

from horovod.keras.callbacks import BestModelCheckpoint
from horovod.spark.common.backend import SparkBackend
from horovod.spark.keras import KerasEstimator, KerasModel


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    from pyspark.sql import functions as f

    numbers = spark.range(2000).select(f.rand(1).alias("a"), f.rand(2).alias("b"))
    return numbers.selectExpr("array(a, b) as x", "a + 2 * b as y")


def estimator(folder: Path, **values: Any) -> KerasEstimator:
    keras.utils.set_random_seed(1)
    given: dict[str, Any] = {
        "model": keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]),
        "optimizer": keras.optimizers.Adam(0.02),
        "loss": "mse",
        "metrics": ["mae"],
        "store": str(folder),
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "label_shapes": [[-1, 1]],
        "batch_size": 16,
        "epochs": 3,
        "num_proc": 2,
        "random_seed": 5,
        "partitions_per_process": 2,
        "verbose": 0,
    }
    return KerasEstimator(**{**given, **values})


def test_a_model_is_trained_saved_and_loaded(frame: Any, tmp_path: Path) -> None:
    best = BestModelCheckpoint(monitor="val_loss", mode="min")
    first = estimator(tmp_path / "store", validation=0.1, run_id="run", checkpoint_callback=best)
    first.save(str(tmp_path / "estimator"))
    found = KerasEstimator.load(str(tmp_path / "estimator")).fit(frame)
    history = found.getHistory()
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(history) and len(history["loss"]) == 3
    assert history["val_loss"][2] < history["val_loss"][0] and history["loss"][2] < history["loss"][0] / 5
    assert (tmp_path / "store/runs/run/best.keras").exists()
    predicted = found.transform(frame)
    error = predicted.selectExpr("avg(abs(y - y__output)) as e").first().e
    assert error < 0.2
    found.save(str(tmp_path / "model"))
    loaded = KerasModel.load(str(tmp_path / "model"))
    assert loaded.transform(frame).selectExpr("avg(abs(y - y__output)) as e").first().e == pytest.approx(
        error
    )
    assert loaded.getModel().count_params() == 3


def test_a_run_is_resumed_from_its_checkpoint(frame: Any, tmp_path: Path) -> None:
    err = io.StringIO()
    backend = SparkBackend(2, stderr=err)
    estimator(tmp_path, run_id="run", epochs=1, num_proc=None, backend=backend).fit(frame)
    assert "shuffle" not in err.getvalue()  # Keras warns if it is asked to shuffle what it gets
    found = estimator(tmp_path, run_id="run", epochs=2).fit(frame)
    assert (
        len(found.getHistory()["loss"]) == 2 and found.getHistory()["loss"][1] < found.getHistory()["loss"][0]
    )
