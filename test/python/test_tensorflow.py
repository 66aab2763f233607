"""horovod.tensorflow's collectives: eager, in tf.function and in graphs of TensorFlow 1, with gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import horovod  # noqa: E402
import horovod.tensorflow as hvd  # noqa: E402
from horovod import _core  # noqa: E402

TYPES = [name for name in _core.dtypes if hasattr(tf, name)]
on_several_ranks = pytest.mark.skipif(horovod.size() == 1, reason="one rank can't disagree with itself")


def eagerly(function: Callable[..., Any], *arrays: Any) -> Any:
    return tf.nest.map_structure(np.asarray, function(*map(tf.constant, arrays)))


def traced(function: Callable[..., Any], *arrays: Any) -> Any:
    """Without static shapes, so that nothing depends on them."""
    specs = [tf.TensorSpec([None] * np.ndim(array), tf.constant(array).dtype) for array in arrays]
    graph = tf.function(function, input_signature=specs)
    return tf.nest.map_structure(np.asarray, graph(*map(tf.constant, arrays)))


def in_session(function: Callable[..., Any], *arrays: Any) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = [tf.compat.v1.placeholder(tf.constant(array).dtype, np.shape(array)) for array in arrays]
        outputs = function(*inputs)
        return session.run(outputs, dict(zip(inputs, arrays, strict=True)))


WAYS = pytest.mark.parametrize("way", [eagerly, traced, in_session])


def own(rank: int, rows: int = 3) -> Any:
    return np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2) + 10 * rank


# ---- values ----------------------------------------------------------------------------------------------


@WAYS
def test_reductions(way: Any, rank: int, size: int) -> None:
    everything = np.stack([own(r) for r in range(size)])
    assert np.allclose(way(hvd.allreduce, own(rank)), everything.mean(0))
    for op, expected in [
        (hvd.Sum, everything.sum(0)),
        (hvd.Min, everything.min(0)),
        (hvd.Max, everything.max(0)),
        (hvd.Product, everything.prod(0)),
    ]:
        assert np.allclose(way(lambda x, op=op: hvd.allreduce(x, op=op, name="typed"), own(rank)), expected)
    scaled = way(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=0.5),
        own(rank).astype(np.float64),
    )
    assert np.allclose(scaled, everything.astype(np.float64).sum(0) / 6, rtol=1e-15)
    small = way(lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16), own(rank))
    assert small.dtype == np.float32 and np.allclose(small, everything.mean(0), rtol=1e-3)


@WAYS
def test_groups_of_mixed_types(way: Any, rank: int, size: int) -> None:
    def group(x: Any, y: Any) -> Any:
        return hvd.grouped_allreduce([x, y], op=hvd.Sum)

    floats, integers = way(group, own(rank), np.array([rank, 1]))
    assert np.allclose(floats, sum(own(r) for r in range(size)))
    assert integers.tolist() == [sum(range(size)), size]
    gathered = way(lambda x, y: hvd.grouped_allgather([x, y]), own(rank, rank + 1), np.array([rank]))
    assert np.allclose(gathered[0], np.concatenate([own(r, r + 1) for r in range(size)]))
    assert gathered[1].tolist() == list(range(size))
    parts = way(lambda x, y: hvd.grouped_reducescatter([x, y], op=hvd.Sum), own(rank, size), own(rank, size))
    assert np.allclose(parts, [sum(own(r, size) for r in range(size))[rank : rank + 1]] * 2)
    assert hvd.grouped_allreduce([]) == hvd.grouped_allgather([]) == hvd.grouped_reducescatter([]) == []


@WAYS
def test_rows(way: Any, rank: int, size: int) -> None:
    joined = np.concatenate([own(r, r) for r in range(size)])
    assert np.allclose(way(hvd.allgather, own(rank, rank)), joined)
    whole = np.array_split(np.mean([own(r, size + 1) for r in range(size)], 0), size)
    assert np.allclose(way(hvd.reducescatter, own(rank, size + 1)), whole[rank])
    root = size - 1
    assert np.allclose(way(lambda x: hvd.broadcast(x, root), own(rank)), own(root))
    even = np.concatenate([own(r, size)[rank : rank + 1] for r in range(size)])
    assert np.allclose(way(hvd.alltoall, own(rank, size)), even)


@WAYS
def test_alltoall_with_splits(way: Any, rank: int, size: int) -> None:
    """Rank r gives i rows to rank i, and keeps one."""
    rows = sum(range(size))
    mine, counts = way(hvd.alltoall, own(rank, rows + 1), np.arange(size, dtype=np.int32))
    assert counts.tolist() == [rank] * size and counts.dtype == np.int32
    before = sum(range(rank))
    assert np.allclose(mine, np.concatenate([own(r, rows + 1)[before : before + rank] for r in range(size)]))


@pytest.mark.two_or_three
@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype: str, rank: int, size: int) -> None:
    x = tf.cast(tf.constant([1, 0, rank % 2]), dtype)
    total = hvd.allreduce(x, op=hvd.Sum)
    assert total.dtype == x.dtype
    sums = [size, 0, size // 2]
    assert tf.cast(total, tf.float64).numpy().tolist() == [
        float(n > 0 if dtype == "bool" else n) for n in sums
    ]
    assert tf.cast(hvd.broadcast(x, 0), tf.float64).numpy().tolist() == [1, 0, 0]
    joined = tf.function(hvd.allgather)(x)
    assert tf.cast(joined, tf.float64).numpy().tolist() == [v for r in range(size) for v in (1, 0, r % 2)]


def test_scalars_empty_and_what_is_no_tensor(rank: int, size: int) -> None:
    assert float(hvd.allreduce(float(rank), op=hvd.Sum)) == sum(range(size))
    assert hvd.allreduce(tf.zeros([0, 3])).shape == (0, 3)
    assert hvd.allgather(tf.zeros([0, 3])).shape == (0, 3)
    assert hvd.allreduce(np.ones(2, np.float64)).dtype == tf.float64
    assert hvd.allreduce(tf.Variable([1.0])).numpy().tolist() == [1.0]


@WAYS
def test_slices(way: Any, rank: int, size: int) -> None:
    def reduce(values: Any, indices: Any) -> Any:
        slices = tf.IndexedSlices(values, indices, tf.constant([9, 2]))
        single = hvd.allreduce(slices, op=hvd.Average)
        assert isinstance(single, tf.IndexedSlices)
        with tf.control_dependencies([single.values]):  # a graph of TensorFlow 1 in 2.12 hangs without
            dense, listed = hvd.grouped_allreduce([values, slices], op=hvd.Sum)
        return tf.convert_to_tensor(single), dense, tf.convert_to_tensor(listed)

    expected = np.zeros((9, 2), np.float32)
    for r in range(size):
        expected[r : r + 3] += own(r)
    mean, dense, total = way(reduce, own(rank), np.arange(rank, rank + 3))
    assert np.allclose(mean, expected / size) and np.allclose(total, expected)
    assert np.allclose(dense, sum(own(r) for r in range(size)))
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))
    for options in [{"op": hvd.Adasum}, {"op": hvd.Max}, {"prescale_factor": 2.0}]:
        with pytest.raises(NotImplementedError):
            hvd.allreduce(slices, **options)


@WAYS
def test_where_this_process_stands(way: Any, rank: int, size: int) -> None:
    def stand() -> Any:
        return (
            hvd.rank_op(),
            hvd.size_op(),
            hvd.local_rank_op(),
            hvd.local_size_op(),
            hvd.process_set_included_op(),
        )

    assert [int(each) for each in way(stand)] == [rank, size, hvd.local_rank(), hvd.local_size(), 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="there is no process set 77"):
        hvd.size_op(77)


def test_process_sets(rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    alone = [hvd.add_process_set([r]) for r in range(size)] if size > 1 else [hvd.global_process_set]
    mine = alone[rank]
    for way in (eagerly, traced, in_session):
        assert np.allclose(
            way(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=mine), own(rank)), own(rank)
        )
    with tf.GradientTape() as tape:
        x = tf.Variable([1.0 + rank])
        y = hvd.allgather(x, process_set=mine) ** 2
    assert tape.gradient(y, x).numpy().tolist() == [2 * (1 + rank)]
    if size > 1:
        assert int(hvd.size_op(mine.process_set_id)) == 1
        other = alone[(rank + 1) % size]
        assert int(hvd.process_set_included_op(other.process_set_id)) == 0
        with pytest.raises(tf.errors.InvalidArgumentError, match="not a member"):
            hvd.allreduce(1.0, process_set=other)
        for each in alone:
            assert hvd.remove_process_set(each)


@WAYS
def test_join(way: Any, rank: int, size: int) -> None:
    """The last rank works on while the others have joined."""
    if rank == size - 1:
        assert np.allclose(way(lambda x: hvd.allreduce(x, op=hvd.Sum, name="late"), own(rank)), own(rank))
    assert 0 <= int(way(hvd.join)) < size


# ---- nothing folded, merged, chained or dropped ------------------------------------------------------------


def submitted() -> int:
    return sum(row[2] for row in _core.counters() if row[1] == "allreduce")


def test_every_operation_runs_each_time() -> None:
    """On a constant, twice alike, and with a result that nobody uses."""

    @tf.function
    def three() -> Any:
        constant = tf.constant([1.0])
        hvd.allreduce(constant + 1)
        return hvd.allreduce(constant) + hvd.allreduce(constant)

    before = submitted()
    for _ in range(5):
        three()
    assert submitted() - before == 15


def test_loops_and_branches(rank: int, size: int) -> None:
    @tf.function
    def loop(x: Any) -> Any:
        for i in tf.range(5):
            x = hvd.allreduce(x, op=hvd.Sum) if i % 2 == 0 else x / tf.cast(hvd.size_op(), x.dtype)
        return x

    assert np.allclose(loop(tf.constant([1.0 + rank])), sum(range(1, size + 1)) * (size**0))
    parallel = tf.function(lambda x: tf.map_fn(hvd.allreduce, x, parallel_iterations=10))
    assert np.allclose(parallel(tf.ones([20, 3])), 1)


def test_saved_models(tmp_path: Any, rank: int, size: int) -> None:
    module = tf.Module()
    module.reduce = tf.function(
        lambda x: hvd.allreduce(x, op=hvd.Sum), input_signature=[tf.TensorSpec([None])]
    )
    tf.saved_model.save(module, str(tmp_path / str(rank)))
    again = tf.saved_model.load(str(tmp_path / str(rank)))
    assert again.reduce(tf.ones([2])).numpy().tolist() == [size, size]


# ---- gradients -------------------------------------------------------------------------------------------


def cases(rank: int, size: int) -> dict[str, tuple[Callable[[Any], Any], Any]]:
    """Each collective, and its gradient where the incoming one is the rank's number plus one."""
    mean, shape = (size + 1) / 2, (size, 2)
    return {
        "sum": (lambda x: hvd.allreduce(x, op=hvd.Sum), np.full(shape, mean * size)),
        "average": (hvd.allreduce, np.full(shape, mean)),
        "group": (lambda x: hvd.grouped_allreduce([x, x], op=hvd.Sum)[0], np.full(shape, mean * size)),
        "gather": (hvd.allgather, np.full(shape, mean)),
        "gathers": (lambda x: hvd.grouped_allgather([x, x])[1], np.full(shape, mean)),
        "root": (lambda x: hvd.broadcast(x, 0), np.full(shape, mean * (rank == 0))),
        "scatter": (
            lambda x: hvd.reducescatter(x, op=hvd.Sum, postscale_factor=2.0),
            np.repeat(np.arange(1.0, size + 1)[:, None], 2, 1) * 2 * size,
        ),
        "exchange": (hvd.alltoall, np.repeat(np.arange(1.0, size + 1)[:, None], 2, 1)),
        "splits": (
            lambda x: hvd.alltoall(x, [1] * (size - 1) + [0])[0],
            np.repeat((np.arange(1.0, size + 1) * (np.arange(size) < size - 1))[:, None], 2, 1),
        ),
    }


@pytest.mark.two_or_three
@WAYS
@pytest.mark.parametrize("name", cases(0, 1))
def test_gradients(way: Any, name: str, rank: int, size: int) -> None:
    operation, expected = cases(rank, size)[name]

    def gradient(x: Any) -> Any:
        if way is in_session:
            y = operation(x)
            return tf.gradients(y, x, tf.ones_like(y) * (rank + 1.0))[0]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = operation(x)
        return tape.gradient(y, x, tf.ones_like(y) * (rank + 1.0))

    assert np.allclose(way(gradient, own(rank, size)), expected)


def test_second_derivatives(size: int) -> None:
    x = tf.Variable([3.0])
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = hvd.allreduce(x**3, op=hvd.Sum)
        first = inner.gradient(y, x)
    assert outer.gradient(first, x).numpy().tolist() == [18.0 * size]


# ---- bad input -------------------------------------------------------------------------------------------


def refused(kind: type[Exception], text: str, function: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=text):
        function()


@on_several_ranks
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "function"])
def test_ranks_that_disagree(wrap: Any, rank: int) -> None:
    refused(
        tf.errors.FailedPreconditionError,
        "the ranks disagree on the shape of tensor 0",
        wrap(lambda: hvd.allreduce(tf.ones([rank + 1]), name="disagree")),
    )
    assert float(hvd.allreduce(1.0)) == 1.0


@on_several_ranks
def test_a_name_twice_in_flight(rank: int, size: int) -> None:
    """One rank after the other has the first of them in flight, as the rest have not come yet."""
    for turn in range(size):
        x, name = np.ones(1, np.float32), f"twice.{turn}"
        handle = horovod.allreduce_async(x, name=name) if rank == turn else None
        if handle:
            with pytest.raises(tf.errors.FailedPreconditionError, match="is in flight on rank"):
                hvd.allreduce(x, name=name)
        horovod.barrier()
        handle = handle or horovod.allreduce_async(x, name=name)
        assert handle.wait()[0] == 1


def test_what_can_not_be_sent(rank: int) -> None:
    invalid = tf.errors.InvalidArgumentError
    refused(invalid, "string can't be sent", lambda: hvd.allreduce(tf.constant(["a"])))
    refused(invalid, "RaggedTensor can't be sent", lambda: hvd.allgather(tf.ragged.constant([[1], [2, 3]])))
    refused(invalid, "has no dimensions; it must have rows", lambda: hvd.allgather(tf.constant(1.0)))
    refused(invalid, "has no dimensions; it must have rows", lambda: hvd.reducescatter(tf.constant(1.0)))
    refused(invalid, "splits for", lambda: hvd.alltoall(tf.ones([1]), [0] * (hvd.size() + 1)))
    refused(invalid, "splits must be integers, not float32", lambda: hvd.alltoall(tf.ones([1]), [1.0]))
    refused(ValueError, "op=Average and op=Sum only", lambda: hvd.reducescatter(tf.ones([2]), op=hvd.Max))
    refused(ValueError, "not both", lambda: hvd.allreduce(1.0, average=True, op=hvd.Sum))
    refused(RuntimeError, "broadcast_variables", lambda: hvd.broadcast_global_variables(0))


ALONE = """
import tensorflow as tf
import horovod.tensorflow as hvd

def refused(kind, text, function):
    try:
        function()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
refused(tf.errors.InvalidArgumentError, "use hvd.init().", lambda: hvd.allreduce(1.0))
refused(ValueError, "init", hvd.rank)
refused(ValueError, "init", lambda: hvd.DistributedGradientTape(tf.GradientTape()))
plain = tf.compat.v1.train.GradientDescentOptimizer(0.1)
refused(ValueError, "init", lambda: hvd.DistributedOptimizer(plain))
with tf.Graph().as_default():
    slices = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]))
    refused(ValueError, "init", lambda: hvd.allreduce(slices))
hvd.init()
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for run in (strategy.run, tf.function(strategy.run)):
    refused(ValueError, "a rank is one device", lambda: run(hvd.allreduce, (tf.ones([1]),)))
print(float(hvd.allreduce(1.0)))
hvd.shutdown()
refused(tf.errors.InvalidArgumentError, "use hvd.init().", tf.function(lambda: hvd.allreduce(1.0)))
"""


@pytest.mark.own_process
def test_before_init_and_on_several_local_devices() -> None:
    words = [sys.executable, "-c", ALONE]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    result = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and result.stdout == "1.0\n", result.stderr[-2000:]


def test_xla(size: int) -> None:
    """Refused with the setting's name; what was traced before by TensorFlow itself."""
    x = tf.ones([2])
    plain = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="compiled"))
    around = tf.function(lambda x: plain(x) + 1, jit_compile=True)
    for compiled in (tf.function(plain.python_function, jit_compile=True), around):
        refused(ValueError, "jit_compile=True", lambda compiled=compiled: compiled(x))
    assert np.allclose(plain(x), size)
    refused(tf.errors.InvalidArgumentError, "Horovod_needs_jit_compile_False", lambda: around(x))
    assert np.allclose(plain(x), size)
