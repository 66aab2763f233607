"""A small network, its data, and training it on one rank or all: what the optimizer tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

import horovod.torch as hvd

BATCH = 4


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.second = torch.nn.Linear(8, 8)
        self.third = torch.nn.Linear(8, 1)

    def forward(self, x: Any, use_second: bool = True) -> Any:
        x = torch.tanh(self.first(x))
        if use_second:
            x = torch.tanh(self.second(x))
        return self.third(x)


def make_model() -> Net:
    torch.manual_seed(7)
    return Net()


def data(step: int, size: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(100 + step)
    x = torch.randn(size * BATCH, 6, generator=generator)
    return x, x.sum(1, keepdim=True).sin()


def part(tensor: Any, rank: int) -> Any:
    return tensor[rank * BATCH : (rank + 1) * BATCH]


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def train(model: Any, optimizer: Any, steps: int, batch: Callable[[int], tuple[Any, Any]]) -> None:
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()


def reference(make: Callable[[Any], Any], size: int, steps: int = 5) -> Net:
    model = make_model()
    train(model, make(model.parameters()), steps, lambda step: data(step, size))
    return model


def distributed(make: Callable[[Any], Any], **options: Any) -> tuple[Net, Any]:
    model = make_model()
    optimizer = make(model.parameters())
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def check_equal(model: Any, expected: Any, tolerance: float = 1e-6) -> None:
    for (name, value), other in zip(model.named_parameters(), expected.parameters(), strict=True):
        assert torch.allclose(value, other, atol=tolerance), f"{name}: {(value - other).abs().max():.2e}"
    hashes = hvd.allgather_object([p.detach().numpy().tobytes() for p in model.parameters()])
    assert all(one == hashes[0] for one in hashes), "the ranks' weights differ"


def own_batch(rank: int, size: int) -> Callable[[int], tuple[Any, Any]]:
    def batch(step: int) -> tuple[Any, Any]:
        x, y = data(step, size)
        return part(x, rank), part(y, rank)

    return batch
