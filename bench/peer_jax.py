"""Compiled JAX programs with collectives, timed as bench/protocol.c does.

    horovodrun -np N python bench/peer_jax.py horovod|gloo SECONDS RESULTS CASE...

gloo: JAX's own collectives (lax.psum under shard_map) among the same processes.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from timing import Work, time_of_call

DEADLINE = 60.0  # until rank 0 has published where the ranks meet


class HorovodPeer:
    """horovod.jax."""

    def __init__(self, folder: Path) -> None:
        import horovod.jax as hvd

        hvd.init()
        self.hvd, self.rank = hvd, hvd.rank()
        self.array = jnp.asarray

    def program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(function)

    def sum(self, array: Any) -> Any:
        return self.hvd.allreduce(array, op=self.hvd.Sum)

    def barrier(self) -> None:
        self.hvd.barrier()

    def largest(self, value: float) -> float:
        return float(self.hvd.allreduce(value, op=self.hvd.Max, name="largest"))

    def close(self) -> None:
        self.hvd.shutdown()


class GlooPeer:
    """What JAX has itself: one program on the devices of all processes."""

    def __init__(self, folder: Path) -> None:
        self.rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(meeting_point(folder, self.rank), size, self.rank)
        self.spec = jax.sharding.PartitionSpec("ranks")
        self.mesh = jax.sharding.Mesh(jax.devices(), ("ranks",))
        self.most = self.program(lambda x: jax.lax.pmax(x, "ranks"))

    def array(self, part: Any) -> Any:
        """The ranks' parts as one array."""
        sharding = jax.sharding.NamedSharding(self.mesh, self.spec)
        return jax.make_array_from_process_local_data(sharding, part)

    def program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(
            jax.shard_map(function, mesh=self.mesh, in_specs=self.spec, out_specs=self.spec, check_vma=False)
        )

    def sum(self, array: Any) -> Any:
        return jax.lax.psum(array, "ranks")

    def barrier(self) -> None:
        self.largest(0)

    def largest(self, value: float) -> float:
        most = self.most(self.array(np.full(1, value, "float32")))
        return float(most.addressable_data(0)[0])

    def close(self) -> None:
        """Leaves when all are here; the end of the interpreter would end the job of the others."""
        self.barrier()
        jax.distributed.shutdown()


def meeting_point(folder: Path, rank: int) -> str:
    """Of JAX's ranks; rank 0 chooses the port."""
    path = folder / "coordinator"
    if rank == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            (folder / "port").write_text(f"127.0.0.1:{probe.getsockname()[1]}")
        (folder / "port").rename(path)
    deadline = time.monotonic() + DEADLINE
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 has not written {path}")
        time.sleep(0.01)
    return path.read_text()


def make_work(peer: HorovodPeer | GlooPeer, what: str, bytes_each: int) -> Work:
    """`empty`: a program without a collective; `allreduce`: with one; `many`: with 50 independent ones."""
    array = peer.array(np.zeros(bytes_each // 4, "float32"))
    if what == "many":
        arrays = [array + i for i in range(50)]
        program = peer.program(lambda each: [peer.sum(x) for x in each])
        return lambda: jax.block_until_ready(program(arrays))
    program = peer.program(peer.sum if what == "allreduce" else jnp.negative)
    return lambda: program(array).block_until_ready()


def main() -> None:
    """Measures every case."""
    library, seconds, folder, *cases = sys.argv[1:]
    peer = {"horovod": HorovodPeer, "gloo": GlooPeer}[library](Path(folder))
    with (Path(folder) / str(peer.rank)).open("w") as results:
        for case in cases:
            what, count = case.split(":")
            time_of_one = time_of_call(peer, make_work(peer, what, int(count)), float(seconds))
            results.write(f"{case},{1e6 * time_of_one:.3f}\n")
    peer.close()


if __name__ == "__main__":
    main()
