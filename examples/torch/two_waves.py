"""The problem that both function-approximation examples solve; Horovod is not in it.

A small tanh network learns y = sin(2πx) + sin(4πx) on [-1, 1] from points that are divided among the ranks:
with two ranks, rank 0 has points of [-1, 0] only and rank 1 of [0, 1] only.
"""

import math
from collections.abc import Callable
from typing import Any

import interval
import torch


def exact(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(2 * math.pi * x) + torch.sin(4 * math.pi * x)


def fit(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    steps: int,
    report: Callable[[int, torch.Tensor], None] | None = None,
) -> None:
    """Trains on all points x in every step."""
    y = exact(x)
    interval.minimise(lambda: torch.nn.functional.mse_loss(model(x), y), optimizer, steps, report)


def predict(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(x)


def relative_error(x: torch.Tensor, prediction: torch.Tensor, where: torch.Tensor | None = None) -> float:
    """Returns the relative L2 error over the points x, or over those that `where` selects."""
    if where is not None:
        x, prediction = x[where], prediction[where]
    return interval.relative_error(prediction, exact(x))


def picture(title: str, size: int, count: int) -> tuple[Any, Any]:
    """Makes a figure and its axes with the exact solution and the points of every rank in its own colour."""
    figure, axes = interval.picture(title, "y = sin(2πx) + sin(4πx)")
    fine = interval.fine_points()
    axes.plot(fine, exact(fine), color="0.75", linewidth=6, label="exact solution")
    for rank in range(size):
        mine = interval.points(interval.piece(rank, size), count)
        # Two sizes, since neighbours share the point at their border.
        look = {"color": f"C{rank}", "markersize": 9 - 3 * (rank % 2), "zorder": 3 + rank % 2}
        axes.plot(mine, exact(mine), "o", label=f"points of rank {rank}", **look)
    axes.set_ylim(-2.6, 3.8)
    return figure, axes
