"""Jobs of horovod.jax that end early: a killed rank, and operations in flight at the end."""

from __future__ import annotations

import pytest
from conftest import Launcher

pytest.importorskip("jax", reason="JAX is not installed")

KILLED = """
import os, signal, jax, jax.numpy as jnp, horovod.jax as hvd
hvd.init()
step = jax.jit(lambda x: hvd.allreduce(jnp.tanh(x @ x)))
x = jnp.ones((50, 50))
for i in range(1000000):
    if hvd.rank() == 1 and i == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        x = step(x).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print(i, str(error).splitlines()[0], flush=True)
        raise SystemExit(9)
"""


def test_a_killed_rank_is_an_error_in_jit(launcher: Launcher) -> None:
    result = launcher.run("-np", "3", *launcher.python(KILLED))
    assert result.returncode == 128 + 9, result.stderr
    for rank in (0, 2):
        assert f"[{rank}]<stdout>: 20 ABORTED: " in result.stdout, result.stdout + result.stderr
    assert result.stdout.count("rank 1") == 2
    assert launcher.none_alive()


IN_FLIGHT = """
import jax, jax.numpy as jnp, horovod.jax as hvd
hvd.init()
step = jax.jit(lambda x: [hvd.allreduce(x * i) for i in range(20)])
for i in range(20):
    sums = step(jnp.full(100000, 1.0))
"""


def test_the_end_with_operations_in_flight(launcher: Launcher) -> None:
    result = launcher.run("-np", "2", *launcher.python(IN_FLIGHT))
    assert result.returncode == 0, result.stderr
    assert launcher.none_alive()
