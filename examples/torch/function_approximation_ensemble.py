"""Each rank trains a network of its own on its own data; Horovod only gathers the results.

    horovodrun -np 2 python examples/torch/function_approximation_ensemble.py

The function, the points and the network are those of function_approximation.py: rank 0 has 16 points of
[-1, 0], rank 1 has 16 points of [0, 1]. But here there is no DistributedOptimizer: the ranks exchange
nothing while they train. Each becomes good on its own half and fails on the other. Compare with
function_approximation.py, where one network learns both halves.

You see: rank 0's loss while it falls, a table with the errors of every rank's network on its own half and
on the whole, and a picture, out/function_approximation_ensemble.png. Any number of ranks works.
"""

import argparse
from dataclasses import dataclass

import interval
import torch
import two_waves as waves

import horovod.torch as hvd


@dataclass
class Member:
    """The network of a rank and its errors."""

    own: tuple[float, float]
    curve: torch.Tensor
    error_own: float
    error_whole: float


def train_alone(args: argparse.Namespace) -> Member:
    torch.manual_seed(args.seed + hvd.rank())
    model = interval.network(args.depth, args.width)
    own = interval.piece(hvd.rank(), hvd.size())

    def report(step: int, loss: torch.Tensor) -> None:
        if hvd.rank() == 0:
            print(f"step {step:5d} of {args.steps}   loss {loss.item():.2e}   (rank 0)", flush=True)

    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    waves.fit(model, optimizer, interval.points(own, args.points), args.steps, report)

    x = interval.points((interval.LEFT, interval.RIGHT), 101)
    curve = waves.predict(model, x)
    here = waves.relative_error(x, curve, interval.inside(x, own))
    return Member(own, curve, here, waves.relative_error(x, curve))


def error_table(members: list[Member]) -> str:
    lines = [f"{'relative L2 error':20s} {'trained on':>18s} {'error there':>12s} {'on [-1, 1]':>12s}"]
    for rank, member in enumerate(members):
        own = interval.interval_text(member.own)
        lines.append(f"{f'rank {rank}':20s} {own:>18s} {member.error_own:12.4f} {member.error_whole:12.4f}")
    return "\n".join(lines)


def show(members: list[Member], args: argparse.Namespace) -> None:
    title = "Each rank trains its own network on its own points"
    figure, axes = waves.picture(title, len(members), args.points)
    x = interval.points((interval.LEFT, interval.RIGHT), 101)
    for rank, member in enumerate(members):
        errors = f"{member.error_own:.3f} on its part, {member.error_whole:.3f} on the whole"
        axes.plot(
            x, member.curve, color=f"C{rank}", linewidth=1.8, label=f"network of rank {rank}: error {errors}"
        )
    path = args.output_dir / "function_approximation_ensemble.png"
    interval.save(figure, axes, path)
    print(f"\n{error_table(members)}\n\npicture: {path}", flush=True)


def main() -> None:
    args = interval.arguments(__doc__, points=16, steps=3000, width=16)
    torch.set_num_threads(1)
    hvd.init()
    members = hvd.allgather_object(train_alone(args))
    if hvd.rank() == 0:
        show(members, args)
    hvd.shutdown()


if __name__ == "__main__":
    main()
