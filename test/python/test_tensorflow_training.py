"""horovod.tensorflow's tapes, optimizers and hooks: as one process that has the data of all ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import horovod.tensorflow as hvd  # noqa: E402
from horovod.tensorflow import functions, library, mpi_ops, util  # noqa: E402

pytestmark = pytest.mark.two_or_three
v1 = tf.compat.v1
STEPS = 4


def batch(rank: int, step: int) -> tuple[Any, Any]:
    random = np.random.default_rng(100 * rank + step)
    return random.normal(size=(6, 4)).astype(np.float32), random.normal(size=(6, 2)).astype(np.float32)


def joint(size: int, step: int) -> tuple[Any, Any]:
    xs, ys = zip(*(batch(r, step) for r in range(size)), strict=True)
    return np.concatenate(xs), np.concatenate(ys)


def initial() -> list[Any]:
    random = np.random.default_rng(7)
    return [random.normal(size=shape).astype(np.float32) for shape in ((4, 5), (5,), (5, 2))]


def loss_of(weights: list[Any], x: Any, y: Any) -> Any:
    hidden = tf.tanh(tf.matmul(x, weights[0]) + weights[1])
    return tf.reduce_mean((tf.matmul(hidden, weights[2]) - y) ** 2)


def gradients_of(weights: list[Any], x: Any, y: Any, wrap: Any = lambda tape: tape) -> Any:
    with tf.GradientTape() as tape:
        loss = loss_of(weights, x, y)
    return wrap(tape).gradient(loss, weights)


TAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "predivided": {"gradient_predivide_factor": 2.0},
    "two groups": {"groups": 2},
    "sum": {"op": hvd.Sum},
    "small": {"compression": hvd.Compression.fp16},
}


@pytest.mark.parametrize("function", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("name", TAPES)
def test_tapes(name: str, function: bool, rank: int, size: int) -> None:
    weights = [tf.Variable(value) for value in initial()]

    def compute(x: Any, y: Any) -> Any:
        return gradients_of(weights, x, y, lambda tape: hvd.DistributedGradientTape(tape, **TAPES[name]))

    compute = tf.function(compute) if function else compute
    for step in range(STEPS):
        expected = gradients_of(weights, *joint(size, step))
        factor = size if name == "sum" else 1
        for gradient, other in zip(compute(*batch(rank, step)), expected, strict=True):
            # float16 on the way: each rank's part, each sum of two, and the average are rounded
            rounding = (size + 1) * 2**-11 * np.abs(other).max() if name == "small" else 0
            assert np.allclose(gradient, other * factor, atol=1e-6 + rounding)


def test_a_tape_as_it_is_used(rank: int, size: int) -> None:
    """Within `with`, persistent, of nested sources, with what has no gradient; the given one stays."""
    x, unused = tf.Variable([1.0 + rank]), tf.Variable(1.0)
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        y = x**2
    mean = np.mean([2 * (1 + r) for r in range(size)])
    for _ in range(2):
        found = tape.gradient(y, {"x": x, "more": [unused]})
        assert np.allclose(found["x"], mean) and found["more"] == [None]
    assert tape.gradient(y, x)[0] == mean
    zero = tape.gradient(y, unused, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert float(zero) == 0
    with tf.GradientTape() as plain:
        y = x**2
    wrapped = hvd.DistributedGradientTape(plain)
    assert isinstance(wrapped, hvd._DistributedGradientTape) and type(plain) is tf.GradientTape
    assert wrapped.gradient(y, [x])[0] == mean
    with pytest.raises(ValueError, match="wrapped before"):
        hvd.DistributedGradientTape(wrapped)
    with pytest.raises(ValueError, match="needs op=Average"):
        hvd.DistributedGradientTape(plain, op=hvd.Sum, gradient_predivide_factor=2.0)


@pytest.mark.skipif(not library.asynchronous, reason="before TensorFlow 2.13 a list is one operation")
def test_gradients_travel_inside_backprop() -> None:
    """The backward pass stops in its middle until the last layer's gradient has been reduced."""
    reduced = threading.Event()

    def wait(gradient: Any) -> Any:
        assert reduced.wait(60), "nothing was reduced before the end of the backward pass"
        return gradient

    def note(gradient: Any) -> Any:
        reduced.set()
        return gradient

    @tf.custom_gradient
    def middle(x: Any) -> Any:
        return x, lambda gradient: tf.numpy_function(wait, [gradient], gradient.dtype, stateful=False)

    first, last = tf.Variable(2.0), tf.Variable(3.0)

    @tf.function
    def compute(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = middle(x * first) * last
        gradients = hvd.DistributedGradientTape(tape).gradient(y, [first, last])
        return gradients[0], tf.numpy_function(note, [gradients[1]], tf.float32, stateful=False)

    assert [float(gradient) for gradient in compute(tf.constant(1.0))] == [3.0, 2.0]


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_embeddings(dense: bool, rank: int, size: int) -> None:
    table = tf.Variable(tf.ones([6, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [rank, rank + 1])) * (rank + 1.0)
    (gradient,) = hvd.DistributedGradientTape(tape, sparse_as_dense=dense).gradient(loss, [table])
    assert isinstance(gradient, tf.IndexedSlices) != dense
    expected = np.zeros((6, 2))
    for r in range(size):
        expected[r : r + 2] += (r + 1) / size
    assert np.allclose(tf.convert_to_tensor(gradient), expected)


def test_local_sources(rank: int, size: int) -> None:
    shared, own = tf.Variable(2.0), tf.Variable(3.0)
    for scaled in (True, False):
        with tf.GradientTape() as tape:
            y = shared * own * (rank + 1.0)
        wrapped = hvd.DistributedGradientTape(tape, scale_local_gradients=scaled)
        wrapped.register_local_source(own)
        first, second = wrapped.gradient(y, [shared, own])
        assert np.isclose(first, 3 * (size + 1) / 2)
        assert np.isclose(second, 2 * (rank + 1) / (size if scaled else 1))


def test_local_layers(rank: int, size: int) -> None:
    layers = [tf.keras.layers.Dense(1, kernel_initializer="ones", use_bias=False) for _ in range(2)]
    x = tf.fill([1, 1], rank + 1.0)
    layers[1](layers[0](x))
    with tf.GradientTape() as tape:
        y = layers[1](layers[0](x))
    wrapped = hvd.PartialDistributedGradientTape(tape, local_layers=layers[1])
    weights = [layer.trainable_weights[0] for layer in layers]
    first, second = wrapped.gradient(y, weights)
    assert np.isclose(first, (size + 1) / 2) and np.isclose(second, (rank + 1) / size)


@pytest.mark.parametrize("function", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("groups", [None, 2])
def test_tapes_count_steps(groups: int | None, function: bool, counted_steps: Any, rank: int) -> None:
    weights = [tf.Variable(value) for value in initial()]

    def step(x: Any, y: Any) -> None:
        wrap = partial(hvd.DistributedGradientTape, groups=groups)
        for weight, gradient in zip(weights, gradients_of(weights, x, y, wrap), strict=True):
            weight.assign_sub(0.1 * gradient)

    run = tf.function(step) if function else step
    x, y = map(tf.constant, batch(rank, 0))
    assert counted_steps(lambda: [run(x, y) for _ in range(STEPS)]) == STEPS


# ---- optimizers of TensorFlow 1 --------------------------------------------------------------------------


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.01),
}


def trained(optimizer: Any, batches: list[Any], resource: bool = True, hooks: Any = ()) -> list[Any]:
    """The weights after a step with each batch; `optimizer` makes one inside the graph."""
    with tf.Graph().as_default():
        weights = [v1.Variable(value, use_resource=resource) for value in initial()]
        x, y = v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.float32, [None, 2])
        step = v1.train.get_or_create_global_step()
        train = optimizer().minimize(loss_of(weights, x, y), global_step=step)
        with v1.train.MonitoredTrainingSession(hooks=list(hooks)) as session:
            for xs, ys in batches:
                session.run(train, {x: xs, y: ys})
            assert session.run(step) == len(batches)
            return list(session.run(weights))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, rank: int, size: int) -> None:
    """Also those with reference variables, slots and hooks."""
    hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(100)]
    ours = trained(
        lambda: hvd.DistributedOptimizer(OPTIMIZERS[name](), groups=2 if name == "adam" else None),
        [batch(rank, step) for step in range(STEPS)],
        name != "sgd",
        hooks,
    )
    alone = trained(OPTIMIZERS[name], [joint(size, step) for step in range(STEPS)])
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(ours, alone, strict=True))


@pytest.mark.parametrize("average", [True, False])
def test_accumulation(average: bool, rank: int, size: int) -> None:
    """Two passes a step are a step with both batches, or with twice the rate."""
    ours = trained(
        lambda: hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(0.1),
            backward_passes_per_step=2,
            average_aggregated_gradients=average,
        ),
        [batch(rank, step) for step in range(2 * STEPS)],
    )
    pairs = [(joint(size, 2 * step), joint(size, 2 * step + 1)) for step in range(STEPS)]
    batches = [tuple(map(np.concatenate, zip(*pair, strict=True))) for pair in pairs]
    alone = trained(lambda: v1.train.GradientDescentOptimizer(0.1 if average else 0.2), batches)
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(ours, alone, strict=True))


@pytest.mark.parametrize("passes", [1, 2])
def test_optimizers_count_steps(passes: int, counted_steps: Any, rank: int) -> None:
    def train() -> None:
        make = v1.train.GradientDescentOptimizer
        batches = [batch(rank, step) for step in range(2 * STEPS)]
        trained(lambda: hvd.DistributedOptimizer(make(0.1), backward_passes_per_step=passes), batches)

    assert counted_steps(train) == 2 * STEPS // passes


def test_eager_minimize(rank: int, size: int) -> None:
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5))
    weight, own = tf.Variable(1.0), tf.Variable(1.0)
    optimizer.register_local_var(own)
    optimizer.minimize(lambda: weight * (rank + 1.0) + own * (rank + 1.0), var_list=[weight, own])
    assert np.isclose(weight, 1 - 0.5 * (size + 1) / 2)
    assert np.isclose(own, 1 - 0.5 * (rank + 1) / size)


def test_optimizers_that_are_refused() -> None:
    wrapped = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.01))
    assert isinstance(wrapped, (hvd._DistributedOptimizer, v1.train.Optimizer))
    for text, arguments, options in [
        ("wrapped before", [wrapped], {}),
        ("not int", [3], {}),
        ("at least 1", [v1.train.AdamOptimizer(0.01)], {"backward_passes_per_step": 0}),
        ("must be positive", [v1.train.AdamOptimizer(0.01)], {"gradient_predivide_factor": -1.0}),
    ]:
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(*arguments, **options)


class Unbuilt:
    name, built = "late", False


def test_what_is_no_tape_and_no_variable() -> None:
    with pytest.raises(ValueError, match=r"takes a tf\.GradientTape, not NoneType"):
        hvd.DistributedGradientTape(None)
    with pytest.raises(ValueError, match="the local layer 'late' has no variables yet"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[Unbuilt()])
    with pytest.raises(ValueError, match="must be layers of Keras, not <class 'str'>"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers="late")
    for wrong in (None, tf.Module(), [tf.Variable(1.0), tf.ones([1])], tf.Variable([1.0])):
        with pytest.raises(ValueError, match=r"takes a list of variables, such as model\.variables, not"):
            hvd.broadcast_variables(wrong, 0)
    with pytest.warns(UserWarning, match="before it is built a model has none"):
        hvd.broadcast_variables([], 0)


# ---- equal variables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [False, True], ids=["eager", "function"])
def test_broadcast_variables(function: bool, rank: int, size: int) -> None:
    variables = [tf.Variable([rank + 1.0]), tf.Variable([[rank]]), tf.Variable(True)]
    give = tf.function(hvd.broadcast_variables) if function else hvd.broadcast_variables
    assert give(variables, size - 1) is None
    assert variables[0].numpy() == [size] and variables[1].numpy() == [[size - 1]]
    assert mpi_ops.broadcast_(variables, 0)[0] is variables[0]


def test_global_variables(rank: int, size: int) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [v1.Variable(rank + 1.0, use_resource=False), v1.Variable([rank], use_resource=True)]
        give = hvd.broadcast_global_variables(size - 1)
        with pytest.raises(tf.errors.FailedPreconditionError):  # they have no value
            session.run(give)
        session.run(v1.global_variables_initializer())
        session.run(give)
        assert [np.sum(value) for value in session.run(variables)] == [size, size - 1]


def test_objects(rank: int, size: int) -> None:
    assert hvd.broadcast_object({"rank": rank}, size - 1) == {"rank": size - 1}
    assert hvd.broadcast_object_fn(0)(rank) == 0
    assert hvd.allgather_object(rank) == list(range(size))


# ---- batch normalization -----------------------------------------------------------------------------------


def test_batch_normalization(rank: int, size: int) -> None:
    """Batches of different sizes, as the ordinary layer on all of them; also its gradient. Names may differ:
    Keras makes them of the number of layers that this rank has."""
    with pytest.raises(ValueError, match="fused"):
        hvd.SyncBatchNormalization(fused=True)
    data = [np.random.default_rng(r).normal(size=(2 + r, 3, 4)).astype(np.float32) + r for r in range(size)]
    ours, alone = hvd.SyncBatchNormalization(name=f"of_{rank}"), tf.keras.layers.BatchNormalization()

    def run(layer: Any, x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(tf.sin(y))
        return y, tape.gradient(loss, x)

    y, gradient = run(ours, tf.constant(data[rank]))
    expected, slope = run(alone, tf.constant(np.concatenate(data)))
    start = sum(len(each) for each in data[:rank])
    mine = slice(start, start + len(data[rank]))
    assert np.allclose(y, expected[mine], atol=1e-4) and np.allclose(gradient, slope[mine], atol=1e-4)
    assert np.allclose(ours.moving_mean, alone.moving_mean, atol=1e-5)
    assert np.allclose(ours(data[rank], training=False), alone(data[rank], training=False), atol=0.1)
    _, gradient = tf.function(run)(ours, tf.constant(data[rank]))
    assert np.allclose(gradient, slope[mine], atol=1e-4)


# ---- paths that libraries import from ----------------------------------------------------------------------


def test_module_paths() -> None:
    import horovod.tensorflow.compression
    import horovod.tensorflow.sync_batch_norm

    for name in (
        "allgather",
        "alltoall",
        "broadcast",
        "rank",
        "size",
        "rank_op",
        "size_op",
        "Average",
        "init",
    ):
        assert getattr(hvd.mpi_ops, name) is getattr(hvd, name) is getattr(mpi_ops, name)
    for name in ("broadcast_variables", "broadcast_object", "broadcast_object_fn", "allgather_object"):
        assert getattr(functions, name) is getattr(hvd, name)
    assert horovod.tensorflow.compression.Compression is hvd.Compression
    assert horovod.tensorflow.sync_batch_norm.SyncBatchNormalization is hvd.SyncBatchNormalization
    assert util._executing_eagerly() and hvd._executing_eagerly() and mpi_ops._executing_eagerly()
    variable = tf.Variable(1.0)
    assert util.refs_to_vars(util.vars_to_refs([variable]))[0] is variable
    assert float(hvd._allreduce(1.0, op=hvd.Max)) == 1.0
    assert float(util._make_subgraph(lambda: tf.constant(2.0))()) == 2.0
