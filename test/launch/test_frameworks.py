"""Jobs of every framework, by one body: a rank killed in a training step, and many lives beside a thread."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import signal

import pytest
from conftest import Launcher

FULL = "HOROVOD_TEST_FULL" in os.environ
long = pytest.mark.skipif(not FULL, reason="long: HOROVOD_TEST_FULL=1")


def needs(*packages: str) -> None:
    """Skips where one is missing or too old."""
    least = {"keras": [3], "jax": [0, 6]}
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
        if package in least:
            version = re.findall(r"\d+", importlib.metadata.version(package))
            if [int(number) for number in version] < least[package]:
                pytest.skip(f"{package} is too old")


# ---- a killed rank -------------------------------------------------------------------------------------

# Of a size that JAX runs in another thread: errors stay in arrays, of which Keras reads few.
KERAS = """
import keras, numpy, horovod.keras as hvd
hvd.init()
end = hvd.shutdown
lost = Exception  # the back end's, or HorovodInternalError
layers = [keras.layers.Input((64,)), *(keras.layers.Dense(512) for _ in range(2)), keras.layers.Dense(1)]
model = keras.Sequential(layers)
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam()), "mse")
x, y = numpy.ones((8000, 64), "float32"), numpy.ones((8000, 1), "float32")

class Callback(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        die_at_20(batch)
"""
# Each gives `step`, which goes through collectives, `lost`, the exception that ends it elsewhere, and `end`.
STEPS = {
    "tensorflow": """
import tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
end = hvd.shutdown
lost = tf.errors.AbortedError

@tf.function
def reduce(x):
    for _ in range(3):
        x = tf.add_n([hvd.allreduce(x + i) for i in range(20)]) / 20
    return x

step = lambda: reduce(tf.ones([1000]))
""",
    "jax": """
import jax, jax.numpy as jnp, horovod.jax as hvd
hvd.init()
end = hvd.shutdown
lost = (jax.errors.JaxRuntimeError, ValueError)
reduce = jax.jit(lambda x: hvd.allreduce(jnp.tanh(x @ x)))
step = lambda: reduce(jnp.ones((50, 50))).block_until_ready()
""",
    "torch": """
import torch, torch.distributed as dist, horovod.torch as hvd, horovod.torch.distributed
torch.set_num_threads(1)
dist.init_process_group("horovod")
end = dist.destroy_process_group
lost = RuntimeError  # a DistBackendError that autograd may have wrapped
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
step = lambda: model(torch.randn(8, 64)).square().mean().backward()
""",
    "mxnet": """
import mxnet as mx, horovod.mxnet as hvd
hvd.init()
end = hvd.shutdown
lost = mx.base.MXNetError
net = mx.gluon.nn.Dense(10, in_units=10)
net.initialize()
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")

def step():
    with mx.autograd.record():
        loss = net(mx.nd.ones((5, 10))).sum()
    loss.backward()
    trainer.step(5)
    mx.nd.waitall()
""",
    "keras": KERAS
    + """
def step():
    model.fit(x, y, batch_size=4, verbose=0, callbacks=[Callback()])
""",
    "keras in batches": KERAS
    + """
def step():
    model.train_on_batch(x[:4], y[:4])
    model.evaluate(x[:8], y[:8], batch_size=4, verbose=0)
    model.predict(x[:4], verbose=0)
""",
}
KILLED = """
import os, signal, time

def die_at_20(i):
    if i == 20 and hvd.rank() == 1:
        print(f"KILLED {time.monotonic():.6f}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

try:
    for i in range(1000000):
        die_at_20(i)
        step()
except lost as error:
    text = str(error).replace("\\n", " ")
    print(f"RAISED {time.monotonic():.6f} {type(error).__name__} {text}", flush=True)
try:
    step()
except lost:
    print("REFUSED", flush=True)
end()
print("ENDED", flush=True)
"""


@pytest.mark.parametrize(
    ("framework", "backend", "ranks"),
    [
        ("tensorflow", "", 3),
        ("jax", "", 3),
        ("torch", "", 3),
        ("mxnet", "", 3),
        ("keras", "tensorflow", 2),
        ("keras", "jax", 2),
        pytest.param("keras in batches", "jax", 2, marks=long),
        pytest.param("keras", "torch", 2, marks=long),
        pytest.param("keras in batches", "tensorflow", 2, marks=long),
        pytest.param("keras in batches", "torch", 2, marks=long),
    ],
)
def test_a_rank_killed_in_a_step(launcher: Launcher, framework: str, backend: str, ranks: int) -> None:
    """The others raise what names it within a second, and end."""
    needs(framework.partition(" ")[0], *filter(None, [backend]))
    environment = launcher.environment(KERAS_BACKEND=backend or "tensorflow")
    words = launcher.python(STEPS[framework] + KILLED)
    result = launcher.run("-np", str(ranks), *words, env=environment)
    output = result.stdout + result.stderr
    assert result.returncode == 128 + signal.SIGKILL, output
    (killed,) = re.findall(r"KILLED ([\d.]+)", result.stdout)
    raised = re.findall(r"\[(\d)\]<stdout>: RAISED ([\d.]+) (.*)", result.stdout)
    assert sorted(int(rank) for rank, _, _ in raised) == [r for r in range(ranks) if r != 1], output
    for _, when, text in raised:
        assert re.search(r"\brank 1\b", text), text
        assert float(killed) <= float(when) < float(killed) + 1
    assert result.stdout.count("REFUSED") == result.stdout.count("ENDED") == ranks - 1, output
    assert launcher.none_alive()


# ---- many lives ----------------------------------------------------------------------------------------

# Each gives `beside`, which reduces something, by a compiled program if there is one, `reduce`, whose result
# is a number, and `refused`: what `beside` raises while there is no job, or when one ends.
LIVES = {
    "torch": """
import torch, horovod.torch as hvd
refused = (ValueError, hvd.HorovodInternalError)
beside = lambda: hvd.allreduce(torch.ones(8), name="beside")
reduce = lambda name: hvd.allreduce(torch.ones(8), op=hvd.Sum, name=name)[7]
""",
    "tensorflow": """
import tensorflow as tf, horovod.tensorflow as hvd
refused = tf.errors.OpError
function = tf.function(lambda x: hvd.allreduce(x, name="beside"))
beside = lambda: function(tf.ones([8]))
reduce = lambda name: hvd.allreduce(tf.ones([8]), op=hvd.Sum, name=name)[7]
""",
    "jax": """
import jax, jax.numpy as jnp, horovod.jax as hvd
refused = (ValueError, jax.errors.JaxRuntimeError)
program = jax.jit(lambda x: hvd.allreduce(x, name="beside"))
beside = lambda: program(jnp.ones(8)).block_until_ready()
reduce = lambda name: hvd.allreduce(jnp.ones(8), op=hvd.Sum, name=name)[7]
""",
    "mxnet": """
import mxnet as mx, horovod.mxnet as hvd
refused = (ValueError, mx.base.MXNetError)
beside = lambda: hvd.allreduce(mx.nd.ones((8,)), name="beside").wait_to_read()
reduce = lambda name: hvd.allreduce(mx.nd.ones((8,)), op=hvd.Sum, name=name)[7].asscalar()
""",
}
PROGRAM = """
import os, threading
stop, submitted = threading.Event(), 0

def submit():
    global submitted
    while not stop.is_set():
        try:
            beside()
            submitted += 1
        except refused:
            pass

thread = threading.Thread(target=submit, daemon=True)
thread.start()
for life in range(int(os.environ["LIVES"])):
    hvd.init()
    for i in range(5):
        assert reduce(f"{life}.{i}") == hvd.size()
    hvd.shutdown()
stop.set()
thread.join(60)
assert not thread.is_alive() and submitted
print("done", flush=True)
"""


@pytest.mark.timeout(1000 if FULL else 120)
@pytest.mark.parametrize("framework", LIVES)
def test_lives_of_a_job_beside_a_thread_that_submits(launcher: Launcher, framework: str) -> None:
    """20 of them; in the soak 300."""
    needs(framework)
    lives = "300" if FULL else "20"
    words = launcher.python(LIVES[framework] + PROGRAM)
    result = launcher.run(
        "-np", "2", *words, seconds=3.0 * int(lives) + 40, env=launcher.environment(LIVES=lives)
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("done") == 2
    assert launcher.none_alive()
