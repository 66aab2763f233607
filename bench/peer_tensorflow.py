"""Functions of TensorFlow with collectives, timed as bench/protocol.c does.

horovodrun -np N python bench/peer_tensorflow.py SECONDS RESULTS CASE...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tensorflow as tf
from timing import Work, time_of_call

import horovod.tensorflow as hvd

MANY = 50
SETTLING = 10  # TensorFlow's times vary tenfold over its first few hundred calls, so measure for longer


class Peer:
    """horovod.tensorflow."""

    rank = staticmethod(hvd.rank)
    barrier = staticmethod(hvd.barrier)

    def largest(self, value: float) -> float:
        return float(hvd.allreduce(tf.constant(value, tf.float64), op=hvd.Max, name="largest"))


def allreduce(x: Any) -> Any:
    return hvd.allreduce(x, op=hvd.Sum, name="one")


def chain(x: Any) -> Any:
    for i in range(MANY):
        x = hvd.allreduce(x, op=hvd.Sum, name=f"chain.{i}")
    return x


def many(x: Any) -> Any:
    return [hvd.allreduce(x, op=hvd.Sum, name=f"many.{i}") for i in range(MANY)]


FUNCTIONS = {
    "empty": lambda x: -x,
    "allreduce": allreduce,
    "allreduce-new": allreduce,  # tensors are immutable: every result is in new memory
    "chain": chain,
    "many": many,
}


def make_work(what: str, bytes_each: int) -> Work:
    """A call of the function; sums of zeros stay zeros."""
    function, x = tf.function(FUNCTIONS[what]), tf.zeros(bytes_each // 4)
    return lambda: function(x)


def main() -> None:
    """Measures every case."""
    seconds, folder, *cases = sys.argv[1:]
    hvd.init()
    with (Path(folder) / str(hvd.rank())).open("w") as results:
        for case in cases:
            what, count = case.split(":")
            time_of_one = time_of_call(Peer(), make_work(what, int(count)), SETTLING * float(seconds))
            results.write(f"{case},{1e6 * time_of_one:.3f}\n")
    hvd.shutdown()


if __name__ == "__main__":
    main()
