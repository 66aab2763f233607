"""Jobs of every framework, by one body: a rank killed in a training step, and many lives beside a thread."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import signal
import socket

import pytest
from conftest import Launcher

FULL = "HOROVOD_TEST_FULL" in os.environ
TIMEOUT_SECONDS = 30  # after which a silent rank counts as lost
ALL_OF_KERAS = FULL or os.environ.get("HOROVOD_TEST_KERAS") == "all"


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


def has_keras_2() -> bool:
    try:
        is_older = importlib.metadata.version("keras").startswith("2")
    except importlib.metadata.PackageNotFoundError:
        return False
    return is_older or os.environ.get("TF_USE_LEGACY_KERAS") == "1"


# ---- a killed rank -------------------------------------------------------------------------------------

# Of a size that JAX runs in another thread: errors stay in arrays, of which Keras reads few.
KERAS = """
import numpy
hvd.init()
end = hvd.shutdown
lost = Exception  # the back end's, or HorovodInternalError
layers = [keras.layers.Input((64,)), *(keras.layers.Dense(512) for _ in range(2)), keras.layers.Dense(1)]
model = keras.Sequential(layers)
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam()), "mse")
x, y = numpy.ones((8000, 64), "float32"), numpy.ones((8000, 1), "float32")

class Dies(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        die_at_20(batch)

    on_test_batch_begin = on_predict_batch_begin = on_train_batch_begin

class DiesInCallback(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        die_at_20(epoch)

class Averages(keras.callbacks.Callback):
    def on_test_batch_end(self, batch, logs=None):
        hvd.allreduce(numpy.ones(3, "float32"), name=f"average {batch}")

    on_predict_batch_end = on_test_batch_end
"""
KERAS_3 = "import keras, horovod.keras as hvd" + KERAS
KERAS_2 = "from tensorflow import keras\nimport horovod.tensorflow.keras as hvd" + KERAS
METHODS = {
    "fit": "model.fit(x, y, batch_size=4, verbose=0, callbacks=[Dies()])",
    "train_on_batch": "model.train_on_batch(x[:4], y[:4])",
    "evaluate": "model.evaluate(x, y, batch_size=4, verbose=0, callbacks=[Dies(), Averages()])",
    "predict": "model.predict(x, batch_size=4, verbose=0, callbacks=[Dies(), Averages()])",
    "callback": """model.fit(
        x[:8], y[:8], batch_size=4, epochs=100, verbose=0,
        callbacks=[DiesInCallback(), hvd.callbacks.MetricAverageCallback()],
    )""",
}
# Each gives `step`, which goes through collectives, `lost`, the exception that ends it elsewhere, and `end`.
STEPS = {
    "numpy": """
import numpy as np, horovod as hvd
hvd.init()
end = hvd.shutdown
lost = hvd.HorovodInternalError
step = lambda: hvd.allreduce(np.ones(1000))
""",
    "torch": """
import torch, horovod.torch as hvd
torch.set_num_threads(1)
hvd.init()
end = hvd.shutdown
lost = hvd.HorovodInternalError
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01))

def step():
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
""",
    "tensorflow": """
import tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
end = hvd.shutdown
lost = tf.errors.UnknownError

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
    "torch.distributed": """
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
    **{f"keras {name}": f"{KERAS_3}\ndef step():\n    {call}\n" for name, call in METHODS.items()},
    **{f"keras 2 {name}": f"{KERAS_2}\ndef step():\n    {call}\n" for name, call in METHODS.items()},
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
    kind, failure = hvd.HorovodInternalError, hvd.failure()
    own = [each for each in (error, error.__cause__) if isinstance(each, kind)]
    for each in (failure, *own):
        print("RECORD", each.code, each.lost_rank, each.cause, each.host, flush=True)
    assert own or lost is not kind
    assert str(failure) in text, failure
try:
    step()
except lost:
    print("REFUSED", flush=True)
end()
print("ENDED", flush=True)
"""


def run_killed(launcher: Launcher, program: str, backend: str, ranks: int) -> tuple[str, float]:
    """What the job printed, and when rank 1 killed itself."""
    environment = launcher.environment(KERAS_BACKEND=backend or "tensorflow")
    # On a busy machine frameworks take long to end.
    words = ["--timeout-seconds", str(TIMEOUT_SECONDS), "--grace-seconds", "40", "-np", str(ranks)]
    result = launcher.run(*words, *launcher.python(program), env=environment)
    assert result.returncode == 128 + signal.SIGKILL, result.stdout + result.stderr
    (killed,) = re.findall(r"KILLED ([\d.]+)", result.stdout)
    assert launcher.none_alive()
    return result.stdout + result.stderr, float(killed)


def check_killed(launcher: Launcher, program: str, backend: str, ranks: int) -> None:
    """The others raise an error that names rank 1, as data too, long before silence counts; then they end."""
    output, killed = run_killed(launcher, program, backend, ranks)
    raised = re.findall(r"\[(\d)\]<stdout>: RAISED ([\d.]+) (.*)", output)
    assert sorted(int(rank) for rank, _, _ in raised) == [r for r in range(ranks) if r != 1], output
    for _, when, text in raised:
        assert re.search(r"\brank 1\b", text), text
        assert killed <= float(when) < killed + 0.7 * TIMEOUT_SECONDS
    records = re.findall(r"\[(\d)\]<stdout>: RECORD (.*)", output)
    assert {rank for rank, _ in records} == {rank for rank, _, _ in raised}, output
    assert {record for _, record in records} == {f"PEER_LOST 1 connection {socket.gethostname()}"}, output
    assert output.count("REFUSED") == output.count("ENDED") == ranks - 1, output


@pytest.mark.parametrize("framework", ["numpy", "torch", "torch.distributed", "tensorflow", "jax", "mxnet"])
def test_a_rank_killed_in_a_step(launcher: Launcher, framework: str) -> None:
    """Of NumPy and PyTorch two survive; with the others one shows what the binding does."""
    needs(framework.partition(".")[0])
    check_killed(launcher, STEPS[framework] + KILLED, "", 3 if framework in ("numpy", "torch") else 2)


SAMPLE = [("fit", "tensorflow"), ("fit", "jax")]  # the whole is for HOROVOD_TEST_KERAS=all
BACKENDS = ("tensorflow", "jax", "torch")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_rank_killed_in_keras(launcher: Launcher, method: str, backend: str) -> None:
    if not ALL_OF_KERAS and (method, backend) not in SAMPLE:
        pytest.skip("long: HOROVOD_TEST_KERAS=all")
    needs("keras", backend)
    check_killed(launcher, STEPS[f"keras {method}"] + KILLED, backend, 2)


@pytest.mark.parametrize("method", METHODS)
def test_a_rank_killed_in_keras_2(launcher: Launcher, method: str) -> None:
    if not ALL_OF_KERAS:
        pytest.skip("long: HOROVOD_TEST_KERAS=all")
    if not has_keras_2():
        pytest.skip("Keras 2 is not installed")
    check_killed(launcher, STEPS[f"keras 2 {method}"] + KILLED, "", 2)


ALONE = """
import os, signal, time

def die_at_20(i):
    if i == 20 and hvd.rank() == 1:
        print(f"KILLED {time.monotonic():.6f}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

model.predict(x[:100], batch_size=4, verbose=0)  # compiles
model.evaluate(x[:100], y[:100], batch_size=4, verbose=0, callbacks=[Dies()])
model.predict(x[:100], batch_size=4, verbose=0, callbacks=[Dies()])
print("WENT ON", flush=True)
try:
    hvd.allreduce(x[:4])
except lost as error:
    print("RAISED", str(error).replace("\\n", " "), flush=True)
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_evaluate_and_predict_alone(launcher: Launcher, backend: str) -> None:
    """They communicate in callbacks only; without callbacks a rank continues until its next collective."""
    if not ALL_OF_KERAS:
        pytest.skip("long: HOROVOD_TEST_KERAS=all")
    needs("keras", backend)
    output, _ = run_killed(launcher, KERAS_3 + ALONE, backend, 2)
    assert "[0]<stdout>: WENT ON" in output and re.search(r"RAISED.*\brank 1\b", output), output


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
