"""horovod.mxnet: on MXNet's engine, beside NumPy, and beside one process that has all data."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import horovod

mx = pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)

import horovod.mxnet as hvd  # noqa: E402

on_several_ranks = pytest.mark.skipif(horovod.size() < 2, reason="several ranks show it")
TYPES = ("float32", "float64", "float16", "uint8", "int8", "int32", "int64")
SHAPE = (7, 3)


def own(rank: int, dtype: str = "float32", shape: tuple[int, ...] = SHAPE) -> Any:
    return mx.nd.array(values(rank, dtype, shape), dtype=dtype)


def values(rank: int, dtype: str = "float32", shape: tuple[int, ...] = SHAPE) -> Any:
    return (np.arange(np.prod(shape)).reshape(shape) % 5 + rank + 1).astype(dtype)


def of_all(size: int, dtype: str = "float32", shape: tuple[int, ...] = SHAPE) -> Any:
    return np.stack([values(r, dtype, shape) for r in range(size)])


# ---- the collectives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type(dtype: str, rank: int, size: int) -> None:
    everything = of_all(size, dtype)
    total = everything.sum(axis=0, dtype=dtype)
    x = own(rank, dtype)
    np.testing.assert_array_equal(hvd.allreduce(x, op=hvd.Sum).asnumpy(), total)
    np.testing.assert_array_equal(hvd.broadcast(x, size - 1).asnumpy(), everything[-1])
    np.testing.assert_array_equal(hvd.allgather(x).asnumpy(), everything.reshape(-1, 3))
    bounds = np.cumsum([0] + [7 // size + (r < 7 % size) for r in range(size)])
    mine = slice(bounds[rank], bounds[rank + 1])
    np.testing.assert_array_equal(hvd.reducescatter(x, op=hvd.Sum).asnumpy(), total[mine])
    np.testing.assert_array_equal(x.asnumpy(), everything[rank])
    np.testing.assert_array_equal(hvd.allreduce_(x, op=hvd.Max).asnumpy(), everything[-1])
    np.testing.assert_array_equal(x.asnumpy(), everything[-1])


def test_bool(rank: int, size: int) -> None:
    x = mx.np.array([rank == 0, False, True], dtype="bool")
    assert hvd.allreduce(x, op=hvd.Sum).asnumpy().tolist() == [True, False, True]
    assert hvd.allgather(x).asnumpy().tolist() == [
        value for r in range(size) for value in (r == 0, False, True)
    ]


def test_averages_and_factors(rank: int, size: int) -> None:
    mean = of_all(size).mean(axis=0)
    np.testing.assert_allclose(hvd.allreduce(own(rank)).asnumpy(), mean, rtol=1e-6)
    scaled = hvd.allreduce(own(rank), prescale_factor=0.5, postscale_factor=4.0)
    np.testing.assert_allclose(scaled.asnumpy(), 2 * mean, rtol=1e-6)
    with pytest.warns(DeprecationWarning, match="pass op="):
        old = hvd.allreduce(own(rank), average=False)
    np.testing.assert_allclose(old.asnumpy(), size * mean, rtol=1e-6)


def test_rows_that_differ(rank: int, size: int) -> None:
    joined = hvd.allgather(own(rank, shape=(rank + 1, 2)))
    np.testing.assert_array_equal(
        joined.asnumpy(), np.concatenate([values(r, shape=(r + 1, 2)) for r in range(size)])
    )
    splits = mx.nd.array([1 + (r + rank) % 2 for r in range(size)], dtype="int32")
    x = mx.nd.full((int(splits.sum().asscalar()), 2), rank)
    rows, received = hvd.alltoall(x, splits)
    expected = [1 + (r + rank) % 2 for r in range(size)]
    assert received.asnumpy().tolist() == expected
    assert rows.asnumpy()[:, 0].tolist() == [r for r in range(size) for _ in range(expected[r])]
    assert hvd.alltoall(mx.nd.full((size,), rank)).asnumpy().tolist() == list(range(size))


def test_numpy_arrays_of_mxnet(rank: int, size: int) -> None:
    x = mx.np.array(3.0 + rank)
    total = hvd.allreduce(x, op=hvd.Sum)
    assert isinstance(total, mx.np.ndarray)
    assert total.shape == ()
    assert float(total) == sum(3.0 + r for r in range(size))
    assert isinstance(hvd.allgather(mx.np.ones((2, 2))), mx.np.ndarray)
    assert hvd.reducescatter(mx.np.ones((1, 2)), op=hvd.Sum).shape == (int(rank == 0), 2)
    with pytest.raises(ValueError, match="array 0 has no dimensions"):
        hvd.allgather(x)


def test_groups_of_several_types(rank: int, size: int) -> None:
    arrays = [own(rank, dtype) for dtype in TYPES]
    for made in (hvd.grouped_allreduce(arrays, op=hvd.Sum), hvd.grouped_allreduce_(arrays, op=hvd.Sum)):
        for dtype, array in zip(TYPES, made, strict=True):
            assert array.dtype == np.dtype(dtype)
            np.testing.assert_array_equal(array.asnumpy(), of_all(size, dtype).sum(axis=0, dtype=dtype))
    joined = hvd.grouped_allgather([own(rank), own(rank, "int32")])
    assert [array.shape for array in joined] == [(7 * size, 3)] * 2
    parts = hvd.grouped_reducescatter([own(rank), own(rank, "int32")], op=hvd.Sum)
    assert sum(part.size for part in parts) == sum(2 * (7 // size + (r < 7 % size)) * 3 for r in [rank])
    assert hvd.grouped_allreduce([]) == []


@pytest.mark.timeout(60)
def test_a_group_of_views_of_one_array(rank: int, size: int) -> None:
    """MXNet's engine knows them by the memory that they share, and would wait for itself."""
    x = own(rank, shape=(6, 2))
    hvd.grouped_allreduce_([x[0:2], x[4:6], x], op=hvd.Sum)
    total = of_all(size, shape=(6, 2)).sum(axis=0)
    total[[0, 1, 4, 5]] *= size
    np.testing.assert_array_equal(x.asnumpy(), total)


# ---- on MXNet's engine ---------------------------------------------------------------------------------


@on_several_ranks
@pytest.mark.timeout(60)
def test_the_caller_goes_on(rank: int, size: int) -> None:
    """Rank 0 reaches the barrier though the others submit only behind it."""
    x = own(rank)
    if rank:
        horovod.barrier()
    y = hvd.allreduce(x, op=hvd.Sum, name="later") + 1
    if not rank:
        horovod.barrier()
    np.testing.assert_array_equal(y.asnumpy(), of_all(size).sum(axis=0) + 1)


def test_after_what_makes_the_array_and_before_what_uses_it(rank: int, size: int) -> None:
    x, same = mx.nd.full((300, 300), 3), mx.nd.eye(300)
    for _ in range(20):
        x = mx.nd.dot(x, same)
    hvd.allreduce_(x, op=hvd.Sum)
    x += 1
    y = hvd.broadcast_(x * (rank + 1), 0)
    np.testing.assert_array_equal(y.asnumpy(), np.full((300, 300), 3 * size + 1))


def test_arrays_may_go_before_they_are_sent(rank: int, size: int) -> None:
    results = [hvd.allreduce(mx.nd.full((1000,), i) * 2, op=hvd.Sum) for i in range(50)]
    for i, result in enumerate(results):
        assert result.asnumpy().tolist() == [2 * i * size] * 1000


def test_priorities(rank: int, size: int) -> None:
    arrays = [own(rank) for _ in range(5)]
    for i, array in enumerate(arrays):
        hvd.allreduce_(array, op=hvd.Sum, name=f"prior.{i}", priority=i)
    for array in arrays:
        np.testing.assert_array_equal(array.asnumpy(), of_all(size).sum(axis=0))


def test_what_onednn_has_laid_out_its_own_way(rank: int, size: int) -> None:
    """A convolution's result and its weight's gradient are not row-major in memory."""
    random = np.random.default_rng(3)
    x = mx.nd.array(random.normal(size=(4, 16, 12, 12)))
    weight = mx.nd.array(random.normal(size=(32, 16, 3, 3)))
    weight.attach_grad()

    def forward() -> Any:
        return mx.nd.Convolution(x * (rank + 1), weight, no_bias=True, kernel=(3, 3), num_filter=32)

    expected = mx.nd.Convolution(x, weight, no_bias=True, kernel=(3, 3), num_filter=32).asnumpy()
    expected = expected * sum(range(1, size + 1))
    np.testing.assert_allclose(hvd.allreduce(forward(), op=hvd.Sum).asnumpy(), expected, rtol=1e-3, atol=1e-3)
    y = forward()
    np.testing.assert_allclose(hvd.allreduce_(y, op=hvd.Sum).asnumpy(), expected, rtol=1e-3, atol=1e-3)
    with mx.autograd.record():
        loss = (forward() ** 2).sum()
    loss.backward()
    local = weight.grad.asnumpy()
    with mx.autograd.record():
        loss = (forward() ** 2).sum()
    loss.backward()
    hvd.allreduce_(weight.grad, op=hvd.Sum)
    total = np.asarray(horovod.allreduce(local, op=horovod.Sum))
    np.testing.assert_allclose(weight.grad.asnumpy(), total, rtol=1e-3, atol=1)


def test_process_sets(rank: int, size: int) -> None:
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    some = hvd.add_process_set([0]) if size > 1 else hvd.global_process_set
    if some.included():
        assert hvd.allreduce(mx.nd.array([5.0]), process_set=some, op=hvd.Sum).asscalar() == 5
        assert hvd.reducescatter(mx.nd.ones((2,)), process_set=some, op=hvd.Sum).shape == (2,)
    else:
        with pytest.raises(ValueError, match=f"rank {rank} is not a member"):
            hvd.allreduce(mx.nd.ones((1,)), process_set=some)
        with pytest.raises(ValueError, match=f"rank {rank} is not a member"):
            hvd.reducescatter(mx.nd.ones((9,)), process_set=some)
    assert hvd.allreduce(mx.nd.ones((1,)), op=hvd.Sum).asscalar() == size
    if size > 1:
        hvd.remove_process_set(some)


# ---- errors --------------------------------------------------------------------------------------------


@on_several_ranks
def test_ranks_that_disagree(rank: int, size: int) -> None:
    y = hvd.allreduce(mx.nd.ones((2 + rank,)), name="differs")
    with pytest.raises(mx.base.MXNetError, match=r"(?s)differs.*rank 1"):
        y.asnumpy()
    assert hvd.allreduce(mx.nd.ones((1,)), op=hvd.Sum).asscalar() == size


@on_several_ranks
def test_a_name_twice_in_flight(rank: int, size: int) -> None:
    """The second one, once the first has come to Horovod's engine."""

    def submitted() -> float:
        return hvd.metrics().get(0, {}).get("allreduce", {}).get("submitted", 0)

    if rank == 0:
        before, deadline = submitted(), time.monotonic() + 60
        first = hvd.allreduce(mx.nd.ones((1,)), name="twice", op=hvd.Sum)
        while submitted() == before:
            assert time.monotonic() < deadline, "the first one was not submitted"
            time.sleep(0.001)
        with pytest.raises(mx.base.MXNetError, match=r"allreduce\.twice is in flight on rank 0"):
            hvd.allreduce(mx.nd.ones((1,)), name="twice", op=hvd.Sum).wait_to_read()
    horovod.barrier()
    if rank:
        first = hvd.allreduce(mx.nd.ones((1,)), name="twice", op=hvd.Sum)
    assert first.asscalar() == size


def test_wrong_arguments(rank: int, size: int) -> None:
    for wrong, text in (
        (np.ones(3), "array 0 is ndarray; horovod.mxnet takes MXNet's arrays"),
        (mx.nd.ones((2, 2)).tostype("row_sparse"), r"array 0 is sparse \(row_sparse\)"),
    ):
        for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            with pytest.raises(ValueError, match=text):
                call(wrong)
    with pytest.raises(mx.base.MXNetError, match="splits"):  # and a ValueError, as above
        hvd.alltoall(mx.nd.ones((2, 2)), [size, 7])
    with pytest.raises(ValueError, match="reducescatter does op=Average and op=Sum only"):
        hvd.reducescatter(mx.nd.ones((9,)), op=hvd.Max)
    with pytest.raises(ValueError, match="both"):
        hvd.allreduce(mx.nd.ones((1,)), average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="broadcast_parameters takes a dict"):
        hvd.broadcast_parameters([mx.nd.ones((1,))])
    with pytest.raises(ValueError, match="takes an optimizer of MXNet"):
        hvd.DistributedOptimizer("sgd")
    with pytest.raises(ValueError, match="must be positive and finite, not 0"):
        hvd.DistributedOptimizer(mx.optimizer.SGD(), gradient_predivide_factor=0)
    bad_root = hvd.broadcast(mx.nd.ones((1,)), 99)
    with pytest.raises(mx.base.MXNetError, match="99"):
        bad_root.asnumpy()


def test_before_init(rank: int, size: int) -> None:
    hvd.allreduce(mx.nd.ones((1,))).wait_to_read()
    horovod.barrier()
    hvd.shutdown()
    net = mx.gluon.nn.Dense(1, in_units=1)
    net.initialize()
    for call in (
        lambda: hvd.allreduce(mx.nd.ones((1,))),
        lambda: hvd.DistributedOptimizer(mx.optimizer.SGD()),
        lambda: hvd.DistributedTrainer(net.collect_params(), "sgd"),
    ):
        with pytest.raises(ValueError, match=r"use hvd\.init\(\)\."):
            call()
    hvd.init()
    assert hvd.allreduce(mx.nd.ones((1,)), op=hvd.Sum).asscalar() == size


# ---- training ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _new_names() -> Iterator[None]:
    with mx.name.NameManager():
        yield


def network(seed: int) -> Any:
    mx.random.seed(seed)
    net = mx.gluon.nn.Sequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Conv2D(8, 3, activation="relu"), mx.gluon.nn.Dense(5, activation="tanh"))
        net.add(mx.gluon.nn.Dense(1))
    net.initialize(mx.init.Xavier())
    return net


def data(rank: int) -> tuple[Any, Any]:
    random = np.random.default_rng(100 + rank)
    return mx.nd.array(random.normal(size=(6, 2, 6, 6))), mx.nd.array(random.normal(size=(6, 1)))


def train(net: Any, trainer: Any, parts: list[tuple[Any, Any]], steps: int = 3) -> dict[str, Any]:
    x, y = (mx.nd.concat(*column, dim=0) for column in zip(*parts, strict=True))
    for _ in range(steps):
        with mx.autograd.record():
            loss = ((net(x) - y) ** 2).sum()
        loss.backward()
        trainer.step(len(x))
    mx.nd.waitall()  # MXNet does not order what changes the layout of weights with asnumpy
    return {name: parameter.data().asnumpy() for name, parameter in net.collect_params().items()}


OPTIMIZERS = {
    "sgd": {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.01},
    "nag": {"learning_rate": 0.05, "momentum": 0.9},
    "rmsprop": {"learning_rate": 0.01},
    "adagrad": {"learning_rate": 0.05},
}
STYLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "groups": {"num_groups": 2},
    "more groups than gradients": {"num_groups": 99},
    "predivided": {"gradient_predivide_factor": 4.0},
    "prefix": {"prefix": "second."},
}
CASES = [(name, "plain") for name in OPTIMIZERS] + [("sgd", style) for style in STYLES if style != "plain"]


@pytest.mark.parametrize(("optimizer", "style"), CASES)
def test_a_trainer_as_one_process_with_all_data(optimizer: str, style: str, rank: int, size: int) -> None:
    parts = [data(r) for r in range(size)]
    reference = network(1)
    reference(parts[0][0])
    expected = train(
        reference, mx.gluon.Trainer(reference.collect_params(), optimizer, OPTIMIZERS[optimizer]), parts
    )
    net = network(1 + rank)  # broadcast when the first forward pass has found the shapes
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    net(parts[0][0])
    trainer = hvd.DistributedTrainer(net.collect_params(), optimizer, OPTIMIZERS[optimizer], **STYLES[style])
    actual = train(net, trainer, [parts[rank]])
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("style", ["plain", "groups"])
def test_a_trainer_counts_steps(style: str, counted_steps: Any, rank: int) -> None:
    net = network(1)
    net(data(rank)[0])
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", **STYLES[style])
    assert counted_steps(lambda: train(net, trainer, [data(rank)], 4)) == 4


def test_two_trainers_make_one_step(counted_steps: Any, rank: int) -> None:
    """A generator and a critic without a prefix, of which the critic is updated twice a step at last."""
    nets = [network(1), network(2)]
    x, y = data(rank)
    trainers = []
    for net in nets:
        net(x)
        trainers.append(hvd.DistributedTrainer(net.collect_params(), "sgd"))

    def update(which: int) -> None:
        train(nets[which], trainers[which], [(x, y)], 1)

    def alternate(times: int) -> None:
        for _ in range(4):
            update(0)
            for _ in range(times):
                update(1)

    assert counted_steps(lambda: alternate(1)) == 4
    assert counted_steps(lambda: alternate(2)) == 8


@pytest.mark.parametrize("together", [False, True])
def test_an_optimizer_counts_steps(together: bool, counted_steps: Any) -> None:
    """Also one that is given each of many parameters by itself."""
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.1))
    weights = [mx.nd.ones((2,)) for _ in range(40)]
    states = [optimizer.create_state(i, weight) for i, weight in enumerate(weights)]

    def train() -> None:
        for _ in range(4):
            if together:
                optimizer.update([*range(40)], weights, [weight.copy() for weight in weights], states)
                continue
            for i, weight in enumerate(weights):
                optimizer.update(i, weight, weight.copy(), states[i])
        mx.nd.waitall()

    assert counted_steps(train) == 4


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16])
def test_compression(compression: Any, rank: int, size: int) -> None:
    net = network(1)
    x = data(rank)[0]
    net(x)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", compression=compression)
    with mx.autograd.record():
        loss = net(x).sum()
    loss.backward()
    parameters = list(net.collect_params().values())
    local = [np.asarray(horovod.allreduce(p.grad().asnumpy(), op=horovod.Sum)) for p in parameters]
    trainer.allreduce_grads()
    for parameter, total in zip(parameters, local, strict=True):
        tolerance = 1e-6 if compression is hvd.Compression.none else 1e-2
        np.testing.assert_allclose(parameter.grad().asnumpy(), total, rtol=tolerance, atol=10 * tolerance)


def test_an_optimizer_in_a_module(rank: int, size: int) -> None:
    """The symbolic style, as one process with all data."""
    parts = [data(r) for r in range(size)]

    def fit(parts: list[tuple[Any, Any]], distributed: bool) -> dict[str, Any]:
        x, y = (np.concatenate([each.asnumpy() for each in column]) for column in zip(*parts, strict=True))
        out = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="one")
        out = mx.sym.FullyConnected(mx.sym.tanh(out), num_hidden=1, name="two")
        out = mx.sym.LinearRegressionOutput(out, mx.sym.Variable("label"), name="out")
        module = mx.mod.Module(out, data_names=["data"], label_names=["label"])
        batches = mx.io.NDArrayIter(x, y, batch_size=len(x), label_name="label")
        module.bind(batches.provide_data, batches.provide_label)
        mx.random.seed(3 + rank)
        module.init_params(mx.init.Xavier())
        arguments, auxiliary = module.get_params()
        hvd.broadcast_parameters(arguments)
        module.set_params(arguments, auxiliary)
        optimizer = mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9, rescale_grad=1 / len(x))
        if distributed:
            optimizer = hvd.DistributedOptimizer(optimizer, num_groups=2)
        module.init_optimizer(kvstore=None, optimizer=optimizer)
        for _ in range(3):
            batches.reset()
            module.forward_backward(next(batches))
            module.update()
        return {name: value.asnumpy() for name, value in module.get_params()[0].items()}

    expected, actual = fit(parts, False), fit([parts[rank]], True)
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_wrapped_optimizer_is_the_optimizer(rank: int, size: int) -> None:
    inner = mx.optimizer.create("sgd", learning_rate=0.5, momentum=0.1, multi_precision=True)
    wrapped = hvd.DistributedOptimizer(inner)
    assert isinstance(wrapped, mx.optimizer.Optimizer)
    assert wrapped.rescale_grad == inner.rescale_grad == 1 / size
    wrapped.set_learning_rate(0.25)
    wrapped.rescale_grad = 0.125
    assert (inner.learning_rate, inner.rescale_grad, wrapped.momentum) == (0.25, 0.125, 0.1)
    copy = pickle.loads(pickle.dumps(wrapped))
    assert isinstance(copy, hvd.DistributedOptimizer)
    assert copy.learning_rate == 0.25
    weight = mx.nd.ones((2,), dtype="float16")
    wrapped.rescale_grad = 1 / size
    update = mx.optimizer.get_updater(wrapped)
    update(0, mx.nd.full((2,), rank + 1, dtype="float16"), weight)
    mean = sum(range(1, size + 1)) / size
    np.testing.assert_allclose(weight.asnumpy(), np.full(2, 1 - 0.25 * mean), rtol=1e-3)
    with pytest.raises(ValueError, match="wrapped before"):
        hvd.DistributedOptimizer(wrapped)
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize()
    with pytest.warns(UserWarning, match="takes the optimizer inside"):
        trainer = hvd.DistributedTrainer(net.collect_params(), wrapped)
    assert trainer._optimizer is inner
    assert trainer._scale == 1 / size


def test_parameters_and_objects(rank: int, size: int) -> None:
    net = network(1 + rank)
    net(data(0)[0])
    hvd.broadcast_parameters(net.collect_params(), root_rank=size - 1, prefix="model.")
    for parameter in net.collect_params().values():
        gathered = hvd.allgather_object(parameter.data().asnumpy().tobytes())
        assert len(set(gathered)) == 1
    arrays = {"b": mx.nd.full((2,), rank), "a": mx.nd.full((3,), rank)}
    hvd.broadcast_parameters(arrays, root_rank=0)
    assert [arrays[name].asnumpy().tolist() for name in "ab"] == [[0] * 3, [0] * 2]
    assert hvd.broadcast_object({"rank": rank}, root_rank=size - 1) == {"rank": size - 1}


def test_two_devices_of_one_rank_are_refused(rank: int) -> None:
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    with pytest.raises(ValueError, match="is on 2 devices, but a rank is one device"):
        hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")
    for context in (mx.cpu(0), mx.cpu(1)):
        with mx.autograd.record():
            loss = net(mx.nd.ones((1, 2), ctx=context))
        loss.backward()
    with pytest.raises(ValueError, match="is on 2 devices"):
        trainer.step(1)


def test_module_paths() -> None:
    import horovod.mxnet.functions
    import horovod.mxnet.mpi_ops

    assert horovod.mxnet.mpi_ops.allreduce is hvd.allreduce
    assert horovod.mxnet.functions.broadcast_object is hvd.broadcast_object
    assert set(itertools.chain(hvd.mpi_ops.__all__)) <= set(dir(hvd))
