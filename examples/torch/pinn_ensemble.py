"""Each rank solves a differential equation of its own; Horovod only gathers the results.

    horovodrun -np 2 python examples/torch/pinn_ensemble.py

-u'' = f on [-1, 1] with u(-1) = u(1) = 0. Rank 0 has f = π² sin(πx) and finds u = sin(πx), rank 1 has
f = 4π² sin(2πx) and finds u = sin(2πx), each with a network of its own that is trained on 101 points. The
ranks exchange nothing while they train. Compare with pinn.py, where all ranks train one network.

You see: rank 0's loss while it falls, a table with the relative L2 error of every rank's solution, and a
picture of all, out/pinn_ensemble.png. Further ranks solve the two equations in turn, each from first weights
of its own.
"""

import argparse
from dataclasses import dataclass

import interval
import poisson
import torch

import horovod.torch as hvd


@dataclass
class Member:
    """The solution of a rank."""

    waves: int
    curve: torch.Tensor
    error: float


def train_alone(args: argparse.Namespace) -> Member:
    torch.manual_seed(args.seed + hvd.rank())
    waves = 1 + hvd.rank() % 2
    model = interval.network(args.depth, args.width)
    x = interval.points((interval.LEFT, interval.RIGHT), args.points)
    f = poisson.force(x, waves)

    def report(step: int, loss: torch.Tensor) -> None:
        if hvd.rank() == 0:
            print(f"step {step:5d} of {args.steps}   loss {loss.item():.2e}   (rank 0)", flush=True)

    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    interval.minimise(lambda: poisson.residual_loss(model, x, f), optimizer, args.steps, report)
    return Member(waves, *poisson.evaluate(model, waves, args.points))


def formula(waves: int) -> str:
    return f"sin({waves if waves > 1 else ''}πx)"


def error_table(members: list[Member]) -> str:
    lines = [f"{'':12s} {'exact solution':>16s} {'relative L2 error':>20s}"]
    for rank, member in enumerate(members):
        lines.append(f"{f'rank {rank}':12s} {formula(member.waves):>16s} {member.error:20.5f}")
    return "\n".join(lines)


def show(members: list[Member], args: argparse.Namespace) -> None:
    figure, axes = interval.picture("One equation and one network a rank: -u'' = f", "u")
    x = interval.points((interval.LEFT, interval.RIGHT), args.points)
    for waves in sorted({member.waves for member in members}):
        poisson.draw_exact(axes, waves, f"exact solution {formula(waves)}")
    for rank, member in enumerate(members):
        label = f"network of rank {rank}: relative L2 error {member.error:.1e}"
        axes.plot(x, member.curve, color=f"C{rank}", linewidth=1.8, label=label)
    axes.set_ylim(-1.2, 1.8)
    path = args.output_dir / "pinn_ensemble.png"
    interval.save(figure, axes, path)
    print(f"\n{error_table(members)}\n\npicture: {path}", flush=True)


def main() -> None:
    args = interval.arguments(__doc__, points=101, steps=3000, width=32)
    torch.set_num_threads(1)
    hvd.init()
    members = hvd.allgather_object(train_alone(args))
    if hvd.rank() == 0:
        show(members, args)
    hvd.shutdown()


if __name__ == "__main__":
    main()
