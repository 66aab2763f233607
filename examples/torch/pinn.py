"""Two ranks, each with half of the points, solve one differential equation with one network.

    horovodrun -np 2 python examples/torch/pinn.py

-u'' = 4π² sin(2πx) on [-1, 1] with u(-1) = u(1) = 0; the exact solution is u = sin(2πx). A network is trained
until it satisfies the equation (a physics-informed network); it never sees the solution. Rank 0 has 51
points of [-1, 0], rank 1 has 51 of [0, 1], and Horovod averages the gradients of their residuals.

You see: the loss while it falls, whether the weights are equal on all ranks, the relative L2 error at 201
points, and a picture, out/pinn.png. Any number of ranks works: [-1, 1] is then cut into that many pieces.
"""

import argparse

import interval
import poisson
import torch

import horovod.torch as hvd

WAVES = 2  # sin(2πx)
EVALUATED = 201


def train(model: torch.nn.Module, args: argparse.Namespace) -> None:
    x = interval.points(interval.piece(hvd.rank(), hvd.size()), args.points)
    f = poisson.force(x, WAVES)

    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def report(step: int, loss: torch.Tensor) -> None:
        loss = hvd.allreduce(loss, name="loss")
        if hvd.rank() == 0:
            print(
                f"step {step:5d} of {args.steps}   loss {loss.item():.2e}   (mean over the ranks)", flush=True
            )

    interval.minimise(lambda: poisson.residual_loss(model, x, f), optimizer, args.steps, report)


def show(model: torch.nn.Module, args: argparse.Namespace) -> None:
    u, error = poisson.evaluate(model, WAVES, EVALUATED)
    figure, axes = interval.picture("One network, the points of all ranks: -u'' = 4π² sin(2πx)", "u")
    poisson.draw_exact(axes, WAVES, "exact solution sin(2πx)")
    x = interval.points((interval.LEFT, interval.RIGHT), EVALUATED)
    axes.plot(x, u, color="black", linewidth=1.8, label=f"network: relative L2 error {error:.1e}")
    for rank in range(hvd.size()):
        mine = interval.points(interval.piece(rank, hvd.size()), args.points)
        axes.plot(mine, torch.full_like(mine, -1.3), "|", color=f"C{rank}", label=f"points of rank {rank}")
    axes.set_ylim(-1.45, 1.8)
    path = args.output_dir / "pinn.png"
    interval.save(figure, axes, path)
    print(f"\nrelative L2 error at {EVALUATED} points: {error:.5f}\n\npicture: {path}", flush=True)


def main() -> None:
    args = interval.arguments(__doc__, points=51, steps=3000, width=32)
    torch.set_num_threads(1)
    hvd.init()

    torch.manual_seed(args.seed + hvd.rank())
    model = interval.network(args.depth, args.width)
    train(model, args)

    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    everyones = hvd.allgather(weights[None], name="weights")
    if hvd.rank() == 0:
        print(f"weights equal on all ranks: {'yes' if (everyones == weights).all() else 'NO'}", flush=True)
        show(model, args)
    hvd.shutdown()


if __name__ == "__main__":
    main()
