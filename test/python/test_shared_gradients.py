"""DistributedOptimizer(shared_gradients=True): the same weights as without, whatever the loop does."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from training import BATCH, OPTIMIZERS, check_equal, distributed, own_batch, reference  # noqa: E402

import horovod.torch as hvd  # noqa: E402


def places(optimizer: Any) -> set[int]:
    return {place.data_ptr() for place in (optimizer._hvd.gradients.places or {}).values()}


def check_moved(model: Any, optimizer: Any, size: int) -> None:
    if size > 1:
        assert {parameter.grad.data_ptr() for parameter in model.parameters()} == places(optimizer)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize("to_none", [False, True])
@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"op": hvd.Sum}], ids=["plain", "groups", "sum"])
def test_same_weights(make: Any, to_none: bool, options: Any, rank: int, size: int) -> None:
    models = []
    for shared in (False, True):
        model, optimizer = distributed(make, shared_gradients=shared, **options)
        for step in range(5):
            x, y = own_batch(rank, size)(step)
            optimizer.zero_grad(set_to_none=to_none)
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        models.append(model)
    check_equal(models[1], models[0])
    if not to_none:
        check_moved(model, optimizer, size)
    elif size > 1:
        assert not places(optimizer)


@pytest.mark.parametrize("to_none", [False, True])
def test_several_passes(to_none: bool, rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"], backward_passes_per_step=2, shared_gradients=True)
    for step in range(5):
        x, y = own_batch(rank, size)(step)
        optimizer.zero_grad(set_to_none=to_none)
        for half in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH)):
            (F.mse_loss(model(x[half]), y[half]) / 2).backward()
        optimizer.step()
    check_equal(model, reference(OPTIMIZERS["sgd"], size))


def test_grad_scaler(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"], shared_gradients=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(5):
        x, y = own_batch(rank, size)(step)
        optimizer.zero_grad(set_to_none=False)
        scaler.scale(F.mse_loss(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    check_equal(model, reference(OPTIMIZERS["sgd"], size))
    check_moved(model, optimizer, size)


def test_frozen_for_a_while(rank: int, size: int) -> None:
    models = []
    for shared in (False, True):
        model, optimizer = distributed(OPTIMIZERS["sgd"], shared_gradients=shared)
        for step in range(8):
            model.second.weight.requires_grad_(not 2 <= step < 5)
            x, y = own_batch(rank, size)(step)
            optimizer.zero_grad(set_to_none=step == 6)
            F.mse_loss(model(x, use_second=step != 3 or rank == 0), y).backward()
            optimizer.step()
        models.append(model)
    check_equal(models[1], models[0])


def test_a_gradient_outside_the_groups_is_kept(rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"], shared_gradients=True)
    x, y = own_batch(rank, size)(0)
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    before = model.first.weight.grad.clone()
    group = optimizer.param_groups[0]
    group["params"] = [p for p in group["params"] if p is not model.first.weight]
    optimizer.zero_grad(set_to_none=False)
    assert torch.equal(model.first.weight.grad, before)
    assert not model.third.weight.grad.any()


def test_sparse_stay_where_they_are(rank: int, size: int) -> None:
    tables = []
    for shared in (False, True):
        torch.manual_seed(3)
        table, out = torch.nn.Embedding(20, 4, sparse=True), torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*table.parameters(), *out.parameters()], lr=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer, shared_gradients=shared)
        for step in range(4):
            optimizer.zero_grad(set_to_none=False)
            out(table(torch.tensor([rank, step, 7]))).square().mean().backward()
            optimizer.step()
        assert table.weight.grad.is_sparse
        tables.append(table.weight.detach())
    torch.testing.assert_close(*tables)


@pytest.mark.parametrize("options", [{"compression": hvd.Compression.fp16}, {"op": hvd.Adasum}])
def test_without_effect(options: Any, rank: int, size: int) -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"], shared_gradients=True, **options)
    for step in range(2):
        x, y = own_batch(rank, size)(step)
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    assert not hasattr(optimizer._hvd.gradients, "places")


def test_no_shared_memory(monkeypatch: Any, rank: int, size: int) -> None:
    def refuse(_: int) -> Any:
        raise hvd.HorovodInternalError("none left")

    monkeypatch.setattr("horovod._core.shared", refuse)
    model, optimizer = distributed(OPTIMIZERS["sgd"], shared_gradients=True)
    for step in range(5):
        x, y = own_batch(rank, size)(step)
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    check_equal(model, reference(OPTIMIZERS["sgd"], size))


def test_shared_zeros(rank: int, size: int) -> None:
    flat = hvd.shared_zeros(600, 1000, dtype=torch.float64)
    assert flat.shape == (600, 1000) and not flat.any()
    for _ in range(3):
        flat.fill_(rank + 1)
        hvd.allreduce_(flat, op=hvd.Sum)
        assert (flat == size * (size + 1) // 2).all()
    assert hvd.shared_zeros(0, 3).shape == (0, 3)
