"""DistributedOptimizer where training is not plain: scaling, closures, odd graphs, failures."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402
from training import (  # noqa: E402
    OPTIMIZERS,
    Net,
    check_equal,
    data,
    distributed,
    make_model,
    own_batch,
    part,
    reference,
    train,
)

import horovod.torch as hvd  # noqa: E402


def test_grad_scaler(rank: int, size: int) -> None:
    """An infinity on one rank makes all ranks skip the step, and training goes on."""
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(4):
        x, y = own_batch(rank, size)(step)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss * (float("inf") if step == 1 and rank == size - 1 else 1)).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    scales = hvd.allgather_object(scaler.get_scale())
    assert scales == [2.0] * size
    check_equal(model, model)


def test_grad_scaler_alone(rank: int, size: int) -> None:
    """As PyTorch's documentation has it, and clipping without a word to Horovod."""
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    expected = make_model()
    expected_optimizer = OPTIMIZERS["sgd"](expected.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(4):
        overflow = step == 1
        x, y = own_batch(rank, size)(step)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss * (float("inf") if overflow and rank == size - 1 else 1)).backward()
        if step == 3:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
        if not overflow:
            x, y = data(step, size)
            expected_optimizer.zero_grad()
            F.mse_loss(expected(x), y).backward()
            if step == 3:
                torch.nn.utils.clip_grad_norm_(expected.parameters(), 0.05)
            expected_optimizer.step()
    assert hvd.allgather_object(scaler.get_scale()) == [2.0] * size
    check_equal(model, expected)


@pytest.mark.filterwarnings("ignore")
def test_reentrant_checkpoint(rank: int, size: int) -> None:
    """A backward call inside another one must not end the step's reductions."""

    class Checkpointed(Net):
        def forward(self, x: Any, use_second: bool = True) -> Any:
            def inner(x: Any) -> Any:
                return checkpoint(self.second, torch.tanh(self.first(x)), use_reentrant=True)

            return self.third(torch.tanh(checkpoint(inner, x.requires_grad_(), use_reentrant=True)))

    torch.manual_seed(7)
    model = Checkpointed()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters())
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(OPTIMIZERS["sgd"], size))


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_two_losses(op: int, rank: int, size: int) -> None:
    """Two backward calls that reach different parameters."""
    share = size if op == hvd.Average else 1
    model, optimizer = distributed(OPTIMIZERS["sgd"], op=op)
    expected = make_model()
    expected_optimizer = OPTIMIZERS["sgd"](expected.parameters())
    for step in range(3):
        x = data(step, size)[0]
        optimizer.zero_grad()
        model.first(part(x, rank)).square().mean().backward()
        model.second(torch.ones(2, 8) * (rank + 1)).square().mean().backward()
        optimizer.step()
        expected_optimizer.zero_grad()
        for r in range(size):
            (expected.first(part(x, r)).square().mean() / share).backward()
            (expected.second(torch.ones(2, 8) * (r + 1)).square().mean() / share).backward()
        (0 * sum(p.sum() for p in expected.parameters())).backward()
        expected_optimizer.step()
    check_equal(model, expected)


def test_two_losses_of_other_reductions(rank: int, size: int) -> None:
    model, _ = distributed(OPTIMIZERS["sgd"], op=hvd.Max)
    model.first(torch.ones(1, 6)).sum().backward()
    with pytest.raises(AssertionError, match="add up the losses"):
        model.second(torch.ones(1, 8)).sum().backward()


def test_sum(rank: int, size: int) -> None:
    model, optimizer = distributed(lambda p: torch.optim.SGD(p, lr=0.1 / size), op=hvd.Sum)
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(lambda p: torch.optim.SGD(p, lr=0.1), size))


def test_lbfgs(rank: int, size: int) -> None:
    """Its closure runs several times in one step."""

    calls = []

    def run(model: Any, optimizer: Any, batch: tuple[Any, Any], average: Callable[[Any], Any]) -> None:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model(batch[0]), batch[1])
            loss.backward()
            calls.append(loss)
            return average(loss.detach())  # LBFGS looks at it, so it must be the same everywhere

        for _ in range(3):
            optimizer.step(closure)

    model, optimizer = distributed(lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3))
    run(model, optimizer, own_batch(rank, size)(0), hvd.allreduce)
    assert len(calls) > 3
    expected = make_model()
    run(
        expected,
        torch.optim.LBFGS(expected.parameters(), lr=0.1, max_iter=3),
        data(0, size),
        lambda loss: loss,
    )
    check_equal(model, expected, 1e-5)


def test_rank_without_data(rank: int, size: int) -> None:
    """It only calls step(); the others' gradients count, its own are zero."""
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    expected = make_model()
    expected_optimizer = OPTIMIZERS["sgd"](expected.parameters())
    for step in range(3):
        x, y = data(step, size)
        optimizer.zero_grad()
        if size == 1 or rank != step % size:
            F.mse_loss(model(part(x, rank)), part(y, rank)).backward()
        optimizer.step()
        expected_optimizer.zero_grad()
        for r in range(size):
            if size == 1 or r != step % size:
                (F.mse_loss(expected(part(x, r)), part(y, r)) / size).backward()
        expected_optimizer.step()
    check_equal(model, expected)


def test_backward_that_fails(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    x, y = own_batch(rank, size)(0)

    def fail(gradient: Any) -> None:
        raise ArithmeticError("the user's own")

    hook = model.first.weight.register_hook(fail)
    with pytest.raises(ArithmeticError):
        F.mse_loss(model(x), y).backward()
    hook.remove()
    optimizer.synchronize()
    optimizer.zero_grad()
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(OPTIMIZERS["sgd"], size))


def test_mismatch_in_a_gradient(rank: int, size: int) -> None:
    """Every rank gets the error out of backward(); the next step works."""
    if size == 1:
        pytest.skip("needs several ranks")
    odd = torch.nn.Linear(3 if rank == size - 1 else 2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(odd.parameters(), 0.1), odd.named_parameters())
    with pytest.raises(hvd.HorovodInternalError, match=r"(?s)weight.*shape"):
        odd(torch.ones(1, odd.in_features)).sum().backward()
    optimizer.zero_grad()
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(OPTIMIZERS["sgd"], size))


@pytest.mark.parametrize("groups", [None, 1, 2])
def test_mixed_types_and_layouts(groups: Any, rank: int, size: int) -> None:
    """Parameters of two types, and gradients that are dense in another order."""
    torch.manual_seed(3)
    convolution = torch.nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    halves = torch.nn.Linear(4, 2, dtype=torch.bfloat16)
    named = [*convolution.named_parameters("convolution"), *halves.named_parameters("halves")]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], 1.0), named, groups=groups)
    before = [p.detach().clone() for _, p in named]
    images = torch.full((1, 2, 3, 3), rank + 1.0).to(memory_format=torch.channels_last)
    (convolution(images).sum() + halves(torch.ones(1, 4, dtype=torch.bfloat16)).sum()).backward()
    assert torch.allclose(convolution.weight.grad, torch.full((3, 2, 3, 3), (size + 1) / 2))
    optimizer.step()
    assert torch.allclose(before[0] - convolution.weight, torch.full((3, 2, 3, 3), (size + 1) / 2))
    assert torch.allclose(before[2] - halves.weight, torch.ones(2, 4, dtype=torch.bfloat16), atol=0.02)


@pytest.mark.parametrize("groups", [None, 1])
def test_gradients_that_change(groups: Any, rank: int, size: int) -> None:
    """In every step another type, shape or layout."""
    parameter = torch.nn.Parameter(torch.zeros(3, 4))
    sgd = torch.optim.SGD([parameter], 1.0)
    optimizer = hvd.DistributedOptimizer(sgd, [("changing", parameter)], groups=groups)
    mean = (size + 1) / 2
    for dtype, shape in ((torch.float32, (3, 4)), (torch.float64, (5, 2)), (torch.bfloat16, (7,))):
        parameter.data = torch.zeros(shape, dtype=dtype)
        for step in (1, 2):  # the second one has gaps
            parameter.grad = torch.full((*shape, step), rank + 1.0, dtype=dtype)[..., 0]
            gradient = parameter.grad
            optimizer.synchronize()
            assert parameter.grad is gradient
            assert gradient.dtype == dtype and torch.all(gradient == mean)
            optimizer.zero_grad()


def test_lazily_negated_gradient(rank: int, size: int) -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0), [("negated", parameter)])
    lazy = torch.complex(torch.zeros(3), torch.full((3,), rank + 1.0)).conj().imag
    assert lazy.is_neg()
    parameter.grad = lazy
    optimizer.synchronize()
    assert torch.all(parameter.grad == -(size + 1) / 2)
    optimizer.zero_grad()


def test_parameters_added_later(rank: int, size: int) -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.first.parameters(), lr=0.1))
    optimizer.add_param_group({"params": [*model.second.parameters(), *model.third.parameters()]})
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(lambda p: torch.optim.SGD(p, lr=0.1), size))


def test_frozen_parameters(rank: int, size: int) -> None:
    model, expected = make_model(), make_model()
    for each in (model, expected):
        each.first.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model.parameters()), model.named_parameters())
    train(model, optimizer, 2, own_batch(rank, size))
    assert model.first.weight.grad is None
    expected_optimizer = OPTIMIZERS["sgd"](expected.parameters())
    train(expected, expected_optimizer, 2, lambda step: data(step, size))
    for each in (model, expected):
        each.first.requires_grad_(True)
    train(model, optimizer, 3, own_batch(rank, size))
    train(expected, expected_optimizer, 3, lambda step: data(step, size))
    check_equal(model, expected)


@pytest.mark.two_or_three
def test_compiled_step(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    step_function = torch.compile(optimizer.step, backend="eager")
    for step in range(3):
        x, y = own_batch(rank, size)(step)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        step_function()
    check_equal(model, reference(OPTIMIZERS["sgd"], size, 3))


def test_copies_are_plain_optimizers(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["adam"])
    train(model, optimizer, 2, own_batch(rank, size))
    for plain in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert type(plain) is torch.optim.Adam
        assert str(plain.state_dict()) == str(optimizer.state_dict())
        plain.zero_grad()
        plain.step()
