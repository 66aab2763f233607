"""Two ranks, each with half of the data, train one network together.

    horovodrun -np 2 python examples/torch/function_approximation.py

The function is y = sin(2πx) + sin(4πx) on [-1, 1]. Rank 0 has 16 points of [-1, 0], rank 1 has 16 points of
[0, 1]; neither has the other's points. In every step each rank computes the gradient on its own points,
Horovod averages the gradients, and so all ranks end with the same weights and fit the whole interval. For
comparison rank 0 also trains the same network, from the same first weights, on its half alone: it fails on
the other half.

You see: the loss while it falls, whether the weights are equal on all ranks, a table of the errors, and a
picture, out/function_approximation.png. Any number of ranks works: [-1, 1] is then cut into that many pieces.
"""

import argparse
import copy
import hashlib
from pathlib import Path

import interval
import torch
import two_waves as waves

import horovod.torch as hvd


def train_together(model: torch.nn.Module, x: torch.Tensor, steps: int, learning_rate: float) -> None:
    """Adds Horovod to training: equal first weights, and an optimizer that averages gradients."""
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def report(step: int, loss: torch.Tensor) -> None:
        loss = hvd.allreduce(loss, name="loss")
        if hvd.rank() == 0:
            print(f"step {step:5d} of {steps}   loss {loss.item():.2e}   (mean over the ranks)", flush=True)

    waves.fit(model, optimizer, x, steps, report)


def digest(model: torch.nn.Module) -> str:
    """Returns a fingerprint of the weights, which changes with every bit."""
    digest = hashlib.sha256()
    for weight in model.state_dict().values():
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()[:16]


def error_table(x: torch.Tensor, curves: dict[str, torch.Tensor]) -> str:
    own = interval.piece(0, hvd.size())
    in_own = interval.inside(x, own)
    own_text = "on " + interval.interval_text(own)
    lines = [f"{'relative L2 error':24s} {own_text:>16s} {'elsewhere':>12s} {'on [-1, 1]':>12s}"]
    for name, curve in curves.items():
        here, elsewhere = (waves.relative_error(x, curve, where) for where in (in_own, ~in_own))
        lines.append(f"{name:24s} {here:16.4f} {elsewhere:12.4f} {waves.relative_error(x, curve):12.4f}")
    return "\n".join(lines)


def draw(path: Path, x: torch.Tensor, curves: dict[str, torch.Tensor], count: int) -> None:
    title = "Each rank sees its own points only; together they learn the whole function"
    figure, axes = waves.picture(title, hvd.size(), count)
    looks = ({"color": "black"}, {"color": "tab:red", "linestyle": "--", "zorder": 2.5})
    for (name, curve), look in zip(curves.items(), looks, strict=False):
        label = f"{name}: relative L2 error {waves.relative_error(x, curve):.3f}"
        axes.plot(x, curve, linewidth=1.8, label=label, **look)
    if hvd.size() > 1:
        border = interval.piece(0, hvd.size())[1]
        axes.axvspan(border, interval.RIGHT, color="tab:red", alpha=0.05, label="no points of rank 0 here")
    interval.save(figure, axes, path)


def show(curves: dict[str, torch.Tensor], x: torch.Tensor, args: argparse.Namespace) -> None:
    path = args.output_dir / "function_approximation.png"
    draw(path, x, curves, args.points)
    print(f"\n{error_table(x, curves)}\n\npicture: {path}", flush=True)


def main() -> None:
    args = interval.arguments(__doc__, points=16, steps=3000, width=16)
    torch.set_num_threads(1)
    hvd.init()

    # Each rank has its own seed: broadcast_parameters makes the first weights equal.
    torch.manual_seed(args.seed + hvd.rank())
    model = interval.network(args.depth, args.width)
    half_trained = copy.deepcopy(model)
    mine = interval.points(interval.piece(hvd.rank(), hvd.size()), args.points)

    train_together(model, mine, args.steps, args.learning_rate)

    digests = hvd.allgather_object(digest(model))
    if hvd.rank() == 0:
        equal = "yes" if len(set(digests)) == 1 else f"NO: {digests}"
        print(f"weights equal on all ranks: {equal}", flush=True)
        x = interval.points((interval.LEFT, interval.RIGHT), 101)
        curves = {"all ranks together": waves.predict(model, x)}
        if hvd.size() > 1:
            optimizer = torch.optim.Adam(half_trained.parameters(), lr=args.learning_rate)
            waves.fit(half_trained, optimizer, mine, args.steps)
            curves["rank 0 alone"] = waves.predict(half_trained, x)
        show(curves, x, args)
    hvd.shutdown()


if __name__ == "__main__":
    main()
