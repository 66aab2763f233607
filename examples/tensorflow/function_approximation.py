"""A network learns y = sin(x) + sin(3 x) / 2, on any number of ranks, in TensorFlow.

    horovodrun -np 2 python examples/tensorflow/function_approximation.py
    horovodrun -np 2 python examples/tensorflow/function_approximation.py --ensemble

Without an option all ranks train one network, each on its own points. With --ensemble every rank trains a
network of its own, from its own weights, on all points: the ranks communicate only at the end, when the mean
of all networks is compared with each network.

You see: the loss, the root mean square error of each rank's network, and that of their mean.
"""

import argparse

import numpy
import tensorflow as tf

import horovod.tensorflow as hvd


def truth(x: numpy.ndarray) -> numpy.ndarray:
    return numpy.sin(x) + numpy.sin(3 * x) / 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000, help="steps of training (%(default)s)")
    parser.add_argument("--points", type=int, default=512, help="of all ranks together (%(default)s)")
    parser.add_argument("--ensemble", action="store_true", help="a network for each rank")
    args = parser.parse_args()

    hvd.init()  # Horovod: join the job
    share = slice(None) if args.ensemble else slice(hvd.rank(), None, hvd.size())  # Horovod: own points
    x = numpy.linspace(-3, 3, args.points, dtype=numpy.float32)[share, None]
    y = truth(x)

    random = tf.random.Generator.from_seed(hvd.rank())
    shapes = [(1, 32), (32,), (32, 32), (32,), (32, 1), (1,)]
    weights = [
        tf.Variable(random.normal(shape) / shape[0] ** 0.5 if len(shape) > 1 else tf.zeros(shape))
        for shape in shapes
    ]
    if not args.ensemble:
        hvd.broadcast_variables(weights, root_rank=0)  # Horovod: all start from the same weights
    optimizer = tf.keras.optimizers.Adam(0.01)

    def network(x: tf.Tensor) -> tf.Tensor:
        for i in range(0, 4, 2):
            x = tf.tanh(tf.matmul(x, weights[i]) + weights[i + 1])
        return tf.matmul(x, weights[4]) + weights[5]

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((network(x) - y) ** 2)
        if not args.ensemble:
            tape = hvd.DistributedGradientTape(tape)  # Horovod: average the gradients
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    for number in range(1, args.steps + 1):
        loss = step()
        if number % (args.steps // 4) == 0 and hvd.rank() == 0:
            print(f"step {number}: loss {float(loss):.5f}")

    held_out = numpy.linspace(-3, 3, 301, dtype=numpy.float32)[:, None]
    answers = hvd.allgather(network(held_out)[None])  # Horovod: of all ranks, shape [size, 301, 1]
    if hvd.rank() == 0:
        errors = numpy.sqrt(numpy.mean((answers - truth(held_out)) ** 2, axis=(1, 2)))
        together = numpy.sqrt(numpy.mean((numpy.mean(answers, 0) - truth(held_out)) ** 2))
        print("error of each rank's network:", " ".join(f"{error:.4f}" for error in errors))
        print(f"error of their mean: {together:.4f}")


if __name__ == "__main__":
    main()
