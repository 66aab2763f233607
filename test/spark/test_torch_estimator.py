"""TorchEstimator on a real Spark: training, predictions, saved pipelines, resumed runs, clear errors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler

from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.rows import to_array
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel
from horovod.spark.torch.training import as_tensors

ROWS = 2000


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    """y = a + 2 b, in the columns a and b; `chosen` is true in a tenth of the rows."""
    from pyspark.sql import functions as f

    numbers = spark.range(ROWS)
    return numbers.select(
        f.rand(1).alias("a"), f.rand(2).alias("b"), (numbers.id % 10 == 0).alias("chosen")
    ).selectExpr("a", "b", "a + 2 * b as y", "chosen", "1.0 as weight")


def estimator(folder: Path, **values: Any) -> TorchEstimator:
    torch.manual_seed(1)
    model = torch.nn.Linear(2, 1)
    given: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), lr=0.02),
        "loss": torch.nn.MSELoss(),
        "store": str(folder),
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "batch_size": 16,
        "epochs": 3,
        "num_proc": 2,
        "random_seed": 5,
        "partitions_per_process": 2,
        "verbose": 0,
    }
    return TorchEstimator(**{**given, **values})


def error_of(frame: Any) -> float:
    return float(frame.selectExpr("avg(abs(y - y__output)) as e").first().e)


def mean_difference(output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return (output - label).abs().mean()


def test_a_pipeline_is_trained_saved_and_loaded(spark: Any, frame: Any, tmp_path: Path) -> None:
    assembler = VectorAssembler(inputCols=["a", "b"], outputCol="x")
    pipeline = Pipeline(
        stages=[assembler, estimator(tmp_path / "store", validation=0.1, metrics=[mean_difference])]
    )
    pipeline.save(str(tmp_path / "estimator"))
    found = Pipeline.load(str(tmp_path / "estimator")).fit(frame)
    history = found.stages[1].getHistory()
    assert [each["epoch"] for each in history] == [0, 1, 2]
    assert history[2]["train"]["loss"] < history[0]["train"]["loss"] / 10
    assert history[2]["validation"]["mean_difference"] < 0.2
    assert list((tmp_path / "store").glob("intermediate*")) == [], "the data of the training are left"
    predicted = found.transform(frame)
    assert error_of(predicted) < 0.2
    assert predicted.columns == ["a", "b", "y", "chosen", "weight", "x", "y__output"]
    found.save(str(tmp_path / "model"))
    loaded = PipelineModel.load(str(tmp_path / "model"))
    assert isinstance(loaded.stages[1], TorchModel) and loaded.stages[1].uid == found.stages[1].uid
    assert error_of(loaded.transform(frame)) == pytest.approx(error_of(predicted))


def test_several_inputs_weights_and_a_column_for_validation(frame: Any, tmp_path: Path) -> None:
    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 1)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.linear(torch.stack([a, b], 1))

    model = Both()
    found = estimator(
        tmp_path,
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.02),
        feature_cols=["a", "b"],
        validation="chosen",
        sample_weight_col="weight",
        transformation_fn=lambda batch: {**batch, "weight": 2 * batch["weight"]},
        epochs=4,
    ).fit(frame)
    assert found.getHistory()[-1]["validation"]["loss"] < 0.2
    assert error_of(found.transform(frame)) < 0.2


def test_a_run_is_resumed_from_its_checkpoint(frame: Any, tmp_path: Path) -> None:
    frame = frame.selectExpr("array(a, b) as x", "y")
    first = estimator(tmp_path, run_id="run", epochs=1)
    first.fit(frame)
    assert (tmp_path / "runs/run/checkpoint.ckpt").exists()
    found = estimator(tmp_path, run_id="run", epochs=3).fit(frame)
    assert [each["epoch"] for each in found.getHistory()] == [0, 1, 2]
    assert found.getRunId() == "run"


def test_files_that_are_there_are_trained_on(frame: Any, tmp_path: Path) -> None:
    store = Store.create(str(tmp_path))
    frame.selectExpr("array(a, b) as x", "y").write.parquet(store.get_train_data_path())
    found = estimator(tmp_path, store=store, num_proc=None, backend=SparkBackend(2, verbose=0), epochs=1)
    assert len(found.fit_on_parquet().getHistory()) == 1
    with pytest.raises(ValueError, match="no column z; it has x, y"):
        found.setFeatureCols(["z"]).fit_on_parquet()


def test_errors_come_at_once(spark: Any, frame: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="no column x; it has a, b, y"):
        estimator(tmp_path).fit(frame)
    with pytest.raises(OSError, match=r"the store .*file can't be written"):
        estimator(tmp_path / "file").fit(frame)
    with pytest.raises(ValueError, match="TorchEstimator needs store"):
        estimator(tmp_path, store=None).fit(frame)
    with pytest.raises(ValueError, match="loss or loss_constructors"):
        estimator(tmp_path, loss=None).fit(frame)
    with pytest.raises(ValueError, match="the DataFrame has no rows"):
        estimator(tmp_path).fit(frame.filter("a > 2").selectExpr("array(a, b) as x", "y"))
    with pytest.raises(TypeError, match="did you mean batch_size"):
        estimator(tmp_path, batchsize=3)
    with pytest.warns(UserWarning, match="reader_pool_type has no effect"):
        estimator(tmp_path, reader_pool_type="thread")


def test_tensors_never_share_memory_of_arrow() -> None:
    """A module may change its inputs in place; PyTorch warns of that."""
    column = pa.array([1.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = as_tensors(torch.nn.Linear(1, 1).double(), [to_array("x", column)], None)[0]
    tensor += 1
    assert column.to_pylist() == [1.0, 2.0] and tensor.tolist() == [2.0, 3.0]


class RowsOfBatch(torch.nn.Module):
    """Predicts for each row how many rows it got with it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x), 3), float(len(x)))


def test_predictions_are_made_in_batches(frame: Any) -> None:
    model = TorchModel(
        model=RowsOfBatch(), feature_columns=["x"], label_columns=["y"], output_sizes=[3], batch_size=300
    )
    predicted = model.transform(frame.coalesce(1).selectExpr("array(array(a), array(b)) as x", "y"))
    rows = predicted.selectExpr("y__output[2] as rows").groupBy("rows").count().collect()
    assert {row.rows: row["count"] for row in rows} == {300.0: 1800, 200.0: 200}


def test_setters_and_copies(tmp_path: Path) -> None:
    first = estimator(tmp_path)
    assert first.setEpochs(7) is first and first.getEpochs() == 7 and first.getShuffle() is True
    other = first.copy({first.epochs: 8})
    assert (first.getEpochs(), other.getEpochs()) == (7, 8)
    assert "epochs: the number of epochs" in first.explainParams()
