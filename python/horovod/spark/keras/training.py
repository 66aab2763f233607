"""Trains a model of Keras on one rank, with the rows that belong to it."""

from __future__ import annotations

import io
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from horovod import keras as hvd
from horovod.spark.common.estimator import Training
from horovod.spark.common.rows import Rows
from horovod.spark.keras.packing import unpacked_model

BEST = "best.keras"  # what the user's checkpoint callback writes


def listed(value: Any) -> list[Any]:
    """Returns a value that may be a list as one."""
    return [*value] if isinstance(value, (list, tuple)) else [value]


def one_or_tuple(arrays: Sequence[Any]) -> Any:
    """Returns arrays as Keras takes them: a single one without a tuple."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _as_inputs(arrays: Sequence[np.ndarray[Any, Any]], shapes: Any) -> Any:
    floats = keras.backend.floatx()
    found = [each.astype(floats) if each.dtype.kind == "f" else each for each in arrays]
    if shapes:
        found = [each.reshape(-1, *shape[1:]) for each, shape in zip(found, shapes, strict=True)]
    return one_or_tuple(found)


def _batches(training: Training, rows: Rows, batch: int, seed: int | None) -> Iterator[Any]:
    """Yields batches without end: inputs, labels and, if there are any, weights of rows."""
    values = training.values
    for each in rows.whole_batches(batch, sys.maxsize, seed):
        found = training.transformed(each)
        parts = [
            _as_inputs([found[name] for name in values["feature_cols"]], None),
            _as_inputs([found[name] for name in values["label_cols"]], values["label_shapes"]),
        ]
        weight = values["sample_weight_col"]
        yield tuple([*parts, found[weight]] if weight else parts)


def _optimizer(values: Any) -> Any:
    optimizer = keras.optimizers.get(values["optimizer"])
    rate = optimizer.get_config().get("learning_rate")
    if isinstance(rate, (int, float)):  # a schedule stays as it is
        optimizer.learning_rate = float(rate) * hvd.size()
    return hvd.DistributedOptimizer(
        optimizer,
        compression=values["gradient_compression"] or hvd.Compression.none,
        backward_passes_per_step=values["backward_passes_per_step"],
    )


class _Keep(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes a checkpoint after each epoch: weights, the optimizer's variables and the history."""

    def __init__(self, training: Training, history: dict[str, list[float]]) -> None:
        super().__init__()
        self._training, self._history = training, history

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        for name, value in (logs or {}).items():
            self._history.setdefault(name, []).append(float(value))
        store = self._training.store
        if hvd.rank() == 0 and store.saving_runs():
            data = io.BytesIO()
            arrays = {f"weight_{i}": each for i, each in enumerate(self.model.get_weights())}
            variables = self.model.optimizer.variables
            variables = variables() if callable(variables) else variables
            arrays |= {f"optimizer_{i}": np.asarray(each) for i, each in enumerate(variables)}
            np.savez(data, history=np.array(json.dumps(self._history)), **arrays)
            store.write(store.get_checkpoint_path(self._training.run_id), data.getvalue())


def _resumed(training: Training, model: Any) -> dict[str, list[float]]:
    """Continues from the checkpoint of the run, if there is one; returns the history."""
    store = training.store
    path = store.get_checkpoint_path(training.run_id)
    there = hvd.rank() == 0 and store.saving_runs() and store.exists(path)
    history: dict[str, list[float]] = {}
    if there:
        with np.load(io.BytesIO(store.read(path)), allow_pickle=False) as found:
            history = json.loads(str(found["history"]))
            model.set_weights([found[f"weight_{i}"] for i in range(len(model.get_weights()))])
            model.optimizer.build(model.trainable_variables)
            variables = model.optimizer.variables
            variables = variables() if callable(variables) else variables
            for i, each in enumerate(variables):
                each.assign(found[f"optimizer_{i}"])
    agreed: dict[str, list[float]] = hvd.broadcast_object(history, root_rank=0, name="spark.history")
    return agreed


def train(training: Training) -> dict[str, Any] | None:
    """Trains all epochs; returns weights, history and sizes of the outputs on rank 0."""
    hvd.init()
    values = training.values
    if values["random_seed"] is not None:
        keras.utils.set_random_seed(values["random_seed"] + hvd.rank())
    model = unpacked_model(values["model"], values["custom_objects"])
    with keras.saving.custom_object_scope(dict(values["custom_objects"])):
        model.compile(
            optimizer=_optimizer(values),
            loss=values["loss"],
            loss_weights=values["loss_weights"],
            metrics=[*values["metrics"]] or None,
        )
        history = _resumed(training, model)
        with tempfile.TemporaryDirectory() as folder:
            _fit(training, model, history, folder)
            if hvd.rank() == 0 and os.listdir(folder) and training.store.saving_runs():
                training.store.sync_fn(training.run_id)(folder)
    if hvd.rank():
        return None
    shapes = [each.shape for each in listed(model.outputs)]
    sizes = [math.prod(each for each in shape[1:] if each) for shape in shapes]
    return {"weights": model.get_weights(), "history": history, "sizes": sizes}


def _fit(training: Training, model: Any, history: dict[str, list[float]], folder: str) -> None:
    values = training.values
    rows = training.rows(training.train_path, hvd.rank(), hvd.size())
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        *values["callbacks"],
        _Keep(training, history),
    ]
    best = values["checkpoint_callback"]
    if best and hvd.rank() == 0:
        best.filepath = os.path.join(folder, BEST)
        callbacks.append(best)
    validation: dict[str, Any] = {}
    if training.val_path:
        checked, batch = training.rows(training.val_path, hvd.rank(), hvd.size()), training.validation_batch()
        most = math.ceil(math.ceil(checked.total / hvd.size()) / batch)
        validation = {
            "validation_data": _batches(training, checked, batch, None),
            "validation_steps": values["validation_steps_per_epoch"] or most,
        }
    done = len(next(iter(history.values()), []))
    model.fit(
        _batches(training, rows, values["batch_size"], training.seed(done)),
        steps_per_epoch=training.steps(rows, hvd.size()),
        epochs=values["epochs"],
        initial_epoch=done,
        callbacks=callbacks,
        shuffle=False,  # the rows come in an order of their own
        verbose=2 if values["verbose"] and hvd.rank() == 0 else 0,
        **validation,
    )
