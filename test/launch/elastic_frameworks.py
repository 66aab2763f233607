"""Ranks of elastic jobs with TensorFlow, Keras and JAX. Their result depends on every step, and not on the
number of ranks, but for rounding.

``python elastic_frameworks.py tensorflow`` (or ``jax``, or ``torch``, for Keras on it) forks a process for
each order on stdin, see ``forked.py``. ``KILL=n`` makes a process kill itself in its n-th step, and the ranks
stop early when the file ``STOP`` exists. A process prints a line for each call of the function and each step,
and at the end the number of steps and the weights.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from forked import say, serve

import horovod

SHARES = 24  # samples of a step, which the ranks divide among themselves
FIRST = [np.arange(16.0).reshape(4, 4) / 50 - 0.1, np.arange(4.0).reshape(4, 1) / 10 - 0.1]
EPOCH = 5  # batches of an epoch of `fit`

framework = ""


def samples(step: int) -> tuple[Any, Any]:
    """This rank's part of the samples of a step."""
    generator = np.random.default_rng(step)
    x = generator.normal(size=(SHARES, 4))
    y = np.sin(x.sum(1, keepdims=True))
    return x[horovod.rank() :: horovod.size()], y[horovod.rank() :: horovod.size()]


def begins(step: int) -> None:
    """Ends this process if it is to be lost in this step."""
    if os.environ.get("KILL") == str(step):
        os.kill(os.getpid(), signal.SIGKILL)


def must_stop() -> bool:
    stop = np.array([os.path.exists(os.environ.get("STOP", ""))])
    return bool(horovod.allreduce(stop, op=horovod.Max, name="stop")[0])


def introduce() -> None:
    say("READY", os.environ.get("HOROVOD_SLOT", 0), horovod.rank(), horovod.size())


def trains(step_of: Callable[[Any, Any, Any], Any], weights_of: Callable[[Any], Any]) -> Any:
    """Returns the function of an elastic job that calls ``step_of(state, x, y)`` again and again."""

    def train(state: Any, steps: int) -> str:
        say("BEGIN", horovod.rank(), horovod.size(), state.step)
        while state.step < steps and not must_stop():
            begins(state.step)
            step_of(state, *samples(state.step))
            state.step += 1
            say("STEP", state.step)
            state.commit()
        return f"{state.step} {spelled(weights_of(state))}"

    return train


def spelled(weights: Any) -> str:
    return json.dumps([float(number) for each in weights for number in np.ravel(each)], separators=(",", ":"))


# ---- TensorFlow ----------------------------------------------------------------------------------------


def use_function(steps: int) -> None:
    """TensorFlow 2 with a function that is traced once, also for sparse gradients."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(4, "tanh", use_bias=False, dtype="float64"),
         tf.keras.layers.Dense(1, use_bias=False, dtype="float64")]
    )  # fmt: skip
    model.build((None, 4))
    model.set_weights(FIRST)
    optimizer = tf.keras.optimizers.Adam(0.01)
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float64), tf.TensorSpec([None, 1], tf.float64)])
    def step(x: Any, y: Any) -> Any:
        traces.append(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2)
        gradients = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, model.trainable_variables)
        # TensorFlow 2.12 translates this call, and knows no `strict`.
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        one = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]), tf.constant([1, 1]))
        return tf.reduce_sum(hvd.allreduce(one, op=hvd.Average, name="one").values)

    def check_step(_: Any, x: Any, y: Any) -> None:
        one = float(step(x, y))
        if abs(one - 1) > 1e-6 or len(traces) > 2:
            raise SystemExit(f"average {one} after {len(traces)} traces")

    introduce()
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)
    say("END", hvd.elastic.run(trains(check_step, lambda state: state.model.get_weights()))(state, steps))


def make_graph() -> tuple[list[Any], Callable[[Any, Any, Any], None]]:
    """Returns the weights of a model of TensorFlow 1, and a step in a session with a batch."""
    import tensorflow.compat.v1 as tf

    import horovod.tensorflow as hvd

    hvd.init()
    tf.disable_eager_execution()
    x, y = tf.placeholder(tf.float64, [None, 4]), tf.placeholder(tf.float64, [None, 1])
    weights = [tf.get_variable(f"w{i}", initializer=value) for i, value in enumerate(FIRST)]
    loss = tf.reduce_sum((tf.tanh(x @ weights[0]) @ weights[1] - y) ** 2)
    optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(0.01), op=hvd.Sum)
    train = optimizer.minimize(loss, tf.train.get_or_create_global_step())
    return weights, lambda session, own_x, own_y: session.run(train, {x: own_x, y: own_y})


def use_session(steps: int) -> None:
    """TensorFlow 1."""
    import tensorflow.compat.v1 as tf

    import horovod.tensorflow as hvd

    weights, step = make_graph()
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    session.graph.finalize()
    introduce()
    state = hvd.elastic.TensorFlowState(session=session, step=0)
    train = hvd.elastic.run(trains(lambda _, x, y: step(session, x, y), lambda _: session.run(weights)))
    say("END", train(state, steps))


def use_monitored(steps: int) -> None:
    """TensorFlow 1 with a MonitoredSession, whose hooks see each step that is made, and nothing besides."""
    import tensorflow.compat.v1 as tf

    import horovod.tensorflow as hvd

    weights, step = make_graph()
    seen, made = [], []

    class Count(tf.train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, context: Any, values: Any) -> None:
            seen.append(1)

    hooks = [hvd.BroadcastGlobalVariablesHook(0), Count(), tf.train.StepCounterHook(5, summary_writer=None)]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        introduce()
        state = hvd.elastic.TensorFlowState(session=session, step=0)

        def one_step(_: Any, x: Any, y: Any) -> None:
            step(session, x, y)
            made.append(1)

        def weights_of(_: Any) -> Any:
            *found, done = session.run([*weights, tf.train.get_global_step()])
            if done != state.step or len(seen) != len(made) + 1:
                raise SystemExit(f"{done} steps, {state.step} of the state, {len(seen)} seen of {len(made)}")
            return found

        say("END", hvd.elastic.run(trains(one_step, weights_of))(state, steps))


# ---- JAX -----------------------------------------------------------------------------------------------


def use_jit(steps: int) -> None:
    """JAX with optax; the step is compiled once, and donated what it changes."""
    import jax
    import jax.numpy as jnp
    import optax

    import horovod.jax as hvd

    jax.config.update("jax_enable_x64", True)
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optax.adam(0.01), op=hvd.Sum)
    params = [jnp.asarray(each) for each in FIRST]

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        return jnp.sum((jnp.tanh(x @ params[0]) @ params[1] - y) ** 2)

    def update(params: Any, moments: Any, x: Any, y: Any) -> Any:
        updates, moments = optimizer.update(jax.grad(loss_of)(params, x, y), moments, params)
        return optax.apply_updates(params, updates), moments

    compiled = jax.jit(update, donate_argnums=(0, 1))

    def step(state: Any, x: Any, y: Any) -> None:
        state.params, state.moments = compiled(state.params, state.moments, x, y)

    introduce()
    state = hvd.elastic.JaxState(params=params, moments=optimizer.init(params), step=0)
    say("END", hvd.elastic.run(trains(step, lambda state: state.params))(state, steps))


# ---- Keras ---------------------------------------------------------------------------------------------


def batches(epoch: int, batch: int) -> Iterator[tuple[Any, Any]]:
    """Generates this rank's batches from there on."""
    step = epoch * EPOCH + batch
    while True:
        yield samples(step)
        step += 1


def use_fit(epochs: int) -> None:
    """Keras on the back end that has been imported; ``epochs`` takes the place of steps."""
    if framework == "tensorflow":
        from tensorflow import keras

        import horovod.tensorflow.keras as hvd
    else:
        import keras

        import horovod.keras as hvd

    hvd.init()
    keras.backend.set_floatx("float64")
    layers = [keras.layers.Dense(4, "tanh", use_bias=False), keras.layers.Dense(1, use_bias=False)]
    model = keras.Sequential([keras.layers.Input((4,)), *layers])
    model.set_weights(FIRST)
    loss = keras.losses.MeanSquaredError(reduction="sum")
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), op=hvd.Sum), loss)
    introduce()
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            begins(state.epoch * EPOCH + state.batch)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            say("STEP", state.epoch * EPOCH + state.batch)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            say("EPOCH", epoch)
            if must_stop():
                model.stop_training = True

    @hvd.elastic.run
    def train(state: Any) -> str:
        say("BEGIN", horovod.rank(), horovod.size(), state.epoch * EPOCH + state.batch)
        model.fit(
            batches(state.epoch, state.batch),
            steps_per_epoch=EPOCH,
            initial_epoch=state.epoch,
            epochs=epochs,
            callbacks=[  # in an order that would be wrong if it mattered
                hvd.elastic.CommitStateCallback(state),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                Watch(),
            ],
            verbose=0,
        )
        return f"{state.epoch} {spelled(model.get_weights())}"

    say("END", train(state))


def prepare() -> None:
    """Imports what takes seconds, which forked processes then have."""
    if framework == "tensorflow":
        import tensorflow  # noqa: F401

        import horovod.tensorflow.keras
    else:
        os.environ["KERAS_BACKEND"] = framework
        with contextlib.suppress(ImportError):
            import horovod.keras  # noqa: F401


if __name__ == "__main__":
    framework = sys.argv[1]
    if framework == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
    prepare()
    programs = {"function": use_function, "session": use_session, "monitored": use_monitored}
    serve(programs | {"jit": use_jit, "fit": use_fit})
