"""What libraries import of horovod.tensorflow besides its public names."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
hvd = importlib.import_module("horovod.tensorflow")
eager = importlib.import_module("horovod.tensorflow.gradient_aggregation_eager")
Helper = eager.LocalGradientAggregationHelperEager
OPTIONS = ("names", "", "", hvd.Compression.none, False)


def test_basics(rank: int, size: int) -> None:
    basics = hvd.mpi_ops._basics
    assert (basics.rank(), basics.size()) == (rank, size)
    ids = hvd.allgather_object(basics._get_process_set_ids_and_ranks())
    assert ids[0][0] == list(range(size)) and all(each == ids[0] for each in ids)
    assert hvd.mpi_ops.handle_average_backwards_compatibility(None, None) == hvd.Average
    assert [hvd.mpi_ops.check_num_rank_power_of_2(n) for n in (2, 3)] == [True, False]


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "function"])
def test_functions_of_gradients(graph: bool, rank: int, size: int) -> None:
    reduce = hvd._make_allreduce_grads_fn(*OPTIONS, hvd.Average, 1.0, None)
    reduce = tf.function(reduce) if graph else reduce
    mean = (size + 1) / 2
    gradient, nothing = reduce([tf.fill([2], rank + 1.0), None])
    assert nothing is None and gradient.numpy().tolist() == [mean, mean]
    variables = [tf.Variable([1.0]), tf.Variable([2.0, 3.0])]
    reduce = hvd._make_allreduce_grads_fn(
        *OPTIONS, hvd.Sum, 1.0, [variables], process_set=hvd.global_process_set
    )
    summed = reduce([tf.fill([1], rank + 1.0), tf.fill([2], 1.0)], variables)
    assert [each.numpy().tolist() for each in summed] == [[size * mean], [size, size]]


def test_functions_of_variables(rank: int, size: int) -> None:
    variable = tf.Variable([float(rank)])
    hvd._make_broadcast_group_fn()([variable], size - 1)
    assert variable.numpy() == [size - 1]
    assert issubclass(hvd._DistributedOptimizer, hvd._LegacyOptimizer)


def test_reducescatters(rank: int, size: int) -> None:
    tensor = tf.fill([size, 2], rank + 1.0)
    total = size * (size + 1) / 2
    assert hvd.mpi_ops._reducescatter(tensor, op=hvd.Sum).numpy().tolist() == [[total] * 2]
    (one,) = hvd.mpi_ops._grouped_reducescatter([tensor], "names", hvd.Average)
    assert one.numpy().tolist() == [[total / size] * 2]


def test_gradient_of_alltoall(rank: int, size: int) -> None:
    with tf.Graph().as_default():
        _, received = hvd.alltoall(tf.fill([size, 2], float(rank)), [1] * size)
        gradients = hvd.mpi_ops._alltoall_grad(received.op.inputs[0].op, tf.ones([size, 2]), None)
        assert len(gradients) == 2 and gradients[1] is None
        with tf.compat.v1.Session() as session:
            assert session.run(gradients[0]).tolist() == [[1.0, 1.0]] * size


def test_non_members(rank: int, size: int) -> None:
    if size < 2:
        pytest.skip("several ranks show it")
    hvd.shutdown()
    first = hvd.ProcessSet([0])
    hvd.init(process_sets=[first])
    if rank:
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"rank {rank} is not a member"):
            hvd.allreduce(tf.ones(2), process_set=first)
        with (
            tf.Graph().as_default(),
            tf.compat.v1.Session() as session,
            pytest.raises(tf.errors.InvalidArgumentError, match="not a member"),
        ):
            session.run(hvd.broadcast(tf.ones(2), 0, process_set=first))
    hvd.shutdown()
    hvd.init()


def test_aggregation(rank: int, size: int) -> None:
    """Two passes, of which the second one reduces; one variable is this rank's own."""
    reduce = hvd._make_allreduce_grads_fn(*OPTIONS, hvd.Average, 1.0, None)
    helper = Helper(2, reduce, False, True, local_gradients_scaling_factor=4.0)
    variables = [tf.Variable([0.0]), tf.Variable([0.0]), tf.Variable([0.0])]
    helper.register_local_var(variables[2])
    applied: list[int] = []
    for step in range(4):
        gradients = [tf.fill([1], rank + 1.0 + step), None, tf.fill([1], 8.0)]
        found = helper.compute_gradients(gradients, variables)
        last = step % 2 == 1
        assert helper.counter.numpy() == (0 if last else 1)
        helper.apply_gradients(
            lambda step=step: applied.append(step), None, zip(found, variables, strict=True)
        )
        if last:
            first, nothing, own = found
            assert nothing is None
            assert (first.numpy(), own.numpy()) == ((size + 1) / 2 + step - 0.5, 2.0)
    assert applied == [1, 3]
    assert [*helper.locally_aggregated_grads] == [0, 2]
    with pytest.raises(ValueError, match="at least 1, not 0"):
        Helper(0, reduce, False, True)
