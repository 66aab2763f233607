"""The equation that both physics-informed examples solve; Horovod is not in it.

-u'' = f on [-1, 1] with u(-1) = u(1) = 0, where f = (kπ)² sin(kπx), so that u = sin(kπx). The network N
does not get u: it is trained until u = (1 - x²) N(x), which is 0 at both ends for every N, satisfies the
equation at the training points.
"""

import math
from typing import Any

import interval
import torch


def exact(x: torch.Tensor, waves: int) -> torch.Tensor:
    return torch.sin(waves * math.pi * x)


def force(x: torch.Tensor, waves: int) -> torch.Tensor:
    return (waves * math.pi) ** 2 * exact(x, waves)


def solution(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (1 - x**2) * model(x)


def derivative(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Returns dy/dx at every point, which can be differentiated again."""
    (result,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return result


def residual_loss(model: torch.nn.Module, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    """Returns the mean square of -u'' - f, relative to that of f."""
    x = x.requires_grad_()
    u = solution(model, x)
    return (derivative(derivative(u, x), x) + f).square().mean() / f.square().mean()


def evaluate(model: torch.nn.Module, waves: int, count: int) -> tuple[torch.Tensor, float]:
    """Returns the solution at `count` points of [-1, 1], and its relative L2 error."""
    x = interval.points((interval.LEFT, interval.RIGHT), count)
    with torch.no_grad():
        u = solution(model, x)
    return u, interval.relative_error(u, exact(x, waves))


def draw_exact(axes: Any, waves: int, label: str) -> None:
    fine = interval.fine_points()
    axes.plot(fine, exact(fine, waves), color="0.8", linewidth=6, label=label)
