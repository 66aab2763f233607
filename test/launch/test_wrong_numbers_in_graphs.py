"""A NaN in compiled programs of JAX and TensorFlow, which may leave out a step that overflows."""

from __future__ import annotations

import importlib.util
import re
import textwrap

import pytest
from conftest import Launcher

# Each trains two parameters for `steps` steps. "nan": the loss of rank 1 is NaN at step 12. "scale": with a
# dynamic loss scale, which starts far too high and grows every 10 steps.
IMPORT_JAX = """
import jax, jax.numpy as jnp, optax
import horovod.jax as hvd
"""
JAX = """
params = {"weight": jnp.ones(4), "bias": jnp.zeros(())}
inner = optax.apply_if_finite(optax.sgd(0.01), 1000) if what == "scale" else optax.sgd(0.01)
optimizer = hvd.DistributedOptimizer(inner) if how == "optimizer" else optax.sgd(0.01)
state, scale = optimizer.init(params), jnp.float32(2.0**30 if what == "scale" else 1)

def loss_of(params, x, wrong, scale):
    loss = jnp.square(x @ params["weight"] + params["bias"] - x.sum(1) - 1).mean()
    return (loss * jnp.where(wrong, jnp.nan, 1.0)).astype(jnp.float16) * scale.astype(jnp.float16)

differentiate = jax.value_and_grad if how == "optimizer" else hvd.value_and_grad

@jax.jit
def step(params, state, x, wrong, scale, count):
    _, gradients = differentiate(loss_of)(params, x, wrong, scale)
    updates, after = optimizer.update(jax.tree.map(lambda g: g / scale, gradients), state, params)
    changed = optax.apply_updates(params, updates)
    if what == "nan":
        return changed, after, scale
    if how == "optimizer":
        finite = after.last_finite
    else:  # as jmp does
        finite = jnp.stack([jnp.isfinite(each).all() for each in jax.tree.leaves(gradients)]).all()
        changed = jax.tree.map(lambda new, old: jnp.where(finite, new, old), changed, params)
    scale = jnp.where(finite, jnp.where(count % 10 == 0, scale * 2.0**10, scale), scale / 2)
    return changed, after, scale

key = jax.random.key(hvd.rank())
for count in range(1, steps + 1):
    x = jax.random.normal(jax.random.fold_in(key, count), (8, 4))
    wrong = what == "nan" and count == 12 and hvd.rank() == 1
    params, state, scale = step(params, state, x, wrong, scale, count)
finite = all(jnp.isfinite(each).all() for each in jax.tree.leaves(params))
"""
IMPORT_TENSORFLOW = """
import keras, tensorflow as tf
import horovod.tensorflow as hvd
"""
TENSORFLOW = """
keras.utils.set_random_seed(1)
scaled = what == "scale"
model = keras.Sequential([keras.layers.Dense(1, dtype="mixed_float16" if scaled else "float32")])
model.build((None, 4))
optimizer = keras.optimizers.SGD(0.01)
if how == "keras":
    optimizer = hvd.DistributedOptimizer(optimizer)
if scaled:
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer, 2.0**30, dynamic_growth_steps=10)
optimizer.build(model.trainable_variables)

@tf.function
def step(x, wrong):
    tape = tf.GradientTape()
    with tape:
        loss = tf.reduce_mean(tf.square(tf.cast(model(x), tf.float32) - tf.reduce_sum(x, 1, keepdims=True)))
        loss = optimizer.scale_loss(loss * tf.where(wrong, float("nan"), 1.0))
    if how == "tape":
        tape = hvd.DistributedGradientTape(tape)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

for count in range(1, steps + 1):
    step(tf.random.normal((8, 4)), tf.constant(what == "nan" and count == 12 and hvd.rank() == 1))
finite = all(bool(tf.reduce_all(tf.math.is_finite(each))) for each in model.trainable_variables)
"""
END = """
metrics = hvd.metrics(flat=True)
counted, wrong = (int(metrics["horovod/" + name]) for name in ("steps", "nonfinite_tensors"))
print(how, what, "finite", finite, "steps", counted, "wrong", wrong, flush=True)
hvd.shutdown()
"""
PROGRAMS = {"jax": (IMPORT_JAX, JAX), "tensorflow": (IMPORT_TENSORFLOW, TENSORFLOW)}


def program_of(framework: str, how: str) -> str:
    """Two lives of one job, as importing the framework takes longest."""
    imports, body = PROGRAMS[framework]
    lives = f'for how, what, steps in (({how!r}, "scale", 100), ({how!r}, "nan", 42)):\n    hvd.init()\n'
    return imports + lives + textwrap.indent(body + END, "    ")


@pytest.mark.parametrize(
    ("framework", "how"),
    [("jax", "gradients"), ("jax", "optimizer"), ("tensorflow", "tape"), ("tensorflow", "keras")],
)
def test_a_nan_is_named_and_a_loss_scale_is_no_alarm(launcher: Launcher, framework: str, how: str) -> None:
    if importlib.util.find_spec(framework) is None or importlib.util.find_spec("optax") is None:
        pytest.skip(f"{framework} is not installed")
    done = launcher.run("-np", "2", *launcher.python(program_of(framework, how)), seconds=240)
    assert done.returncode == 0, done.stderr
    found = [line for line in (done.stdout + done.stderr).splitlines() if "in this rank's input" in line]
    assert len(found) == 1, found  # and none of the loss scale
    match = re.search(r"\[(\d)\]: NaN in .* of (\S.*) at step (\d+), before it was reduced", found[0])
    assert match and match[1] == "1" and abs(int(match[3]) - 12) <= 1, found
    assert done.stdout.count("nan finite False") == done.stdout.count("scale finite True") == 2
    numbers = [
        (int(steps), int(wrong))
        for steps, wrong in re.findall(r"scale finite True steps (\d+) wrong (\d+)", done.stdout)
    ]
    if how == "keras":  # a step that is left out is neither reduced nor counted
        assert all(steps < 90 and wrong == 0 for steps, wrong in numbers)
    else:
        assert all(steps == 100 and wrong > 20 for steps, wrong in numbers)
