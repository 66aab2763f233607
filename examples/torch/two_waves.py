"""The problem that both function-approximation examples solve, and nothing about Horovod.

A small tanh network learns y = sin(2πx) + sin(4πx) on [-1, 1] from points that are shared out among the
ranks: with two ranks, rank 0 has points of [-1, 0] only and rank 1 of [0, 1] only.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

LEFT, RIGHT = -1.0, 1.0


def exact(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(2 * math.pi * x) + torch.sin(4 * math.pi * x)


def piece(rank: int, size: int) -> tuple[float, float]:
    """The part of [-1, 1] whose points this rank has."""
    width = (RIGHT - LEFT) / size
    return LEFT + rank * width, LEFT + (rank + 1) * width


def points(interval: tuple[float, float], count: int) -> torch.Tensor:
    """`count` evenly spaced points as a column; 0.0 exactly where rounding would leave 1e-8."""
    return torch.linspace(*interval, count, dtype=torch.float64).round(decimals=12).float()[:, None]


def network(depth: int, width: int) -> torch.nn.Sequential:
    """`depth` hidden layers of `width` units with tanh, one input, one output."""
    layers: list[torch.nn.Module] = []
    inputs = 1
    for _ in range(depth):
        layers += [torch.nn.Linear(inputs, width), torch.nn.Tanh()]
        inputs = width
    return torch.nn.Sequential(*layers, torch.nn.Linear(inputs, 1))


def fit(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    steps: int,
    report: Callable[[int, torch.Tensor], None] | None = None,
) -> None:
    """Trains on all points x in every step; `report` hears of the loss ten times."""
    y = exact(x)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        if report and (step % max(steps // 10, 1) == 0 or step == steps):
            report(step, loss.detach())


def predict(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(x)


def relative_error(x: torch.Tensor, prediction: torch.Tensor, where: torch.Tensor | None = None) -> float:
    """|prediction - exact| / |exact| in the L2 norm over the points x, or over those that `where` selects."""
    difference, solution = prediction - exact(x), exact(x)
    if where is not None:
        difference, solution = difference[where], solution[where]
    return (difference.norm() / solution.norm()).item() if len(solution) else math.nan


def inside(x: torch.Tensor, interval: tuple[float, float]) -> torch.Tensor:
    """Which of the points x lie in the interval, its ends included."""
    return (x >= interval[0] - 1e-6) & (x <= interval[1] + 1e-6)


def interval_text(interval: tuple[float, float]) -> str:
    return f"[{interval[0]:.3g}, {interval[1]:.3g}]"


def picture(title: str, size: int, count: int) -> tuple[Any, Any]:
    """A figure and its axes with the exact solution and the points of every rank, each in its colour."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 5.6), layout="constrained")
    fine = torch.linspace(LEFT, RIGHT, 501)
    axes.plot(fine, exact(fine), color="0.75", linewidth=6, label="exact solution")
    for rank in range(size):
        mine = points(piece(rank, size), count)
        # Two sizes, since neighbours share the point on their border.
        look = {"color": f"C{rank}", "markersize": 9 - 3 * (rank % 2), "zorder": 3 + rank % 2}
        axes.plot(mine, exact(mine), "o", label=f"points of rank {rank}", **look)
    axes.set(title=title, xlabel="x", ylabel="y = sin(2πx) + sin(4πx)", xlim=(-1.03, 1.03), ylim=(-2.6, 3.8))
    axes.grid(alpha=0.3)
    return figure, axes


def save(figure: Any, axes: Any, path: Path) -> None:
    axes.legend(loc="upper center", ncols=2, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def arguments(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depth", type=int, default=2, help="hidden layers (default 2)")
    parser.add_argument("--width", type=int, default=16, help="units of a hidden layer (default 16)")
    parser.add_argument("--points", type=int, default=16, help="training points of each rank (default 16)")
    parser.add_argument("--steps", type=int, default=3000, help="training steps (default 3000)")
    parser.add_argument(
        "--learning-rate", type=float, default=0.01, help="of Adam, falling to 0 (default 0.01)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first weights (default 1)")
    parser.add_argument(
        "--output-dir", type=Path, default=Path("out"), help="for the picture (default ./out)"
    )
    return parser.parse_args()
