"""What the estimators of all frameworks share: from a DataFrame to a trained model, and its predictions."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.ml import Estimator, Model

from horovod.spark.common import prepare
from horovod.spark.common.backend import Backend, SparkBackend
from horovod.spark.common.params import TableParams
from horovod.spark.common.rows import Rows
from horovod.spark.common.saving import Saved
from horovod.spark.common.shares import steps
from horovod.spark.common.store import Store
from horovod.spark.common.table import check_columns


@dataclass(frozen=True)
class Training:
    """What every rank of a training gets.

    Attributes:
        values: the parameters of the estimator, by name, with their defaults.
        store: where the data are.
        train_path: the folder of the training data.
        val_path: the folder of the validation data, or None.
        run_id: the name of the run.
    """

    values: Mapping[str, Any]
    store: Store
    train_path: str
    val_path: str | None
    run_id: str

    def columns(self) -> list[str]:
        """Returns the columns that ranks read."""
        weight = self.values["sample_weight_col"]
        return [*self.values["feature_cols"], *self.values["label_cols"], *([weight] if weight else [])]

    def rows(self, path: str, rank: int, size: int) -> Rows:
        """Returns this rank's rows of a folder."""
        dataset = self.store.get_parquet_dataset(path)
        return Rows(dataset, self.columns(), rank, size, self.values["inmemory_cache_all"])

    def steps(self, rows: Rows, size: int) -> int:
        """Returns the batches of an epoch, the same on all ranks."""
        return int(self.values["train_steps_per_epoch"] or steps(rows.total, size, self.values["batch_size"]))

    def validation_batch(self) -> int:
        """Returns the rows of a batch for validation."""
        return int(self.values["val_batch_size"] or self.values["batch_size"])

    def seed(self, epoch: int) -> int | None:
        """Returns the seed of an epoch's order; None: the order of the files."""
        return (self.values["random_seed"] or 0) + epoch if self.values["shuffle"] else None

    def transformed(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Returns a batch as the user's function changes it."""
        change = self.values["transformation_fn"]
        return change(batch) if change else batch


class HorovodEstimator(TableParams, Estimator, Saved):  # type: ignore[misc]
    """Trains a model on the rows of a DataFrame; a subclass says how a framework does that."""

    needed: tuple[str, ...] = ("model", "store", "feature_cols", "label_cols")

    @staticmethod
    def train(training: Training) -> Any:
        """Runs on every rank; returns what ``made`` gets."""
        raise NotImplementedError

    def made(self, training: Training, result: Any) -> Any:
        """Returns the model, of the result of rank 0."""
        raise NotImplementedError

    def packed_objects(self) -> dict[str, Any]:
        """Returns those values that are sent and saved in another form, by name."""
        return {}

    def variables(self) -> dict[str, str]:
        """Returns the variables that ranks get."""
        return dict(self.value("backend_env"))

    def fit_on_parquet(self, params: Mapping[Any, Any] | None = None) -> Any:
        """Trains on the Parquet files that the store's train and validation folders have already."""
        estimator = self.copy(params) if params else self
        store, backend = estimator._checked()
        path = store.get_train_data_path()
        if not store.is_parquet_dataset(path):
            raise ValueError(f"{path} has no Parquet files to train on")
        val = store.get_val_data_path() if estimator.value("validation") else None
        check_columns(estimator._columns(), store.get_parquet_dataset(path).schema.names)
        return estimator._trained(backend, store, path, val)

    def _columns(self) -> list[str]:
        weight = self.value("sample_weight_col")
        return [*self.value("feature_cols"), *self.value("label_cols"), *([weight] if weight else [])]

    def _checked(self) -> tuple[Store, Backend]:
        """Returns store and back end; raises an error at once if a parameter is missing or impossible."""
        missing = [name for name in self.needed if self.value(name) in (None, [], ())]
        if missing:
            raise ValueError(f"{type(self).__name__} needs {', '.join(missing)}")
        if self.value("backend") and self.value("num_proc"):
            raise ValueError(f"{type(self).__name__}: backend and num_proc exclude each other")
        store = self.value("store")
        if not isinstance(store, Store):
            store = Store.create(store)
        store.check_writable()
        return store, self.value("backend") or SparkBackend(self.value("num_proc"))

    def _fit(self, dataset: Any) -> Any:
        store, backend = self._checked()
        validation = self.value("validation")
        wanted = [*self._columns(), *([validation] if isinstance(validation, str) else [])]
        check_columns(wanted, dataset.columns)
        files = backend.num_processes() * self.value("partitions_per_process")
        with self._written(dataset, store, files) as (train, val):
            return self._trained(backend, store, train, val)

    @contextlib.contextmanager
    def _written(self, dataset: Any, store: Store, files: int) -> Iterator[tuple[str, str | None]]:
        """Writes the data of a training, which are removed at its end; yields their folders."""
        name = uuid.uuid4().hex[:12]
        train, val = store.get_train_data_path(name), store.get_val_data_path(name)
        validation, seed = self.value("validation"), self.value("random_seed") or 0
        try:
            parts = prepare.divided(dataset, self._columns(), validation, seed)
            for frame, path in zip(parts, (train, val), strict=False):
                prepare.write(frame, store.spark_path(path), files)
                if not prepare.count(store, path):
                    what = "rows" if path == train else f"rows for validation ({validation})"
                    raise ValueError(f"the DataFrame has no {what}")
            yield train, val if len(parts) > 1 else None
        finally:
            for path in (train, val):
                store.delete(path)

    def _trained(self, backend: Backend, store: Store, train: str, val: str | None) -> Any:
        run_id = self.value("run_id") or f"{type(self).__name__.lower()}-{uuid.uuid4().hex[:12]}"
        names = [row.name for row in self._rows if row.has_effect and row.name not in ("backend", "store")]
        values = {name: self.value(name) for name in names} | self.packed_objects()
        training = Training(values, store, train, val, run_id)
        results = backend.run(type(self).train, (training,), env=self.variables())
        return self.made(training, results[0])

    def packed(self) -> dict[str, Any]:
        """Returns the values that were given, as they are saved."""
        return self.values() | self.packed_objects()

    @classmethod
    def unpacked(cls, values: dict[str, Any]) -> Any:
        """Returns an estimator with saved values."""
        return cls(**values)


class HorovodModel(TableParams, Model, Saved):  # type: ignore[misc]
    """A trained model. ``transform`` adds a column of predictions for each label column."""

    def loaded(self) -> Any:
        """Returns the model ready for predictions, once in each task."""
        raise NotImplementedError

    def predict(self, model: Any, inputs: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        """Returns the outputs for a batch."""
        raise NotImplementedError

    def output_columns(self) -> list[str]:
        """Returns the names of the columns of predictions."""
        given = self.value("output_cols")
        return [*given] if given else [f"{name}__output" for name in self.value("label_columns")]

    def getOutputCols(self) -> list[str]:  # noqa: N802
        """Returns the names of the columns of predictions."""
        return self.output_columns()

    def _transform(self, dataset: Any) -> Any:
        check_columns(self.value("feature_columns"), dataset.columns)
        return prepare.predicted(self, dataset)

    def packed(self) -> dict[str, Any]:
        """Returns the values that were given."""
        return self.values()

    @classmethod
    def unpacked(cls, values: dict[str, Any]) -> Any:
        """Returns a model with these values."""
        return cls(**values)
