"""DistributedOptimizer when threads call backward at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import horovod.torch as hvd  # noqa: E402

DEADLINE = 60.0


class Halted:
    """A backward call in a thread of its own that stops between its two gradients, both of them `value`."""

    def __init__(self, pool: ThreadPoolExecutor, parameters: Any, value: float, fails: bool = False) -> None:
        self.fails = fails
        self.arrived, self.go = threading.Event(), threading.Event()
        late, early = parameters
        middle = late * torch.full((2,), value)
        middle.register_hook(self.halt)
        self.future: Future[None] = pool.submit((early * middle).sum().backward)
        assert self.arrived.wait(DEADLINE)

    def halt(self, gradient: Any) -> None:
        self.arrived.set()
        assert self.go.wait(DEADLINE)
        if self.fails:
            raise ArithmeticError

    def end(self) -> None:
        self.go.set()
        self.future.result(DEADLINE)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def make(count: int, **options: Any) -> tuple[list[Any], Any]:
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(count)]
    return parameters, hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), **options)


def check(parameters: list[Any], *values: float) -> None:
    assert [parameter.grad.tolist() for parameter in parameters] == [[value, value] for value in values]


def test_the_last_one_reduces(pool: ThreadPoolExecutor, rank: int, size: int) -> None:
    """Whichever of two passes ends first, and whose gradients ever start a list of small ones."""
    mean = (size - 1) / 2
    parameters, optimizer = make(2, backward_passes_per_step=2)
    for first_begun_ends_first in (True, False):
        optimizer.zero_grad()
        calls = [Halted(pool, parameters, rank + 1.0), Halted(pool, parameters, rank + 10.0)]
        first, last = calls if first_begun_ends_first else reversed(calls)
        first.end()
        own = rank + (1.0 if first_begun_ends_first else 10.0)
        check(parameters[:1], own)
        last.end()
        check(parameters, 2 * mean + 11, 2 * mean + 11)
        optimizer.step()


def test_more_at_once_than_passes(pool: ThreadPoolExecutor, rank: int, size: int) -> None:
    """An error in each of them; synchronize() still reduces what came, and the next step is as any."""
    mean = (size - 1) / 2
    parameters, optimizer = make(4)
    calls = [Halted(pool, parameters[:2], rank + 1.0), Halted(pool, parameters[2:], rank + 10.0)]
    for call in calls:
        with pytest.raises(AssertionError, match="pass backward_passes_per_step="):
            call.end()
    optimizer.synchronize()
    check(parameters, mean + 1, mean + 1, mean + 10, mean + 10)
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad()
    Halted(pool, parameters[:2], rank + 1.0).end()
    check(parameters, mean + 1, mean + 1, 0.0, 0.0)
    optimizer.step()


def test_one_fails_beside_another(pool: ThreadPoolExecutor, rank: int, size: int) -> None:
    """The one that failed is no longer waited for; what came of it counts."""
    mean = (size - 1) / 2
    parameters, optimizer = make(2, backward_passes_per_step=2)
    failing = Halted(pool, parameters, rank + 1.0, fails=True)
    other = Halted(pool, parameters, rank + 10.0)
    with pytest.raises(ArithmeticError):
        failing.end()
    other.end()
    check(parameters, mean + 10, 2 * mean + 11)
    optimizer.step()
