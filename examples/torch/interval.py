"""The code that the four examples on the interval [-1, 1] share; Horovod is not in it.

It has a small tanh network, points and pieces of the interval, training with a falling learning rate,
relative errors, and the layout of pictures and command lines.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

LEFT, RIGHT = -1.0, 1.0


def piece(rank: int, size: int) -> tuple[float, float]:
    """Returns the part of [-1, 1] that contains this rank's points."""
    width = (RIGHT - LEFT) / size
    return LEFT + rank * width, LEFT + (rank + 1) * width


def points(interval: tuple[float, float], count: int) -> torch.Tensor:
    """Returns `count` evenly spaced points as a column; exactly 0.0 where rounding would leave 1e-8."""
    return torch.linspace(*interval, count, dtype=torch.float64).round(decimals=12).float()[:, None]


def network(depth: int, width: int) -> torch.nn.Sequential:
    """Makes a network of `depth` hidden layers of `width` units with tanh, one input, one output."""
    layers: list[torch.nn.Module] = []
    inputs = 1
    for _ in range(depth):
        layers += [torch.nn.Linear(inputs, width), torch.nn.Tanh()]
        inputs = width
    return torch.nn.Sequential(*layers, torch.nn.Linear(inputs, 1))


def minimise(
    loss_now: Callable[[], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    steps: int,
    report: Callable[[int, torch.Tensor], None] | None = None,
) -> None:
    """Takes `steps` steps down the loss; calls `report` ten times."""
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = loss_now()
        loss.backward()
        optimizer.step()
        schedule.step()
        if report and (step % max(steps // 10, 1) == 0 or step == steps):
            report(step, loss.detach())


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Returns |found - exact| / |exact| in the L2 norm."""
    return ((found - exact).norm() / exact.norm()).item() if len(exact) else math.nan


def inside(x: torch.Tensor, interval: tuple[float, float]) -> torch.Tensor:
    """Returns which of the points x are in the interval, including its ends."""
    return (x >= interval[0] - 1e-6) & (x <= interval[1] + 1e-6)


def interval_text(interval: tuple[float, float]) -> str:
    return f"[{interval[0]:.3g}, {interval[1]:.3g}]"


def fine_points() -> torch.Tensor:
    """Returns enough points to draw a smooth curve."""
    return points((LEFT, RIGHT), 501)


def picture(title: str, label: str) -> tuple[Any, Any]:
    """Makes a figure and its axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 5.6), layout="constrained")
    axes.set(title=title, xlabel="x", ylabel=label, xlim=(-1.03, 1.03))
    axes.grid(alpha=0.3)
    return figure, axes


def save(figure: Any, axes: Any, path: Path) -> None:
    axes.legend(loc="upper center", ncols=2, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def arguments(description: str | None, points: int, steps: int, width: int) -> argparse.Namespace:
    """Makes the parser of the command line, with the defaults of one example."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(option: str, default: Any, text: str) -> None:
        parser.add_argument(option, type=type(default), default=default, help=f"{text} (default {default})")

    add("--depth", 2, "hidden layers")
    add("--width", width, "units of a hidden layer")
    add("--points", points, "training points of each rank")
    add("--steps", steps, "training steps")
    add("--learning-rate", 0.01, "of Adam, falling to 0")
    add("--seed", 1, "of the first weights")
    parser.add_argument(
        "--output-dir", type=Path, default=Path("out"), help="for the picture (default ./out)"
    )
    return parser.parse_args()
