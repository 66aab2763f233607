"""A NaN in compiled programs of JAX and TensorFlow, which may leave out a step that overflows."""

from __future__ import annotations

import importlib.util
import re

import pytest
from conftest import Launcher

# Each has two parameters and trains `steps` steps. "nan": the loss of rank 1 is NaN at step 12. "scale": a
# dynamic loss scale, which starts far too high and grows every 10 steps.
JAX = """
import sys
import jax, jax.numpy as jnp, optax
import horovod.jax as hvd

how, what, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
hvd.init()
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
TENSORFLOW = """
import sys
import keras, tensorflow as tf
import horovod.tensorflow as hvd

how, what, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
hvd.init()
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
steps, wrong = (int(metrics["horovod/" + name]) for name in ("steps", "nonfinite_tensors"))
print("finite", finite, "steps", steps, "wrong", wrong)
"""

PROGRAMS = {"jax": JAX, "tensorflow": TENSORFLOW}
STYLES = [("jax", "gradients"), ("jax", "optimizer"), ("tensorflow", "tape"), ("tensorflow", "keras")]


def run(launcher: Launcher, framework: str, how: str, what: str, steps: int) -> tuple[list[str], str]:
    """Returns the lines about wrong numbers, and what the program says at its end."""
    if importlib.util.find_spec(framework) is None or importlib.util.find_spec("optax") is None:
        pytest.skip(f"{framework} is not installed")
    program = launcher.python(PROGRAMS[framework] + END)
    done = launcher.run("-np", "2", *program, how, what, str(steps), seconds=240)
    assert done.returncode == 0, done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    return [line for line in lines if "in this rank's input" in line], done.stdout


@pytest.mark.parametrize(("framework", "how"), STYLES)
def test_nan_is_named(launcher: Launcher, framework: str, how: str) -> None:
    found, text = run(launcher, framework, how, "nan", 42)
    assert text.count("finite False") == 2
    assert len(found) == 1, found
    match = re.search(r"\[(\d)\]: NaN in .* of (\S.*) at step (\d+), before it was reduced", found[0])
    assert match and match[1] == "1" and abs(int(match[3]) - 12) <= 1, found


@pytest.mark.parametrize(("framework", "how"), STYLES)
def test_a_loss_scale_is_no_alarm(launcher: Launcher, framework: str, how: str) -> None:
    found, text = run(launcher, framework, how, "scale", 100)
    assert text.count("finite True") == 2
    assert not found
    numbers = re.findall(r"steps (\d+) wrong (\d+)", text)
    if how == "keras":  # a step that is left out is neither reduced nor counted
        assert all(int(steps) < 90 and wrong == "0" for steps, wrong in numbers)
    else:
        assert all(int(steps) == 100 and int(wrong) > 20 for steps, wrong in numbers)
