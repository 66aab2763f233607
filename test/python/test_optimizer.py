"""DistributedOptimizer against one process that trains on all ranks' data at once: the same weights.

This file has plain training loops, each with small gradients that start at once and together;
test_optimizer_cases.py has loops and graphs that are not plain, test_optimizer_rules.py arguments, names and
process sets, test_optimizer_threads.py backward calls of several threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from training import (  # noqa: E402
    BATCH,
    OPTIMIZERS,
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
from horovod.torch import hooks  # noqa: E402


@pytest.fixture(autouse=True, params=[True, False], ids=["at once", "together"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether small gradients, too, start when they come; else with the next larger one."""
    if request.param:
        monkeypatch.setattr(hooks, "_SMALL", -1)
    return bool(request.param)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize(
    "options",
    [{}, {"groups": 2}, {"gradient_predivide_factor": 2.0}, {"num_groups": 1}],
    ids=["plain", "groups", "predivide", "num_groups"],
)
@pytest.mark.filterwarnings("ignore:num_groups")
def test_same_weights(make: Any, options: dict[str, Any], rank: int, size: int) -> None:
    model, optimizer = distributed(make, **options)
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(make, size))


def test_explicit_groups(rank: int, size: int) -> None:
    model = make_model()
    groups = [list(model.first.parameters()), [model.third.weight, model.second.weight]]
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS["sgd"](model.parameters()), model.named_parameters(), groups=groups
    )
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(OPTIMIZERS["sgd"], size))


def test_compression(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"], compression=hvd.Compression.fp16)
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(OPTIMIZERS["sgd"], size), 5e-3)


def test_several_passes_per_step(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"], backward_passes_per_step=2)
    for step in range(5):
        x, y = own_batch(rank, size)(step)
        optimizer.zero_grad()
        for half in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH)):
            (F.mse_loss(model(x[half]), y[half]) / 2).backward()
        optimizer.step()
    check_equal(model, reference(OPTIMIZERS["sgd"], size))


def test_one_pass_too_many(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    x, y = own_batch(rank, size)(0)
    F.mse_loss(model(x), y).backward()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        F.mse_loss(model(x), y).backward()
    optimizer.synchronize()


def test_zero_grad_in_between(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    x, y = own_batch(rank, size)(0)
    F.mse_loss(model(x), y).backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert model.first.weight.grad is not None and not model.first.weight.grad.any()


def test_clipping_with_synchronize(rank: int, size: int) -> None:
    def clipped(model: Any, optimizer: Any, batch: Any, is_distributed: bool) -> None:
        for step in range(5):
            x, y = batch(step)
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            if is_distributed:
                optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            if is_distributed:
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()

    model, optimizer = distributed(OPTIMIZERS["sgd"])
    clipped(model, optimizer, own_batch(rank, size), True)
    expected = make_model()
    clipped(expected, OPTIMIZERS["sgd"](expected.parameters()), lambda step: data(step, size), False)
    check_equal(model, expected)


def test_step_after_synchronize_warns(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    x, y = own_batch(rank, size)(0)
    F.mse_loss(model(x), y).backward()
    optimizer.synchronize()
    with pytest.warns(
        UserWarning, match=r"optimizer\.step\(\) called without optimizer\.skip_synchronize\(\)"
    ):
        optimizer.step()


def test_closure(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    for step in range(5):
        x, y = own_batch(rank, size)(step)

        def closure(x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    check_equal(model, reference(OPTIMIZERS["sgd"], size))


def test_parameters_that_one_rank_does_not_use(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    expected = make_model()
    expected_optimizer = OPTIMIZERS["sgd"](expected.parameters())
    for step in range(5):
        x, y = data(step, size)
        optimizer.zero_grad()
        F.mse_loss(model(part(x, rank), use_second=rank == 0), part(y, rank)).backward()
        optimizer.step()
        expected_optimizer.zero_grad()
        for r in range(size):
            (F.mse_loss(expected(part(x, r), use_second=r == 0), part(y, r)) / size).backward()
        expected_optimizer.step()
    check_equal(model, expected)


@pytest.mark.parametrize("wrapped_first", [False, True])
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_learning_rate_scheduler(wrapped_first: bool, rank: int, size: int) -> None:
    def run(model: Any, make: Callable[[Any, Any], Any], batch: Any) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrapped_first:
            optimizer = make(optimizer, model)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
        if not wrapped_first:
            optimizer = make(optimizer, model)
        for step in range(5):
            x, y = batch(step)
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            scheduler.step()

    model, expected = make_model(), make_model()
    run(model, lambda o, m: hvd.DistributedOptimizer(o, m.named_parameters()), own_batch(rank, size))
    run(expected, lambda o, m: o, lambda step: data(step, size))
    check_equal(model, expected)


def test_compiled_model(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    compiled = torch.compile(model, backend="eager")
    train(compiled, optimizer, 3, own_batch(rank, size))
    check_equal(model, reference(OPTIMIZERS["sgd"], size, 3))


def test_gradients_start_during_backprop(at_once: bool) -> None:
    """The last layer's gradient is submitted before the first layer's exists."""
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
    assert at_once or model[0].weight.nbytes == hooks._SMALL
    model[2] = torch.nn.Linear(64, 65)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    started: set[str] = set()

    def look(_: Any) -> None:
        started.update(optimizer._hvd.names[place] for place in optimizer._hvd.in_flight)

    model[0].weight.register_hook(look)
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    assert "2.weight" in started
    assert ("1.weight" in started) == at_once  # else it waits for a larger one


def test_gradients_are_reduced_during_backprop(rank: int, size: int) -> None:
    """The last layer's gradient is the sum over the ranks before the first layer's is computed."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 65))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(rank + 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Sum)

    def wait_for_sum(_: Any) -> None:
        end = time.monotonic() + 60
        while not (model[1].weight.grad == size * (size + 1) / 2).all():
            assert time.monotonic() < end, "nothing is reduced while backward() goes on"
            time.sleep(0.001)

    model[0].weight.register_hook(wait_for_sum)
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()


def test_small_gradients_of_a_failed_backward(rank: int, size: int) -> None:
    """They are known although no reduction has started."""
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    hook = model.first.weight.register_hook(lambda gradient: 1 / 0)
    x, y = own_batch(rank, size)(0)
    with pytest.raises(ZeroDivisionError):
        F.mse_loss(model(x), y).backward()
    hook.remove()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.synchronize()
    optimizer.zero_grad()
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(OPTIMIZERS["sgd"], size))


def test_backward_after_a_failed_one(rank: int, size: int) -> None:
    """It ends with reduced gradients: what came before the failure is no reason not to wait."""
    model, optimizer = distributed(OPTIMIZERS["sgd"], backward_passes_per_step=2)
    hook = model.first.weight.register_hook(lambda gradient: 1 / 0)
    x, y = own_batch(rank, size)(0)
    with pytest.raises(ZeroDivisionError):
        F.mse_loss(model(x), y).backward()
    hook.remove()
    F.mse_loss(model(x), y).backward()
    for parameter in model.parameters():
        everywhere = hvd.allgather(parameter.grad[None])
        assert all(torch.equal(everywhere[0], gradient) for gradient in everywhere)
    optimizer.step()


def test_dataloader_workers(rank: int, size: int) -> None:
    dataset = torch.utils.data.TensorDataset(torch.arange(16.0))
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=2)
    total = torch.zeros(1)
    for (batch,) in loader:
        total += hvd.allreduce(batch, op=hvd.Sum).sum()
    assert total.item() == 120.0 * size
