"""States and callbacks of Keras 3 for elastic jobs, on the back end that KERAS_BACKEND names."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
keras = pytest.importorskip("keras", reason="Keras is not installed")
if keras.__version__ < "3" or os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    pytest.skip("of Keras 3", allow_module_level=True)

hvd = importlib.import_module("horovod.keras")

on_one_backend = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="alike on all back ends; PyTorch is the fastest"
)

X = np.random.default_rng(1).normal(size=(40, 3)).astype("float32")
Y = X.sum(1, keepdims=True)


def network(value: float = 0.5, **options: Any) -> Any:
    layers = [keras.layers.Dense(2), keras.layers.Dropout(0.5, seed=3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    model.compile(keras.optimizers.Adam(0.1), "mse", **options)
    model.set_weights([np.full(each.shape, value) for each in model.get_weights()])
    return model


def weights(model: Any) -> list[Any]:
    return [np.array(each.numpy()) for each in [*model.weights, *model.optimizer.variables]]


def test_all_get_the_weights_and_the_optimizer_of_rank_0(rank: int) -> None:
    """Also if only rank 0 has trained before, so that its optimizer alone has variables."""
    model = network(rank)
    if rank == 0:
        model.fit(X, Y, batch_size=8, verbose=0)
    state = hvd.elastic.KerasState(model, batch=20 + rank, epoch=10 + rank)
    state.sync()
    assert (state.batch, state.epoch) == (20, 10)
    expected = hvd.broadcast_object(weights(model))
    assert all(map(np.array_equal, weights(model), expected))
    model.set_weights([each + 1 for each in model.get_weights()])
    state.batch = 21
    state.restore()
    assert all(map(np.array_equal, weights(model), expected)) and state.batch == 20
    model.set_weights([each + 1 for each in model.get_weights()])
    state.batch = 22
    state.commit()
    state.restore()
    assert np.allclose(weights(model)[0], expected[0] + 1) and state.batch == 22


def test_a_batch_that_is_repeated_has_the_same_dropout() -> None:
    model = network()
    state = hvd.elastic.KerasState(model)
    state.commit()
    model.train_on_batch(X, Y)
    first = weights(model)
    state.restore()
    model.train_on_batch(X, Y)
    assert all(map(np.array_equal, weights(model), first))


def test_a_state_needs_a_model_that_is_built() -> None:
    with pytest.raises(ValueError, match="Model must be built first"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="batches_per_commit must be at least 1, not 0"):
        hvd.elastic.CommitStateCallback(None, 0)


class Recorder:
    """A state that notes what is committed, and is interrupted once, before the commit of a batch."""

    def __init__(self, interrupt: tuple[int, int] | None = None) -> None:
        self.batch = self.epoch = 0
        self.interrupt = interrupt
        self.commits: list[tuple[int, int]] = []

    def commit(self) -> None:
        if self.interrupt == (self.epoch, self.batch):
            self.interrupt = None
            raise hvd.HorovodInternalError("lost")
        self.commits.append((self.epoch, self.batch))


ORDERS = [(0, 1, 2), (2, 1, 0), (1, 0, 2)]


def callbacks_of(state: Any, order: tuple[int, ...] = ORDERS[0], every: int = 1) -> list[Any]:
    made = [
        hvd.elastic.CommitStateCallback(state, every),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
    ]
    return [made[place] for place in order]


class Count(keras.callbacks.Callback):  # type: ignore[misc]
    """The number of batches of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.batches.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches[-1] += 1


@on_one_backend
@pytest.mark.parametrize("order", ORDERS)
def test_commits_do_not_depend_on_the_order_of_callbacks(order: tuple[int, ...]) -> None:
    state = Recorder()
    network().fit(X, Y, batch_size=10, epochs=2, callbacks=callbacks_of(state, order, 2), verbose=0)
    assert state.commits == [(0, 2), (1, 0), (1, 2), (2, 0)]


@on_one_backend
@pytest.mark.parametrize("initial", [True, False], ids=["initial_epoch", "fewer epochs"])
@pytest.mark.parametrize("order", ORDERS)
def test_an_epoch_goes_on_with_the_rest_of_its_batches(order: tuple[int, ...], initial: bool) -> None:
    state, count, model = Recorder(interrupt=(1, 3)), Count(), network()
    callbacks = [*callbacks_of(state, order), count]

    def fit() -> None:
        how = {"initial_epoch": state.epoch, "epochs": 3} if initial else {"epochs": 3 - state.epoch}
        model.fit(X, Y, batch_size=10, callbacks=callbacks, verbose=0, **how)

    with pytest.raises(hvd.HorovodInternalError, match="lost"):
        fit()
    assert (state.epoch, state.batch) == (1, 3)
    state.batch = 2  # as after `restore`
    fit()
    assert count.batches == [4, 3, 2, 4]
    assert state.commits == [
        *((0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)),
        *((1, 3), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0)),
    ]


@on_one_backend
def test_another_number_of_batches_in_an_epoch(rank: int) -> None:
    """Half of 4 batches is half of 8, and the training may end for another reason then."""
    model, count = network(), Count()
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    state.batch, state._steps_per_epoch = 2, 4
    stop = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: setattr(model, "stop_training", True))
    for more in ([], [stop]):
        state.batch, state._steps_per_epoch = 2, 4
        model.fit(X, Y, batch_size=5, epochs=2, callbacks=[*callbacks_of(state), count, *more], verbose=0)
    assert count.batches == [4, 8, 4]
