"""tf.keras of Keras 2, as in older versions of TensorFlow and tf_keras, and as one process with all data."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import horovod

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
try:
    VERSION = importlib.metadata.version("keras")
except importlib.metadata.PackageNotFoundError:
    VERSION = ""
if not VERSION or not (LEGACY or VERSION.startswith("2")):
    pytest.skip("of Keras 2", allow_module_level=True)

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
keras = tf.keras
hvd = importlib.import_module("horovod.tensorflow.keras")
ROWS, BATCH, STEPS = 4, 12, 4  # a batch of all ranks is divisible by 1, 2, 3 and 4
KINDS = {"new": keras.optimizers, "legacy": keras.optimizers.legacy}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
Make = Callable[[Any], Any]


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    x = np.random.default_rng(3).random((BATCH * STEPS, ROWS)).astype("float32")
    return x, np.sin(3 * x.sum(1, keepdims=True))


def own_part(array: Any, rank: int, size: int, batch: int = BATCH) -> Any:
    """This rank's rows of each batch of all ranks."""
    return array.reshape(-1, size, batch // size, array.shape[1])[:, rank].reshape(-1, array.shape[1])


def make_model(seed: int = 1) -> Any:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.layers.Input((ROWS,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(1)]
    )


def fit(optimizer: Any, x: Any, y: Any, batch: int, callbacks: Any = (), seed: int = 1, **how: Any) -> Any:
    model = make_model(seed)
    model.compile(optimizer, "mse", **how)
    model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model


def together(optimizer: Any, data: tuple[Any, Any], rank: int, size: int, **how: Any) -> Any:
    """The model after all ranks have trained, each on its part."""
    x, y = (own_part(each, rank, size) for each in data)
    return fit(optimizer, x, y, BATCH // size, **how)


def assert_close(weights: list[Any], wanted: list[Any], tolerance: float = 1e-5) -> None:
    for one, other in zip(weights, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def assert_alike(values: list[Any]) -> None:
    for value in values:
        everyone = horovod.allgather(np.asarray(value, "float64")[None])
        np.testing.assert_array_equal(everyone, np.broadcast_to(everyone[0], everyone.shape))


def sgd(kind: Any) -> Any:
    return kind.SGD(0.1, momentum=0.9)


# ---- beside one process --------------------------------------------------------------------------------

OPTIMIZERS: dict[str, tuple[Make, dict[str, Any]]] = {
    "momentum": (sgd, {}),
    "clipped": (lambda kind: kind.Adam(0.01, global_clipnorm=0.1), {"gradient_predivide_factor": 2.0}),
    "groups": (lambda kind: kind.RMSprop(0.01), {"groups": 2}),
}


@every_kind
@pytest.mark.parametrize("passes", [1, 2])
def test_counts_steps(passes: int, kind: Any, data: Any, counted_steps: Any, rank: int, size: int) -> None:
    """A step is an update of the weights."""
    optimizer = hvd.DistributedOptimizer(kind.SGD(0.1), backward_passes_per_step=passes)
    x, y = (own_part(each, rank, size) for each in data)
    assert counted_steps(lambda: fit(optimizer, x, y, BATCH // size)) == 2 * STEPS // passes


@every_kind
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_process_trains_the_same(name: str, kind: Any, data: Any, rank: int, size: int) -> None:
    make, options = OPTIMIZERS[name]
    optimizer = make(kind)
    assert hvd.DistributedOptimizer(optimizer, **options) is optimizer
    model = together(optimizer, data, rank, size, run_eagerly=name == "groups")
    assert_close(model.get_weights(), fit(make(kind), *data, BATCH).get_weights())
    assert_alike(model.get_weights())


@every_kind
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_passes(scaled: bool, kind: Any, data: Any, rank: int, size: int) -> None:
    """Two batches a step are a batch of twice the size; weight decay and momentum act once."""
    optimizer = hvd.DistributedOptimizer(
        sgd(kind), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    outside = keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=4.0) if scaled else optimizer
    model = together(outside, data, rank, size)
    assert_close(model.get_weights(), fit(sgd(kind), *data, 2 * BATCH).get_weights())
    assert int(optimizer.iterations) == STEPS


@every_kind
@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}], ids=["sparse", "dense"])
def test_sparse_gradients(options: dict[str, Any], kind: Any, rank: int, size: int) -> None:
    rows = np.random.default_rng(5).integers(7, size=(BATCH * STEPS, 2))
    wanted = np.sin(rows.sum(1, keepdims=True)).astype("float32")

    def trained(optimizer: Any, x: Any, y: Any, batch: int) -> list[Any]:
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(7, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.layers.Input((2,), dtype="int64"), *layers])
        model.compile(optimizer, "mse")
        model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
        return model.get_weights()  # type: ignore[no-any-return]

    mine = [own_part(each, rank, size) for each in (rows, wanted)]
    ours = trained(hvd.DistributedOptimizer(kind.SGD(0.1), **options), *mine, BATCH // size)
    assert_close(ours, trained(kind.SGD(0.1), rows, wanted, BATCH))


@every_kind
def test_local_layers(kind: Any, data: Any, rank: int, size: int) -> None:
    """One step: what the local layer keeps are its own gradients, divided by the number of ranks."""
    x, y = (each[rank::size] for each in data)
    before = make_model().get_weights()

    def step(optimizer: Any, model: Any) -> list[Any]:
        model.compile(optimizer, "mse")
        model.fit(x, y, batch_size=len(x), verbose=0, shuffle=False)
        return [new - old for new, old in zip(model.get_weights(), before, strict=True)]

    own, model = step(kind.SGD(0.1), make_model()), make_model()
    ours = step(hvd.PartialDistributedOptimizer(kind.SGD(0.1), local_layers=model.layers[1]), model)
    shared = [horovod.allgather(change[None]).mean(axis=0) for change in own[:2]]
    assert_close(ours, [*shared, *(change / size for change in own[2:])])


# ---- mixed precision -----------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_an_overflow_on_one_rank_skips_the_step_on_all(
    inside: bool, kind: Any, rank: int, size: int, data: Any
) -> None:
    x, y = (own_part(each, rank, size).copy() for each in data)
    if rank == size - 1:
        x[BATCH // size] = np.inf  # in the second batch
    scale = keras.mixed_precision.LossScaleOptimizer
    if inside:
        optimizer = hvd.DistributedOptimizer(scale(sgd(kind), initial_scale=4.0))
    else:
        optimizer = scale(hvd.DistributedOptimizer(sgd(kind)), initial_scale=4.0)
    model = fit(optimizer, x, y, BATCH // size)
    assert all(np.isfinite(each).all() for each in model.get_weights())
    assert_alike(model.get_weights())
    assert float(optimizer.loss_scale) == 1.0  # halved twice


@every_kind
def test_an_overflow_of_a_local_layer_does_too(kind: Any, rank: int, size: int) -> None:
    shared, own = tf.Variable([1.0]), tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(kind.SGD(1.0))
    optimizer.register_local_var(own)
    scaled = keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=4.0)
    for gradient in (np.inf if rank == size - 1 else 1.0, 1.0):
        scaled.get_unscaled_gradients([])
        scaled.get_scaled_loss(tf.constant(1.0))
        scaled.apply_gradients([(tf.constant([0.5]), shared), (tf.constant([gradient]), own)])
    assert_close([shared.numpy(), own.numpy()], [[0.5], [1 - 1 / size]])
    assert float(scaled.loss_scale) == 2.0


# ---- values and callbacks ------------------------------------------------------------------------------


def test_values(rank: int, size: int) -> None:
    mean = (size + 1) / 2
    assert float(hvd.allreduce(rank + 1.0)) == mean
    assert hvd.allreduce(tf.Variable([rank + 1.0]), "named", op=hvd.Sum).numpy().tolist() == [size * mean]
    assert hvd.allgather([[rank]]).numpy().tolist() == [[each] for each in range(size)]
    assert hvd.broadcast(np.full(2, rank), size - 1).numpy().tolist() == [size - 1] * 2
    assert hvd.reducescatter(np.ones(size, "float32"), op=hvd.Sum).numpy().tolist() == [size]
    variables = [tf.Variable([rank]), tf.Variable(rank, dtype=tf.bfloat16)]
    hvd.broadcast_variables(variables, size - 1)
    assert [int(np.ravel(each.numpy())[0]) for each in variables] == [size - 1] * 2
    assert hvd.broadcast_object({"root": rank}, 0) == {"root": 0}
    with pytest.raises(RuntimeError, match="BroadcastGlobalVariablesCallback"):
        hvd.broadcast_global_variables(0)


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
        self.momenta.append(self.momentum())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.momenta.append(self.momentum())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.logs.append(dict(logs))

    def momentum(self) -> float:
        """The sum of past steps, of the first variable."""
        optimizer, variable = self.model.optimizer, self.model.trainable_variables[0]
        legacy = hasattr(optimizer, "get_slot")
        momentum = optimizer.get_slot(variable, "momentum") if legacy else optimizer.momentums[0]
        return float(tf.reduce_sum(momentum))


@every_kind
def test_callbacks(kind: Any, data: Any, rank: int, size: int, tmp_path: Path) -> None:
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
    optimizer = hvd.DistributedOptimizer(sgd(kind))
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


@every_kind
def test_a_model_that_the_first_batch_builds(kind: Any, data: Any, rank: int, size: int) -> None:
    keras.utils.set_random_seed(1 + rank)
    model = keras.Sequential([keras.layers.Dense(5, "tanh"), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(sgd(kind)), "mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(*data, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback])
    assert callback.broadcast_done
    state = model.optimizer.variables
    assert_alike([*model.get_weights(), *(each.numpy() for each in (state() if callable(state) else state))])


@every_kind
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_gradients_before_they_are_applied(kind: Any, passes: int, graph: bool, rank: int, size: int) -> None:
    """As training loops of other libraries compute them; applying does not reduce them again."""
    variable = tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(kind.SGD(1.0), op=hvd.Sum, backward_passes_per_step=passes)
    if kind is keras.optimizers:
        optimizer.build([variable])

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = (rank + 1.0) * variable
        pairs = optimizer._compute_gradients(loss, [variable], tape=tape)
        optimizer.apply_gradients(pairs)
        return pairs[0][0]

    step = tf.function(step) if graph else step
    total = size * (size + 1) / 2
    for number in range(2 * passes):
        gradient = step()
        last = number % passes == passes - 1
        if last:
            assert gradient.numpy() == [passes * total]
        assert variable.numpy() == [1.0 - passes * total * ((number + 1) // passes)]
        if passes == 1:
            assert optimizer._agg_helper is None
        else:
            assert optimizer._agg_helper.counter.numpy() == (number + 1) % passes
            assert [*optimizer._agg_helper.locally_aggregated_grads] == [0]


@every_kind
def test_programs_see_that_an_optimizer_is_wrapped(kind: Any) -> None:
    @keras.utils.register_keras_serializable("own", f"Own{id(kind)}")  # type: ignore[misc]
    class Registered(kind.SGD):  # type: ignore[misc]
        pass

    for each in (kind.Adam, Registered):
        optimizer = hvd.DistributedOptimizer(each(0.1))
        assert type(optimizer).__module__ == optimizer.__module__ == "horovod._keras"
        assert "horovod" in str(optimizer)
        saved, plain = map(keras.utils.serialize_keras_object, (optimizer, each(0.1)))
        same = ("class_name", "registered_name", *(["module"] if each is kind.Adam else []))
        assert [saved[key] for key in same] == [plain[key] for key in same]


# ---- saved models --------------------------------------------------------------------------------------

# Where there is no Horovod: loads the files, predicts, and says what optimizers they hold.
LOAD = """
import sys; sys.modules["horovod"] = None
import numpy; from tensorflow import keras
for path in sys.argv[1:]:
    model = keras.models.load_model(path)
    print(type(model.optimizer).__name__, model.predict(numpy.ones((1, 4)), verbose=0).shape)
"""


def test_saved_models_load_without_horovod(data: Any, rank: int, size: int, tmp_path: Path) -> None:
    paths = []
    for name, kind in KINDS.items():
        model = together(hvd.DistributedOptimizer(kind.Adam(0.01)), data, rank, size)
        for suffix in (".keras", ".h5", "") if name == "new" else (".keras",):
            paths.append(str(tmp_path / (name + suffix)))
            model.save(paths[-1])
            again = hvd.load_model(paths[-1], compression=hvd.Compression.fp16)
            assert again.optimizer._hvd.compression is hvd.Compression.fp16
            x, y = (own_part(each, rank, size) for each in data)
            again.fit(x, y, batch_size=BATCH // size, verbose=0, shuffle=False)
            assert_alike(again.get_weights())
    if rank == 0:
        done = subprocess.run(
            [sys.executable, "-c", LOAD, *paths], capture_output=True, text=True, timeout=200, check=False
        )
        assert done.stdout.splitlines() == ["Adam (1, 1)"] * len(paths), done.stderr


# ---- bad input -----------------------------------------------------------------------------------------


@every_kind
def test_what_makes_no_sense_is_refused(kind: Any) -> None:
    optimizer = hvd.DistributedOptimizer(sgd(kind))
    for twice in (optimizer, keras.mixed_precision.LossScaleOptimizer(optimizer)):
        with pytest.raises(ValueError, match="wrapped before"):
            hvd.DistributedOptimizer(twice)
    with pytest.raises(ValueError, match="takes an optimizer of Keras 2 or 3, such as"):
        hvd.DistributedOptimizer("sgd")
    with pytest.raises(ValueError, match="at least 1"):
        hvd.DistributedOptimizer(sgd(kind), backward_passes_per_step=0)
    with pytest.raises(ValueError, match="groups must hold parameters"):
        hvd.DistributedOptimizer(sgd(kind), groups=[["kernel"]])
    with pytest.raises(ValueError, match="'late' has no variables yet"):
        hvd.PartialDistributedOptimizer(sgd(kind), local_layers=[keras.layers.Dense(1, name="late")])


@pytest.mark.skipif(horovod.size() < 2, reason="several ranks show it")
@every_kind
def test_ranks_that_disagree(kind: Any, rank: int) -> None:
    variable = tf.Variable(tf.zeros(rank + 1))
    optimizer = hvd.DistributedOptimizer(sgd(kind), name="disagree")
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"disagree\.0"):
        optimizer.apply_gradients([(tf.zeros(rank + 1), variable)])


def test_by_every_name(data: Any, rank: int, size: int) -> None:
    """horovod.keras is of the Keras that `import keras` gives, and takes the optimizers of either."""
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    other, plain = importlib.import_module("horovod.keras"), importlib.import_module("keras")
    assert issubclass(other.callbacks.MetricAverageCallback, plain.callbacks.Callback)
    assert issubclass(hvd.callbacks.MetricAverageCallback, keras.callbacks.Callback)
    assert other.DistributedOptimizer is hvd.DistributedOptimizer
    assert float(other.allreduce(1.0, op=hvd.Sum)) == size
    optimizer = importlib.import_module("horovod.tensorflow").DistributedOptimizer(
        sgd(keras.optimizers), num_groups=0, groups=1
    )
    assert optimizer._hvd.groups == 1
