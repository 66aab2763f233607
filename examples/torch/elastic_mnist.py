"""The digits of mnist.py, learned by ranks that may be lost, and others that may join, while they train.

    horovodrun -np 3 --min-np 1 python examples/torch/elastic_mnist.py

Every process prints its pid; in an elastic job kill one, and see the others go on from the batch that was
interrupted, in the same processes. Lines marked with "Elastic:" are what such a job needs besides those that
are marked with "Horovod:". docs/elastic.md says how such a job is started and what happens when. With the
same number of digits in every step, whatever the number of ranks, the learning rate stays as it is.

You see: the ranks whenever they change, loss and held-out accuracy after every epoch, and at the end whether
the weights are equal on all ranks.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from mnist import Digits, evaluate, jiggle, network, read_digits, weights_equal

import horovod.torch as hvd


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, help="folder with the IDX files of MNIST or Fashion-MNIST")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the digits (default 10)")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="digits of all ranks together in a step (default 64)"
    )
    parser.add_argument("--learning-rate", type=float, default=0.02, help="(default 0.02)")
    parser.add_argument(
        "--batches-per-commit", type=int, default=1, help="that many are repeated after a loss (default 1)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of weights and shuffling (default 1)")
    return parser.parse_args()


def train_epoch(state: Any, train: Digits, args: argparse.Namespace) -> None:
    """Trains on the rest of the epoch, or on all of it."""
    state.model.train()
    size = max(1, args.batch_size // hvd.size())
    rest = torch.tensor(list(state.sampler), dtype=torch.int64)
    for number, batch in enumerate(rest.split(size) if len(rest) else ()):
        digits = train.part(batch)
        state.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(state.model(jiggle(digits.images)), digits.labels)
        loss.backward()
        state.optimizer.step()
        state.loss += loss.item()
        state.steps += 1
        # Elastic: what has been done since the last commit is repeated after a loss.
        state.sampler.record_batch(number, len(batch))
        if state.steps % args.batches_per_commit == 0:
            state.commit()


# Elastic: the function is called again, from the latest commit, when ranks have come or gone.
@hvd.elastic.run
def train_all(state: Any, train: Digits, test: Digits, args: argparse.Namespace) -> float:
    """Trains from wherever the state is; returns the held-out accuracy."""
    if hvd.rank() == 0:
        print(f"{hvd.size()} rank(s) from step {state.steps} of epoch {state.epoch + 1}", flush=True)
    while state.epoch < args.epochs:
        train_epoch(state, train, args)
        # Horovod: a metric is averaged like a gradient.
        loss = hvd.allreduce(torch.tensor(state.loss / max(state.steps, 1)), name="loss").item()
        accuracy = evaluate(state.model, test)[0]
        if hvd.rank() == 0:
            text = f"loss {loss:.4f}   held-out accuracy {accuracy:.2%}"
            print(f"epoch {state.epoch + 1:2d}   {text}", flush=True)
        # Elastic: an epoch has ended for the sampler, too.
        state.epoch += 1
        state.loss, state.steps = 0.0, 0
        state.sampler.set_epoch(state.epoch)
        state.commit()
    return evaluate(state.model, test)[0]


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)

    # Horovod: join the other ranks.
    hvd.init()
    print(f"rank {hvd.rank()} of {hvd.size()} is process {os.getpid()}", flush=True)
    torch.manual_seed(args.seed + hvd.rank())
    train, test = read_digits(args.data_dir)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9, weight_decay=5e-4)

    # Horovod: an optimizer that averages the gradients of all ranks before each step.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # Elastic: what a commit keeps, and what a rank that joins receives; it also makes all start equal.
    sampler = hvd.elastic.ElasticSampler(train.labels, seed=args.seed)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, steps=0, loss=0.0)
    accuracy = train_all(state, train, test, args)

    equal = weights_equal(model)
    if hvd.rank() == 0:
        print(f"\nheld-out accuracy: {accuracy:.2%}\nweights equal on all ranks: {'yes' if equal else 'NO'}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
