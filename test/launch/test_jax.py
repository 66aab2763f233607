"""Jobs of horovod.jax that end early: other programs, several local devices, operations in flight."""

from __future__ import annotations

import signal
import sys

import pytest
from conftest import DEADLINE, Launcher, wait_until

pytest.importorskip("jax", reason="JAX is not installed")

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


OTHER_PROGRAMS = """
import jax, jax.numpy as jnp, horovod.jax as hvd
hvd.init()
programs = [
    jax.jit(lambda x: hvd.allreduce(x)),
    jax.jit(lambda x: hvd.allreduce(x)),
]
programs[hvd.rank()](jnp.ones(3)).block_until_ready()
"""


def test_ranks_that_run_other_programs(launcher: Launcher) -> None:
    """They wait for each other; the report has the line that each is at."""
    program, said = launcher.folder / "program.py", launcher.folder / "stderr"
    program.write_text(OTHER_PROGRAMS)
    words = ["-np", "2", "--stall-check-warning-time-seconds", "0.5", sys.executable, str(program)]
    with said.open("w") as file:
        process = launcher.start(*words, stderr=file)
    wanted = [f"  rank {rank}: allreduce.program.py:{line}#" for rank, line in ((0, 6), (1, 5))]
    assert wait_until(lambda: all(text in said.read_text() for text in wanted)), said.read_text()
    process.terminate()
    assert process.wait(DEADLINE) == 128 + signal.SIGTERM
    assert launcher.none_alive()


LOCAL_DEVICES = """
import jax, jax.numpy as jnp, horovod.jax as hvd
hvd.init()
mesh, spec = jax.sharding.Mesh(jax.devices(), ("local",)), jax.sharding.PartitionSpec("local")
jax.jit(jax.shard_map(hvd.allreduce, mesh=mesh, in_specs=spec, out_specs=spec))(jnp.ones(4))
"""


def test_several_local_devices(launcher: Launcher) -> None:
    environment = launcher.environment(XLA_FLAGS="--xla_force_host_platform_device_count=2")
    result = launcher.run(
        "-np", "2", "--grace-seconds", "30", *launcher.python(LOCAL_DEVICES), env=environment
    )
    assert result.returncode == 1, result.stderr
    for rank in (0, 1):
        text = f"[{rank}]<stderr>: ValueError: horovod.jax: rank {rank} runs this program on 2 local devices"
        assert result.stderr.count(text) == 1, result.stderr
    assert "Fatal" not in result.stderr
    assert launcher.none_alive()
