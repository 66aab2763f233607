"""Ways to write a training loop, each on every rank's part against one process on all parts: same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402
from training import Net, check_equal, data, part  # noqa: E402

import horovod.torch as hvd  # noqa: E402
from horovod.torch import hooks  # noqa: E402

STEPS = 4


@pytest.fixture(autouse=True, params=[-1, 16384], ids=["at once", "together"])
def _small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small gradients start when they come, or together."""
    monkeypatch.setattr(hooks, "_SMALL", request.param)


class Loop:
    """What a style sees: the model, how to wrap an optimizer, and the parts of each step's batch."""

    def __init__(self, model: Any, ranks: list[int], size: int, distributed: bool) -> None:
        self.model = model
        self.ranks = ranks
        self.size = size
        self.distributed = distributed

    def wrap(self, parameters: Any = None, prefix: str = "", **options: Any) -> Any:
        named = list((parameters or self.model).named_parameters(prefix))
        optimizer = torch.optim.SGD([p for _, p in named], lr=0.1, momentum=0.9)
        return hvd.DistributedOptimizer(optimizer, named, **options) if self.distributed else optimizer

    def parts(self, step: int) -> Iterator[tuple[Any, Any]]:
        x, y = data(step, self.size)
        for rank in self.ranks:
            yield part(x, rank), part(y, rank)

    def backward(self, loss: Any, **options: Any) -> None:
        (loss / len(self.ranks)).backward(**options)


def mse(model: Any, xy: tuple[Any, Any]) -> Any:
    return F.mse_loss(model(xy[0]), xy[1])


def non_reentrant_checkpoint(loop: Loop) -> None:
    optimizer = loop.wrap()
    model = loop.model
    for step in range(STEPS):
        optimizer.zero_grad()
        for x, y in loop.parts(step):
            hidden = checkpoint(lambda x: torch.tanh(model.first(x)), x, use_reentrant=False)
            hidden = checkpoint(lambda h: torch.tanh(model.second(h)), hidden, use_reentrant=False)
            loop.backward(F.mse_loss(model.third(hidden), y))
        optimizer.step()


def retain_graph(loop: Loop) -> None:
    optimizer = loop.wrap(backward_passes_per_step=2)
    for step in range(STEPS):
        optimizer.zero_grad()
        for xy in loop.parts(step):
            loss = mse(loop.model, xy)
            loop.backward(loss, retain_graph=True)
            loop.backward(loss * 2)
        optimizer.step()


def two_backward_calls(loop: Loop) -> None:
    optimizer = loop.wrap(backward_passes_per_step=2)
    for step in range(STEPS):
        optimizer.zero_grad()
        for xy in loop.parts(step):
            loop.backward(mse(loop.model, xy))
            loop.backward(loop.model(xy[0]).abs().mean())
        optimizer.step()


def shared_parameters(loop: Loop) -> None:
    loop.model.second.weight = loop.model.first_again = torch.nn.Parameter(torch.eye(8) * 0.5)
    optimizer = loop.wrap()
    for step in range(STEPS):
        optimizer.zero_grad()
        for x, y in loop.parts(step):
            hidden = torch.tanh(F.linear(torch.tanh(loop.model.first(x)), loop.model.first_again))
            loop.backward(F.mse_loss(loop.model.third(torch.tanh(loop.model.second(hidden))), y))
        optimizer.step()


def adversaries(loop: Loop) -> None:
    """The generator's loss goes through the discriminator, which is frozen meanwhile."""
    generator, discriminator = loop.model.first, loop.model.third
    for_generator = loop.wrap(generator, "generator")
    for_discriminator = loop.wrap(discriminator, "discriminator")
    for step in range(STEPS):
        for_discriminator.zero_grad()
        for x, _ in loop.parts(step):
            fake = torch.tanh(generator(x)).detach()
            loop.backward(
                F.softplus(discriminator(fake)).mean() + F.softplus(-discriminator(x[:, :1] * fake)).mean()
            )
        for_discriminator.step()
        discriminator.requires_grad_(False)
        for_generator.zero_grad()
        for x, _ in loop.parts(step):
            loop.backward(F.softplus(-discriminator(torch.tanh(generator(x)))).mean())
        for_generator.step()
        discriminator.requires_grad_(True)


def requires_grad_toggled(loop: Loop) -> None:
    optimizer = loop.wrap()
    for step in range(STEPS):
        loop.model.second.requires_grad_(step % 2 == 0)
        optimizer.zero_grad()
        for xy in loop.parts(step):
            loop.backward(mse(loop.model, xy))
        optimizer.step()


def evaluation_in_between(loop: Loop) -> None:
    optimizer = loop.wrap()
    for step in range(STEPS):
        loop.model.train()
        optimizer.zero_grad()
        for xy in loop.parts(step):
            loop.backward(mse(loop.model, xy))
        loop.model.eval()
        with torch.no_grad():
            mse(loop.model, data(99, 1))
        optimizer.step()


def nested_backward(loop: Loop) -> None:
    """A function of the user's own that calls backward within its backward must not end the step."""

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            with torch.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                y = x.square()
                torch.autograd.backward(y, gradient)
            return x.grad

    optimizer = loop.wrap()
    for step in range(STEPS):
        optimizer.zero_grad()
        for x, y in loop.parts(step):
            hidden = Nested.apply(torch.tanh(loop.model.second(torch.tanh(loop.model.first(x)))))
            loop.backward(F.mse_loss(loop.model.third(hidden), y))
        optimizer.step()


def state_dict_round_trip(loop: Loop) -> None:
    optimizer = loop.wrap()
    for step in range(STEPS):
        if step == 2:
            saved = optimizer.state_dict()
            optimizer = loop.wrap()
            optimizer.load_state_dict(saved)
        optimizer.zero_grad()
        for xy in loop.parts(step):
            loop.backward(mse(loop.model, xy))
        optimizer.step()


def number_of_passes_changes(loop: Loop) -> None:
    optimizer = loop.wrap()
    for step in range(STEPS):
        passes = 1 + step % 2
        if loop.distributed:
            optimizer.set_backward_passes_per_step(passes)
        optimizer.zero_grad()
        for xy in loop.parts(step):
            for _ in range(passes):
                loop.backward(mse(loop.model, xy))
        optimizer.step()


def create_graph(loop: Loop) -> None:
    """A gradient penalty: the derivative by the input is part of the loss, as in a PINN."""
    optimizer = loop.wrap()
    for step in range(STEPS):
        optimizer.zero_grad()
        for x, y in loop.parts(step):
            x.requires_grad_()
            u = loop.model(x)
            (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
            loop.backward(F.mse_loss(u, y) + slope.square().mean())
        optimizer.step()


STYLES: list[Callable[[Loop], None]] = [
    non_reentrant_checkpoint,
    retain_graph,
    two_backward_calls,
    shared_parameters,
    adversaries,
    requires_grad_toggled,
    evaluation_in_between,
    nested_backward,
    state_dict_round_trip,
    number_of_passes_changes,
    create_graph,
]


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
@pytest.mark.filterwarnings("ignore:Using backward")
def test_style(style: Callable[[Loop], None], rank: int, size: int) -> None:
    models = []
    for ranks, distributed in (([rank], True), (list(range(size)), False)):
        torch.manual_seed(7)
        models.append(Net())
        style(Loop(models[-1], ranks, size, distributed))
    check_equal(*models, 2e-6)
