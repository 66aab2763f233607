"""A physics-informed network solves a differential equation, on any number of ranks, in TensorFlow.

    horovodrun -np 2 python examples/tensorflow/pinn.py
    horovodrun -np 2 python examples/tensorflow/pinn.py --ensemble

-u'' = (kπ)² sin(kπx) on [-1, 1] with u(-1) = u(1) = 0; the exact solution is u = sin(kπx). The network N
never sees it: u = (1 - x²) N(x), which is 0 at both ends, is trained until it satisfies the equation.

Without an option all ranks train one network for k = 2, each on its own points. With --ensemble every rank
solves an equation of its own, k = 1 or 2, on all points: the ranks communicate only at the end.

You see: the loss, and the relative L2 error of each rank's solution.
"""

import argparse
from math import pi

import numpy
import tensorflow as tf

import horovod.tensorflow as hvd


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2000, help="steps of training (%(default)s)")
    parser.add_argument("--points", type=int, default=101, help="of all ranks together (%(default)s)")
    parser.add_argument("--ensemble", action="store_true", help="an equation and a network for each rank")
    args = parser.parse_args()

    hvd.init()  # Horovod: join the job
    share = slice(None) if args.ensemble else slice(hvd.rank(), None, hvd.size())  # Horovod: own points
    waves = 1 + hvd.rank() % 2 if args.ensemble else 2
    x = tf.constant(numpy.linspace(-1, 1, args.points, dtype=numpy.float32)[share, None])
    force = (waves * pi) ** 2 * tf.sin(waves * pi * x)

    random = tf.random.Generator.from_seed(hvd.rank())
    shapes = [(1, 32), (32,), (32, 32), (32,), (32, 1), (1,)]
    weights = [
        tf.Variable(random.normal(shape) / shape[0] ** 0.5 if len(shape) > 1 else tf.zeros(shape))
        for shape in shapes
    ]
    if not args.ensemble:
        hvd.broadcast_variables(weights, root_rank=0)  # Horovod: all start from the same weights
    rate = tf.keras.optimizers.schedules.CosineDecay(0.01, args.steps)
    optimizer = tf.keras.optimizers.Adam(rate)

    def solution(x: tf.Tensor) -> tf.Tensor:
        y = x
        for i in range(0, 4, 2):
            y = tf.tanh(tf.matmul(y, weights[i]) + weights[i + 1])
        return (1 - x**2) * (tf.matmul(y, weights[4]) + weights[5])

    def curvature(x: tf.Tensor) -> tf.Tensor:
        """Returns u'' at every point."""
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                u = solution(x)
            slope = inner.gradient(u, x)
        return outer.gradient(slope, x)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((curvature(x) + force) ** 2) / tf.reduce_mean(force**2)
        if not args.ensemble:
            tape = hvd.DistributedGradientTape(tape)  # Horovod: average the gradients
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    for number in range(1, args.steps + 1):
        loss = step()
        if number % (args.steps // 4) == 0 and hvd.rank() == 0:
            print(f"step {number}: loss {float(loss):.5f}")

    at = numpy.linspace(-1, 1, 201, dtype=numpy.float32)[:, None]
    exact = numpy.sin(waves * pi * at)
    error = numpy.linalg.norm(solution(tf.constant(at)) - exact) / numpy.linalg.norm(exact)
    errors = hvd.allgather_object(float(error))  # Horovod: of all ranks
    if hvd.rank() == 0:
        print("relative L2 error of each rank's solution:", " ".join(f"{each:.5f}" for each in errors))


if __name__ == "__main__":
    main()
