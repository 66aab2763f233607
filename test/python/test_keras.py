"""horovod.keras on the back end that KERAS_BACKEND names, and as one process that has all data."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import horovod
from horovod.common.exceptions import HorovodInternalError

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
keras = pytest.importorskip("keras", reason="Keras is not installed")
if keras.__version__ < "3" or os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    pytest.skip("of Keras 3", allow_module_level=True)

hvd = importlib.import_module("horovod.keras")
BACKEND = keras.backend.backend()
on_several_ranks = pytest.mark.skipif(horovod.size() < 2, reason="several ranks show it")
on_one_backend = pytest.mark.skipif(
    BACKEND != "torch", reason="alike on all back ends; PyTorch is the fastest"
)
if BACKEND == "tensorflow":  # the jobs of the others have 2 ranks
    pytestmark = pytest.mark.two_or_three
ROWS, BATCH, STEPS = 4, 12, 4  # a batch of all ranks is divisible by 1, 2, 3 and 4
Make = Callable[[], Any]


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    x = np.random.default_rng(3).random((BATCH * STEPS, ROWS)).astype("float32")
    return x, np.sin(3 * x.sum(1, keepdims=True))


def own_part(array: Any, rank: int, size: int) -> Any:
    """This rank's rows of each batch of all ranks."""
    return array.reshape(STEPS, size, BATCH // size, -1)[:, rank].reshape(STEPS * BATCH // size, -1)


def make_model(seed: int = 1) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [
        keras.layers.Input((ROWS,)),
        keras.layers.Dense(5, "tanh", name="hidden"),
        keras.layers.Dense(1, name="last"),
    ]
    return keras.Sequential(layers)


def fit(optimizer: Any, x: Any, y: Any, batch: int, callbacks: Any = (), seed: int = 1, **how: Any) -> Any:
    model = make_model(seed)
    model.compile(optimizer, keras.losses.MeanSquaredError(), **how)
    model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model


def alone(make: Make, data: tuple[Any, Any], **how: Any) -> list[Any]:
    """The weights after one process has trained on all data."""
    return [np.array(each) for each in fit(make(), *data, BATCH, **how).get_weights()]


def together(optimizer: Any, data: tuple[Any, Any], rank: int, size: int, **how: Any) -> Any:
    """The model after all ranks have trained, each on its part."""
    x, y = (own_part(each, rank, size) for each in data)
    return fit(optimizer, x, y, BATCH // size, **how)


def assert_close(weights: list[Any], wanted: list[Any], tolerance: float = 1e-5) -> None:
    for one, other in zip(weights, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def of_all_ranks(value: Any) -> Any:
    return horovod.allgather(np.asarray(value, "float64")[None])


def assert_alike(values: list[Any]) -> None:
    for value in values:
        everyone = of_all_ranks(value)
        np.testing.assert_array_equal(everyone, np.broadcast_to(everyone[0], everyone.shape))


def sgd(**options: Any) -> Any:
    return keras.optimizers.SGD(0.1, momentum=0.9, **options)


# ---- beside one process --------------------------------------------------------------------------------

OPTIMIZERS: dict[str, tuple[Make, dict[str, Any]]] = {
    "sgd": (sgd, {}),
    "passes": (
        lambda: sgd(gradient_accumulation_steps=2),
        {"backward_passes_per_step": 2, "average_aggregated_gradients": True},
    ),
}
OTHERS: dict[str, tuple[Make, dict[str, Any]]] = {
    "adam": (lambda: keras.optimizers.Adam(0.01), {"groups": 2}),
    "clipped": (lambda: keras.optimizers.AdamW(0.01, global_clipnorm=0.1), {}),
    "predivided": (sgd, {"gradient_predivide_factor": 2.0}),
    "averaged moments": (lambda: sgd(use_ema=True), {}),
    "own passes": (lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=4), {}),
}


def compare(name: str, data: Any, rank: int, size: int, **how: Any) -> None:
    make, options = (OPTIMIZERS | OTHERS)[name]
    plain = make()
    if "backward_passes_per_step" in options:
        plain.gradient_accumulation_steps = None
    model = together(hvd.DistributedOptimizer(plain, **options), data, rank, size, **how)
    assert_close(model.get_weights(), alone(make, data, **how))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_process_trains_the_same(name: str, data: Any, rank: int, size: int) -> None:
    compare(name, data, rank, size)


@on_one_backend
@pytest.mark.parametrize("name", OTHERS)
def test_with_every_option(name: str, data: Any, rank: int, size: int) -> None:
    compare(name, data, rank, size)


@pytest.mark.parametrize("passes", [1, 2])
def test_counts_steps(passes: int, data: Any, counted_steps: Any, rank: int, size: int) -> None:
    """A step is an update of the weights."""
    optimizer = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=passes)
    assert counted_steps(lambda: together(optimizer, data, rank, size)) == 2 * STEPS // passes


@pytest.mark.skipif(BACKEND == "jax", reason="JAX takes 12 s for it")
def test_eagerly(data: Any, rank: int, size: int) -> None:
    compare("sgd", data, rank, size, run_eagerly=True)


@on_one_backend
def test_sums_over_passes_and_ranks(data: Any, rank: int, size: int) -> None:
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.01), op=hvd.Sum, backward_passes_per_step=2, groups=1
    )
    model = together(optimizer, data, rank, size)
    faster = alone(lambda: keras.optimizers.SGD(0.02 * size, gradient_accumulation_steps=2), data)
    assert_close(model.get_weights(), faster)


@on_one_backend
def test_compression_and_groups_of_variables(
    monkeypatch: pytest.MonkeyPatch, data: Any, rank: int, size: int
) -> None:
    tensors, counts = importlib.import_module("horovod._keras.backend").tensors, []
    reduce = tensors.reduce

    def count(groups: Any, names: Any, rules: Any) -> Any:
        counts.append([len(group) for group in groups])
        return reduce(groups, names, rules)

    monkeypatch.setattr(tensors, "reduce", count)
    wanted = alone(sgd, data)
    model = make_model()
    groups = [model.layers[0].trainable_variables, [model.layers[1].kernel]]
    model.compile(hvd.DistributedOptimizer(sgd(), compression=hvd.Compression.fp16, groups=groups), "mse")
    x, y = (own_part(each, rank, size) for each in data)
    model.fit(x, y, batch_size=BATCH // size, epochs=2, shuffle=False, verbose=0)
    assert_close(model.get_weights(), wanted, 1e-2)
    assert_alike(model.get_weights())
    assert counts == [[2, 1, 1]] * (2 * STEPS)


# ---- TensorFlow ----------------------------------------------------------------------------------------

on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="of TensorFlow")


@on_tensorflow
@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}, {"backward_passes_per_step": 2}], ids=str)
def test_sparse_gradients(options: dict[str, Any], rank: int, size: int) -> None:
    """Of an embedding. Adam leaves rows without entries alone, so it would show that they were made dense;
    SGD does not."""
    rows = np.random.default_rng(5).integers(7, size=(BATCH * STEPS, 2))
    wanted = np.sin(rows.sum(1, keepdims=True)).astype("float32")

    def trained(optimizer: Any, x: Any, y: Any, batch: int) -> list[Any]:
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(7, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.layers.Input((2,), dtype="int64"), *layers])
        model.compile(optimizer, "mse")
        model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
        return model.get_weights()  # type: ignore[no-any-return]

    passes = options.get("backward_passes_per_step", 1)
    kind = keras.optimizers.SGD if "sparse_as_dense" in options else keras.optimizers.Adam
    plain = kind(0.1, gradient_accumulation_steps=passes if passes > 1 else None)
    ours = hvd.DistributedOptimizer(kind(0.1), average_aggregated_gradients=True, **options)
    mine = [own_part(each, rank, size) for each in (rows, wanted)]
    assert_close(trained(ours, *mine, BATCH // size), trained(plain, rows, wanted, BATCH))


@on_tensorflow
def test_a_model_that_the_first_batch_builds(data: Any, rank: int, size: int) -> None:
    keras.utils.set_random_seed(1 + rank)
    model = keras.Sequential([keras.layers.Dense(5, "tanh"), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(sgd()), "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(*data, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback])
    assert callback.broadcast_done
    assert_alike([*model.get_weights(), *map(keras.ops.convert_to_numpy, model.optimizer.variables)])


@on_tensorflow
def test_xla_is_refused_by_the_name_of_the_setting(data: Any, rank: int, size: int) -> None:
    with pytest.raises(Exception, match="pass jit_compile=False"):
        together(hvd.DistributedOptimizer(sgd()), data, rank, size, jit_compile=True)


@on_tensorflow
def test_the_same_by_the_other_name() -> None:
    other = importlib.import_module("horovod.tensorflow.keras")
    for name in (
        "DistributedOptimizer",
        "PartialDistributedOptimizer",
        "broadcast_variables",
        "rank",
        "init",
    ):
        assert getattr(other, name) is getattr(hvd, name)
    callbacks = importlib.import_module("horovod.tensorflow.keras.callbacks")
    assert issubclass(callbacks.MetricAverageCallback, keras.callbacks.Callback)
    assert float(other.allreduce(2.0)) == 2.0
    old = importlib.import_module("horovod._keras").create_distributed_optimizer
    made = old(keras, sgd(), None, "", "", hvd.Compression.none, False, 1.0, hvd.Sum, groups=2)
    assert made._hvd.op == hvd.Sum and made._hvd.groups == 2


# ---- apply ---------------------------------------------------------------------------------------------


def variables(*shapes: tuple[int, ...]) -> list[Any]:
    return [keras.Variable(np.zeros(shape, "float32"), name=f"v{i}") for i, shape in enumerate(shapes)]


def gradients(rank: int, given: list[Any]) -> list[Any]:
    return [keras.ops.convert_to_tensor(np.full(v.shape, rank + 1.0, "float32")) for v in given]


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_apply_by_hand(rank: int, size: int) -> None:
    given = variables((2,), (3,), (2, 2))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="by hand")
    first, _, third = gradients(rank, given)
    optimizer.apply([first, None, third], given)
    mean = (size + 1) / 2
    for variable, wanted in zip(given, (-mean, 0, -mean), strict=True):
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), wanted)
    optimizer.apply_gradients([(third, given[2])])  # a part of them
    np.testing.assert_allclose(keras.ops.convert_to_numpy(given[2]), -2 * mean)
    assert int(optimizer.iterations) == 2


def test_local_layers(data: Any, rank: int, size: int) -> None:
    x, y = data[0][rank::size], data[1][rank::size]
    model = make_model()
    before = model.get_weights()
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=model.layers[1])
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=len(x), verbose=0, shuffle=False)
    after = model.get_weights()
    plain = make_model()
    plain.compile(keras.optimizers.SGD(0.1), "mse")
    plain.fit(x, y, batch_size=len(x), verbose=0, shuffle=False)
    own = [new - old for new, old in zip(plain.get_weights(), before, strict=True)]
    shared = [of_all_ranks(change).mean(axis=0) for change in own[:2]]
    wanted = [*shared, *(change / size for change in own[2:])]
    assert_close([new - old for new, old in zip(after, before, strict=True)], wanted)


@pytest.mark.skipif(BACKEND != "jax", reason="JAX takes names as they are")
def test_two_optimizers_in_one_program(rank: int, size: int) -> None:
    """As of two networks that train each other."""
    given = variables((2,), (2,))
    optimizers = [hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)) for _ in given]
    for optimizer, variable in zip(optimizers, given, strict=True):
        optimizer.build([variable])
    assert optimizers[0]._hvd.prefix != optimizers[1]._hvd.prefix

    def step(*gradients: Any) -> list[Any]:
        parts = zip(optimizers, given, gradients, strict=True)
        return [o.stateless_apply([v.value for v in o.variables], [g], [v.value])[0] for o, v, g in parts]

    outcome = importlib.import_module("jax").jit(step)(*gradients(rank, given))
    np.testing.assert_allclose(np.ravel(outcome), -(size + 1) / 2)


@on_several_ranks
@on_one_backend
def test_an_optimizer_that_one_rank_alone_wraps(rank: int, size: int) -> None:
    """One that it never applies, say of a model to be evaluated: the names of the others don't shift."""
    if rank == 0:
        hvd.DistributedOptimizer(keras.optimizers.Nadam())
    optimizers = [hvd.DistributedOptimizer(keras.optimizers.Nadam()) for _ in range(2)]
    names = [optimizer._hvd.prefix for optimizer in optimizers]
    assert horovod.allgather_object(names) == [["DistributedNadam", "DistributedNadam_2"]] * size
    for optimizer in optimizers:
        given = variables((2,))
        optimizer.apply(gradients(rank, given), given)
        assert_alike([keras.ops.convert_to_numpy(given[0])])


@on_several_ranks
@on_one_backend
def test_a_process_set(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    first = hvd.add_process_set([0])
    given = variables((2,))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=first)
    scaled = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1.0)
    scaled.apply(gradients(rank, given), given)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(given[0]), -(rank + 1.0))
    hvd.remove_process_set(first)


@on_several_ranks
def test_ranks_that_disagree(rank: int) -> None:
    given = variables((rank + 1,))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="disagree")
    with pytest.raises(Exception, match=r"disagree\.0"):  # the framework's own, or HorovodInternalError
        optimizer.apply(gradients(rank, given), given)
        keras.ops.convert_to_numpy(given[0])  # where results are awaited


@on_several_ranks
def test_other_numbers_of_variables(rank: int, size: int) -> None:
    given = variables(*[(1,)] * (1 + rank))
    with pytest.raises(HorovodInternalError, match=r"the ranks have \[1, 2.* variables, by rank") as caught:
        hvd.broadcast_variables(given, 0)
    assert caught.value.code == "MISMATCH"
    assert float(hvd.allreduce(1.0)) == 1


# ---- mixed precision -----------------------------------------------------------------------------------


def scaled(inside: bool) -> Any:
    kind = keras.optimizers.LossScaleOptimizer
    if inside:
        return hvd.DistributedOptimizer(kind(sgd(), initial_scale=4.0))
    return kind(hvd.DistributedOptimizer(sgd()), initial_scale=4.0)


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_an_overflow_on_one_rank_skips_the_step_on_all(inside: bool, rank: int, size: int, data: Any) -> None:
    x, y = (own_part(each, rank, size).copy() for each in data)
    if rank == size - 1:
        x[BATCH // size] = np.inf  # in the second batch
    model = fit(scaled(inside), x, y, BATCH // size)
    assert all(np.isfinite(each).all() for each in model.get_weights())
    assert_alike(model.get_weights())
    assert int(model.optimizer.iterations) == 2 * (STEPS - 1)
    assert float(model.optimizer.dynamic_scale) == 1.0  # halved twice


@on_one_backend
def test_scaled_gradients_train_the_same(data: Any, rank: int, size: int) -> None:
    assert_close(together(scaled(False), data, rank, size).get_weights(), alone(sgd, data))


# ---- values and variables ------------------------------------------------------------------------------


def test_values(rank: int, size: int) -> None:
    numpy = keras.ops.convert_to_numpy
    mean = (size + 1) / 2
    assert float(hvd.allreduce(rank + 1.0)) == mean
    assert numpy(hvd.allreduce(np.full(3, rank + 1.0, "float32"), op=hvd.Sum)).tolist() == [size * mean] * 3
    variable = keras.Variable(np.full(2, rank + 1.0, "float32"))
    kept = {"prescale_factor": 0.5, "postscale_factor": 4.0, "compression": hvd.Compression.fp16}
    assert numpy(hvd.allreduce(variable, "named", **kept)).tolist() == [2 * mean] * 2
    with pytest.warns(DeprecationWarning, match="pass op=") as caught:
        assert float(hvd.allreduce(rank + 1.0, average=False)) == size * mean
    assert caught[0].filename == __file__
    assert numpy(hvd.allgather([[rank], [7]])).tolist() == [row for r in range(size) for row in ([r], [7])]
    assert numpy(hvd.broadcast(np.full(2, rank, "int32"), size - 1, name="b")).tolist() == [size - 1] * 2
    rows = numpy(hvd.reducescatter(np.arange(size * 2.0, dtype="float32"), op=hvd.Sum))
    assert rows.tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)]
    assert hvd.broadcast_object({"root": rank}, 0) == {"root": 0}
    assert hvd.allgather_object(rank) == list(range(size))


def test_variables_are_broadcast(rank: int, size: int) -> None:
    types = ("float32", "float16", "bfloat16", "int32", "bool")
    given = [keras.Variable(np.full(2, rank), dtype=dtype, trainable=False) for dtype in types]
    hvd.broadcast_variables(given, size - 1)
    for variable in given:
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(variable), np.full(2, size - 1, variable.dtype)
        )


# ---- callbacks -----------------------------------------------------------------------------------------


class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Learning rates and weights as the callbacks before it leave them."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []
        self.momenta: list[float] = []
        self.logs: list[dict[str, float]] = []
        self.at_begin: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.at_begin = self.model.get_weights()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.momenta.append(float(keras.ops.sum(self.model.optimizer.momentums[0])))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.momenta.append(float(keras.ops.sum(self.model.optimizer.momentums[0])))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.logs.append(dict(logs))


def test_callbacks(data: Any, rank: int, size: int, tmp_path: Path) -> None:
    """Weights that differ become the root's; then the ranks train as one with a rate that warms up."""
    recorder, best = Recorder(), hvd.callbacks.BestModelCheckpoint("loss")
    best.filepath = str(tmp_path / f"{rank}.keras")
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(size - 1),
        hvd.callbacks.LearningRateWarmupCallback(0.1, 1),
        hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5, start_epoch=1),
        hvd.callbacks.MetricAverageCallback(),
        recorder,
        best,
    ]
    optimizer = hvd.DistributedOptimizer(sgd())
    model = together(optimizer, data, rank, size, callbacks=callbacks, seed=1 + size - 1 - rank)
    assert_close(recorder.at_begin, make_model().get_weights(), 0)
    assert_alike(model.get_weights())
    warm = [0.1 / size * ((batch + 1) / STEPS * (size - 1) + 1) for batch in range(STEPS)]
    np.testing.assert_allclose(recorder.rates, [*warm, *[0.1] * STEPS], rtol=1e-6)
    ratios = np.array(recorder.momenta[2::2]) / np.array(recorder.momenta[1:-1:2])
    rates = np.array(recorder.rates)
    np.testing.assert_allclose(ratios, rates[1:] / rates[:-1], rtol=1e-4)
    assert [logs["lr"] for logs in recorder.logs] == pytest.approx([0.1, 0.1])
    assert_alike([logs["loss"] for logs in recorder.logs])
    assert type(keras.models.load_model(best.filepath).optimizer).__name__ == "SGD"


def test_a_metric_with_a_value_for_each_class(rank: int, size: int) -> None:
    x, y = (
        np.random.default_rng(rank).random((24, 4), "float32"),
        np.eye(3, dtype="float32")[np.arange(24) % 3],
    )
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "softmax")])
    own = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: scores.append(logs["f1"]))
    scores: list[Any] = []
    optimizer = hvd.DistributedOptimizer(sgd())
    model.compile(optimizer, "categorical_crossentropy", metrics=[keras.metrics.F1Score(name="f1")])
    history = model.fit(x, y, verbose=0, callbacks=[own, hvd.callbacks.MetricAverageCallback()])
    (average,) = history.history["f1"]
    assert np.shape(average) == (3,)
    np.testing.assert_allclose(average, np.mean(hvd.allgather_object(np.asarray(scores[0])), 0), rtol=1e-5)


@on_one_backend
def test_a_model_without_weights_gets_them_after_the_first_batch(data: Any, rank: int, size: int) -> None:
    model = make_model(seed=1 + rank)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[model.layers[1].bias])
    callback.set_model(model)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.layers[1].bias.assign([float(rank)])
    model.built = False
    callback.on_train_begin()
    assert not callback.broadcast_done
    model.built = True
    model.optimizer.build(model.trainable_variables)
    callback.on_train_batch_end(0)
    assert callback.broadcast_done
    assert_alike(model.get_weights()[:3])
    assert model.get_weights()[3] == rank


@on_one_backend
def test_schedules(rank: int) -> None:
    with pytest.raises(ValueError, match="initial_lr"):
        hvd.callbacks.LearningRateScheduleCallback(None, 0.5)
    smooth = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: epoch, staircase=False)
    smooth.set_params({})
    with pytest.raises(ValueError, match="pass steps_per_epoch"):
        smooth.on_train_begin()
    smooth = hvd.callbacks.LearningRateScheduleCallback(
        1.0, lambda epoch: epoch, start_epoch=1, end_epoch=2, staircase=False, steps_per_epoch=4
    )
    model = make_model()
    model.compile(keras.optimizers.SGD(0.5), "mse")
    smooth.set_model(model)
    seen = []
    for epoch in range(3):
        smooth.on_epoch_begin(epoch)
        for batch in range(2):
            smooth.on_train_batch_begin(batch)
            seen.append(float(model.optimizer.learning_rate))
    assert seen == [0.5, 0.5, 1.0, 1.25, 1.25, 1.25]


def test_warm_up_says_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    warm = hvd.callbacks.LearningRateWarmupCallback(0.1, 2, verbose=1)
    model = make_model()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    warm.set_model(model)
    warm.on_epoch_end(0)
    assert not capsys.readouterr().out
    warm.on_epoch_end(1)
    assert capsys.readouterr().out == "\nEpoch 2: finished gradual learning rate warmup to 0.1.\n"


# ---- saved models --------------------------------------------------------------------------------------


def test_saved_models_know_nothing_of_horovod(data: Any, rank: int, size: int, tmp_path: Path) -> None:
    model = together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), data, rank, size)
    path = tmp_path / "model.keras"
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        assert not any(b"horovod" in archive.read(member) for member in archive.namelist())
    plain = keras.models.load_model(path)
    ours = hvd.load_model(path, compression=hvd.Compression.fp16)
    assert not hasattr(plain.optimizer, "_hvd")
    assert isinstance(ours.optimizer, type(plain.optimizer)) and hasattr(ours.optimizer, "_hvd")
    x, y = (own_part(each, rank, size) for each in data)
    for each in (model, ours):
        each.fit(x, y, batch_size=BATCH // size, verbose=0, shuffle=False)
    assert_alike(ours.get_weights())
    assert_close(ours.get_weights(), model.get_weights(), 1e-3)  # with the moments that were saved


# Where there is no Horovod: trains the one model further, and predicts with the other.
LOAD = """
import sys; sys.modules["horovod"] = None
import keras, numpy, tensorflow
saved, exported = sys.argv[1:]
ones = numpy.ones((12, 4), "float32")
model = keras.models.load_model(saved)
model.fit(ones, ones[:, :1], verbose=0)
print(type(model.optimizer).__name__, int(model.optimizer.iterations))
loaded = tensorflow.saved_model.load(exported)  # its variables live as long as it
print(loaded.serve(ones).shape)
"""


@on_tensorflow
@pytest.mark.own_process
def test_saved_and_exported_models_work_without_horovod(
    data: Any, rank: int, size: int, tmp_path: Path
) -> None:
    model = together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), data, rank, size)
    if rank == 0:
        paths = [str(tmp_path / "model.keras"), str(tmp_path / "exported")]
        model.save(paths[0])
        model.export(paths[1], verbose=False)
        command = [sys.executable, "-c", LOAD, *paths]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.stdout.splitlines() == [f"Adam {2 * STEPS + 1}", "(12, 1)"], done.stderr


@on_one_backend
def test_copies_and_configurations() -> None:
    kind = type(sgd())
    optimizer = hvd.DistributedOptimizer(sgd())
    for plain in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert type(plain) is kind and plain.momentum == 0.9
    again = type(optimizer).from_config(optimizer.get_config())
    assert again._hvd is optimizer._hvd and again.momentum == 0.9


@on_one_backend
def test_programs_see_that_an_optimizer_is_wrapped(tmp_path: Path) -> None:
    @keras.saving.register_keras_serializable("own")  # type: ignore[misc]
    class Registered(keras.optimizers.SGD):  # type: ignore[misc]
        pass

    for kind in (keras.optimizers.Adam, Registered):
        optimizer = hvd.DistributedOptimizer(kind(0.1))
        assert type(optimizer).__module__ == optimizer.__module__ == "horovod._keras"
        assert "horovod" in str(optimizer)
        saved = keras.saving.serialize_keras_object(optimizer)
        assert type(keras.saving.deserialize_keras_object(saved)) is type(kind(0.1))


@on_one_backend
def test_models_that_know_more(tmp_path: Path) -> None:
    class Slow(keras.optimizers.SGD):  # type: ignore[misc]
        pass

    model = make_model()
    model.compile(Slow(0.1), "mse")
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "slow.keras")
    assert isinstance(hvd.load_model(tmp_path / "slow.keras", custom_optimizers=[Slow]).optimizer, Slow)
    make_model().save(tmp_path / "bare.keras")
    with pytest.raises(ValueError, match="holds no optimizer"):
        hvd.load_model(tmp_path / "bare.keras")
    with pytest.raises(ValueError, match="legacy"):
        hvd.load_model(tmp_path / "slow.keras", legacy_opts=True)


# ---- bad input -----------------------------------------------------------------------------------------


@on_one_backend
def test_what_makes_no_sense_is_refused() -> None:
    optimizer = hvd.DistributedOptimizer(sgd())
    for twice in (optimizer, keras.optimizers.LossScaleOptimizer(optimizer)):
        with pytest.raises(ValueError, match="wrapped before"):
            hvd.DistributedOptimizer(twice)
    for wrong in ("sgd", keras.optimizers.SGD):
        with pytest.raises(ValueError, match="takes an optimizer of Keras 2 or 3, such as"):
            hvd.DistributedOptimizer(wrong)
    with pytest.raises(ValueError, match="at least 1"):
        hvd.DistributedOptimizer(sgd(), backward_passes_per_step=0)
    with pytest.raises(ValueError, match="gradient_accumulation_steps of its own"):
        hvd.DistributedOptimizer(sgd(gradient_accumulation_steps=2), backward_passes_per_step=2)
    for groups in (-1, 0):
        with pytest.raises(ValueError, match="groups must be a positive number"):
            hvd.DistributedOptimizer(sgd(), groups=groups)
    with pytest.raises(ValueError, match="groups must hold parameters"):
        hvd.DistributedOptimizer(sgd(), groups=[["kernel"]])
    with pytest.raises(ValueError, match="needs op=Average"):
        hvd.DistributedOptimizer(sgd(), op=hvd.Sum, gradient_predivide_factor=2.0)
    for wrap in (hvd.DistributedOptimizer, hvd.PartialDistributedOptimizer):
        with pytest.warns(DeprecationWarning, match="num_groups") as caught:
            wrap(sgd(), num_groups=2)
        assert caught[0].filename == __file__
    with pytest.raises(ValueError, match="'late' has no variables yet"):
        hvd.PartialDistributedOptimizer(sgd(), local_layers=[keras.layers.Dense(1, name="late")])
    with pytest.raises(ValueError, match="layers of Keras"):
        hvd.PartialDistributedOptimizer(sgd(), local_layers=["late"])
    with pytest.raises(RuntimeError, match="BroadcastGlobalVariablesCallback"):
        hvd.broadcast_global_variables(0)
    with pytest.raises(ValueError, match="must already be built"):
        hvd.DistributedOptimizer(sgd()).apply(gradients(0, variables((2,))))


@pytest.fixture(autouse=True, scope="module")
def _forget_models() -> Iterator[None]:
    yield
    keras.utils.clear_session()
