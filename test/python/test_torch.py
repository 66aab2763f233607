"""The rest of horovod.torch: broadcasts of state, and gradients of collectives."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from training import (  # noqa: E402
    OPTIMIZERS,
    Net,
    check_equal,
    data,
    make_model,
    train,
)

import horovod.torch as hvd  # noqa: E402


def test_what_is_no_dense_tensor() -> None:
    for wrong in ("text", [1.0], None, np.ones(2)):
        with pytest.raises(TypeError, match=f"takes tensors of PyTorch, not {type(wrong).__name__}"):
            hvd.allreduce(wrong)
    ragged = [torch.ones(1), torch.ones(2)]
    for layout in (torch.strided, torch.jagged):
        with pytest.raises(ValueError, match=r"a nested tensor can't be sent: pass its parts, x\.unbind\(\)"):
            hvd.allreduce(torch.nested.nested_tensor(ragged, layout=layout))
    with pytest.raises(ValueError, match="has no dimensions; it must have rows"):
        hvd.allgather(torch.tensor(1.0))
    with pytest.raises(ValueError, match="uninitialized parameter"):
        hvd.broadcast_parameters(torch.nn.LazyLinear(1).state_dict(), 0)


def test_broadcast_parameters(rank: int, size: int) -> None:
    torch.manual_seed(rank)
    model = Net()
    hvd.broadcast_parameters(model.state_dict(), root_rank=size - 1)
    torch.manual_seed(size - 1)
    check_equal(model, Net(), 0)
    with pytest.raises(ValueError, match="state_dict"):
        hvd.broadcast_parameters(3, 0)


def test_broadcast_parameters_of_any_type_and_layout(rank: int) -> None:
    def make(rank: int) -> dict[str, Any]:
        return {
            "bool": torch.tensor([rank == 0, True]),
            "complex": torch.tensor(1j * (rank + 1)),
            "int16": torch.full((2, 2), rank, dtype=torch.int16),
            "transposed": torch.arange(6.0).reshape(2, 3).T * (rank + 1),
        }

    state = make(rank)
    hvd.broadcast_parameters(state, 0)
    assert all(torch.equal(state[name], value) for name, value in make(0).items())


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_broadcast_optimizer_state(make: Any, rank: int, size: int) -> None:
    model = make_model()
    optimizer = make(model.parameters())
    if rank == 0:
        train(model, optimizer, 2, lambda step: data(step, 1))
        optimizer.param_groups[0]["lr"] = 0.5
    weights = [p.clone() for p in model.parameters()]
    before = copy.deepcopy(optimizer.state_dict())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert len(optimizer.state) == len(weights)
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    if rank == 0:
        assert str(before) == str(optimizer.state_dict()), "the root's own state changed"


def test_broadcast_of_an_empty_state() -> None:
    optimizer = OPTIMIZERS["adam"](make_model().parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert not optimizer.state
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(make_model().parameters()), 0)
    with pytest.raises(ValueError, match=r"takes an optimizer of torch\.optim, not dict"):
        hvd.broadcast_optimizer_state({}, 0)  # on all ranks, so that none waits


def test_broadcast_optimizer_state_leaves_gradients(rank: int) -> None:
    """Zeros where a trained parameter had none: programs read `p.grad` next. What there is stays."""
    model = make_model()
    model.third.requires_grad_(False)
    model.first.weight.grad = torch.full_like(model.first.weight, 3.0)
    hvd.broadcast_optimizer_state(OPTIMIZERS["adam"](model.parameters()), root_rank=0)
    assert (model.first.weight.grad == 3).all()
    for parameter in (model.first.bias, *model.second.parameters()):
        assert parameter.grad is not None
        assert not parameter.grad.any()
    assert all(parameter.grad is None for parameter in model.third.parameters())


def test_gradient_of_allreduce(rank: int, size: int) -> None:
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        x = torch.full((3,), float(rank), requires_grad=True)
        hvd.allreduce(x, op=op).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), float(factor)))
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum)
    (a.sum() + 2 * b.sum()).backward()
    assert x.grad.tolist() == [size] * 2 and y.grad.tolist() == [2 * size] * 2


def test_gradient_of_allgather(rank: int, size: int) -> None:
    x = torch.ones(rank + 1, 2, requires_grad=True)
    gathered = hvd.allgather(x)
    (gathered * torch.arange(len(gathered)).unsqueeze(1)).sum().backward()
    start = rank * (rank + 1) // 2
    assert x.grad.tolist() == [[start + i] * 2 for i in range(rank + 1)]


def test_gradient_of_broadcast(rank: int, size: int) -> None:
    x = torch.ones(2, requires_grad=True)
    (hvd.broadcast(x, 0) * (rank + 1)).sum().backward()
    expected = (size + 1) / 2 if rank == 0 else 0.0
    assert x.grad.tolist() == [expected] * 2
