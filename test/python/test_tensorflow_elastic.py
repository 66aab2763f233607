"""States of TensorFlow for elastic jobs, and traced functions whose job gets another number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import horovod
from horovod.common import epochs

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import horovod.tensorflow as hvd  # noqa: E402


@pytest.fixture
def alone(rank: int) -> Iterator[Callable[[], None]]:
    """Makes this process a job of its own, until the test ends."""

    def begin() -> None:
        hvd.shutdown()
        hvd.init(comm=[rank])

    yield begin
    hvd.shutdown()
    hvd.init()


def after_a_reset(state: Any, holds: bool) -> None:
    """Synchronizes as if this process had just joined with a commit, or without one."""
    state._commit.holds, state._joins = holds, True
    state.sync()
    state._joins = False


def test_a_traced_function_follows_the_number_of_ranks(
    alone: Callable[[], None], rank: int, size: int
) -> None:
    """It is right among all ranks, where it was traced, and for a process that is alone afterwards."""
    weight = tf.Variable([[1.0], [2.0]])
    local = tf.Variable([3.0])
    traces = []

    @tf.function
    def average() -> Any:
        traces.append(1)
        rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([1, 2]))
        return tf.reduce_sum(hvd.allreduce(rows, op=hvd.Average, name="rows").values, 0)

    @tf.function
    def gradients(x: Any) -> Any:
        traces.append(1)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            joined = hvd.allgather(x, name="joined") * tf.constant([[1.0], [2.0]] * size)[: hvd.size_op() * 2]
            sent = hvd.broadcast(x, 0, name="sent")
            parts = hvd.reducescatter(
                tf.tile(x, [2 * size, 1])[: 2 * hvd.size_op()], op=hvd.Sum, name="parts"
            )
        return [tape.gradient(each, x) for each in (joined, sent, parts)]

    @tf.function
    def of_local() -> Any:
        traces.append(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight) + 4 * tf.reduce_sum(local)
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(local)
        return tape.gradient(loss, [local])

    def check(own: int, ranks: int) -> None:
        np.testing.assert_allclose(average(), [1, 1])
        joined, sent, parts = gradients(tf.ones([2, 1]))
        np.testing.assert_allclose(joined, [[1.0], [2.0]])
        np.testing.assert_allclose(sent, [[1.0], [1.0]] if own == 0 else [[0.0], [0.0]])
        np.testing.assert_allclose(tf.reduce_sum(parts), 2 * ranks * ranks)
        np.testing.assert_allclose(of_local()[0], [4 / ranks])

    check(rank, size)
    alone()
    check(0, 1)
    assert len(traces) == 3


def test_passes_of_a_step_are_forgotten() -> None:
    """Ranks that join an elastic job have made none of them."""
    variable = tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2, op=hvd.Sum
    )

    def one_pass(gradient: float) -> None:
        optimizer.apply_gradients(
            optimizer._accumulation.add([(tf.constant([gradient]), variable)], lambda g, _: g)
        )

    one_pass(100.0)
    for each in epochs.resettable:
        if each is optimizer._accumulation:
            each.begin_epoch()
    one_pass(1.0)
    assert variable.numpy() == 1.0
    one_pass(2.0)
    assert variable.numpy() == -2.0


def test_variables_of_all_kinds(rank: int) -> None:
    values = [np.full((2, 3), rank + 0.5), np.array(rank, np.int64), np.zeros((0, 2), np.float32)]
    variables = [tf.Variable(each) for each in [*values, tf.constant([rank + 0.25], tf.bfloat16)]]
    state = hvd.elastic.TensorFlowState(variables, step=rank)
    state.sync()
    assert [float(tf.reduce_sum(each)) for each in variables] == [3.0, 0.0, 0.0, 0.25] and state.step == 0
    variables[0].assign_add(tf.ones([2, 3], tf.float64))
    state.step = 7
    state.restore()
    assert float(variables[0][0, 0]) == 0.5 and state.step == 0
    variables[0].assign_add(tf.ones([2, 3], tf.float64))
    memory = [each.ctypes.data for each in state._kept]
    state.commit()
    assert [each.ctypes.data for each in state._kept] == memory
    variables[0].assign(tf.zeros([2, 3], tf.float64))
    state.restore()
    assert float(variables[0][0, 0]) == 1.5


def test_other_variables_are_refused(rank: int, size: int) -> None:
    variable = tf.Variable(tf.zeros([2 + rank]), name="weight")
    state = hvd.elastic.TensorFlowState([variable])
    if size == 1:
        return
    if rank:
        with pytest.raises(ValueError, match=rf"rank {rank}: .*weight:0 is an array \[{2 + rank}\] .*\[2\]"):
            state._make_room((({}), {"variable 0": "an array [2] of float32"}))
    with pytest.raises(ValueError, match="needs variables"):
        hvd.elastic.TensorFlowState()


def test_a_session_of_tensorflow_1(rank: int) -> None:
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.get_variable("x", initializer=float(rank), dtype=tf.float32)
        tf.compat.v1.train.AdamOptimizer(0.1).minimize(x * x)
        session.run(tf.compat.v1.global_variables_initializer())
        graph.finalize()
        state = hvd.elastic.TensorFlowState(session=session, step=rank)
        after_a_reset(state, holds=rank == 0)
        assert session.run(x) == 0 and state.step == 0 and len(state.variables) > 2
        state.restore()
        assert session.run(x) == 0


def test_a_monitored_session(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hooks see steps only, and a process that joins broadcasts nothing before it has joined."""
    v1 = tf.compat.v1
    runs = []

    class Count(v1.train.SessionRunHook):  # type: ignore[misc, name-defined]
        def before_run(self, context: Any) -> None:
            runs.append(1)

    with tf.Graph().as_default():
        x = v1.get_variable("x", initializer=float(rank), dtype=tf.float32)
        step = v1.assign_add(x, 1.0)
        monkeypatch.setattr(epochs, "_planned", True)
        session = v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0), Count()])
        monkeypatch.setattr(epochs, "_planned", False)
        state = hvd.elastic.TensorFlowState(session=session, step=rank)
        after_a_reset(state, holds=rank == 0)
        session.run(step)
        state.restore()
        state.on_reset()
        assert session.run(x) == 0 and len(runs) == 2
        session.close()
        with pytest.raises(ValueError, match="its session is closed: open a MonitoredSession around"):
            state.save()


def test_passes_of_a_step_are_forgotten_in_tensorflow_1() -> None:
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.get_variable("x", initializer=1.0)
        plain = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        train = hvd.DistributedOptimizer(plain, backward_passes_per_step=2, op=hvd.Average).minimize(3 * x)
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        graph.finalize()
        state = hvd.elastic.TensorFlowState(session=session)
        session.run(train)
        state.on_reset()
        session.run(train)
        assert session.run(x) == 1
        session.run(train)
        assert session.run(x) == -5


def test_a_newcomer_takes_over_the_name_of_the_optimizer(rank: int) -> None:
    """It has a number, which counts the optimizers that have been used, and may have used fewer of them."""
    made = []
    for _ in range(2 if rank == 0 else 1):
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.build((None, 2))
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(name="numbered"))
        made.append(hvd.elastic.TensorFlowKerasState(model, optimizer))
        assert optimizer._hvd.prefix
    after_a_reset(made[-1], holds=rank == 0)
    assert len(set(horovod.allgather_object(made[-1].optimizer._hvd.prefix))) == 1
