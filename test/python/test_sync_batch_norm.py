"""SyncBatchNorm on every rank's part against BatchNorm on the whole batch."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import horovod.torch as hvd  # noqa: E402

OPTIONS: list[dict[str, Any]] = [
    {},
    {"momentum": None},
    {"momentum": 0.3, "eps": 1e-3},
    {"track_running_stats": False},
    {"affine": False},
]


def rows(rank: int) -> int:
    return rank + 2


def batch(step: int, size: int, shape: tuple[int, ...], dtype: Any) -> Any:
    generator = torch.Generator().manual_seed(step)
    total = sum(rows(r) for r in range(size))
    return torch.randn(total, *shape, generator=generator, dtype=torch.float64).mul(3).add(50).to(dtype)


def own(tensor: Any, rank: int) -> Any:
    start = sum(rows(r) for r in range(rank))
    return tensor[start : start + rows(rank)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_same_as_the_whole_batch(
    options: dict[str, Any], shape: tuple[int, ...], dtype: Any, rank: int, size: int
) -> None:
    make = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm2d}[len(shape)]
    norm, expected = (kind(shape[0], **options).to(dtype) for kind in (hvd.SyncBatchNorm, make))
    tolerance = 1e-10 if dtype is torch.float64 else 1e-3
    for step in range(3):
        whole = batch(step, size, shape, dtype)
        x, y = own(whole, rank).clone().requires_grad_(), whole.clone().requires_grad_()
        weights = batch(step + 50, size, shape, dtype)
        result, wanted = norm(x), expected(y)
        (result.sin() * own(weights, rank)).sum().backward()
        (wanted.sin() * weights).sum().backward()
        torch.testing.assert_close(result, own(wanted, rank), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(x.grad, own(y.grad, rank), rtol=tolerance, atol=100 * tolerance)
    for name, value in expected.named_parameters():
        total = hvd.allreduce(dict(norm.named_parameters())[name].grad, op=hvd.Sum)
        torch.testing.assert_close(total, value.grad, rtol=tolerance, atol=100 * tolerance)
    for (name, value), other in zip(norm.named_buffers(), expected.buffers(), strict=True):
        torch.testing.assert_close(value, other, rtol=tolerance, atol=tolerance, msg=name)
    norm.eval(), expected.eval()
    x = batch(9, size, shape, dtype)
    torch.testing.assert_close(norm(x), expected(x), rtol=tolerance, atol=tolerance)


def test_evaluation_sends_nothing(rank: int) -> None:
    norm = hvd.SyncBatchNorm(2).eval()
    if rank == 0:
        norm(torch.randn(4, 2))


def test_second_derivative(rank: int, size: int) -> None:
    """A gradient penalty differentiates the gradient."""
    norm, expected = hvd.SyncBatchNorm(2).double(), torch.nn.BatchNorm1d(2).double()
    whole = batch(0, size, (2,), torch.float64)
    penalties = []
    for layer, x in ((norm, own(whole, rank).clone()), (expected, whole.clone())):
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        penalties.append(x.grad)
    torch.testing.assert_close(penalties[0], own(penalties[1], rank))


def test_empty_batch_and_half_precision(rank: int, size: int) -> None:
    norm = hvd.SyncBatchNorm(2)
    x = torch.randn(0 if rank == 0 and size > 1 else 5, 2, 3).to(torch.bfloat16)
    result = norm(x)
    assert result.dtype is torch.bfloat16 and result.shape == x.shape
    assert hvd.allgather_object(norm.running_mean.tolist()) == [norm.running_mean.tolist()] * size


def test_refuses() -> None:
    with pytest.raises(ValueError, match="dimensions"):
        hvd.SyncBatchNorm(2)(torch.ones(2))
    with pytest.raises(ValueError, match="more than one value"):
        hvd.SyncBatchNorm(2)(torch.ones(1 if hvd.rank() == 0 else 0, 2))


def test_process_set_of_all(size: int) -> None:
    norm = hvd.SyncBatchNorm(2, process_set=hvd.global_process_set)
    norm(torch.randn(3, 2)).sum().backward()
    state = norm.state_dict()
    torch.nn.BatchNorm1d(2).load_state_dict(state)
    copies = copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))
    assert all(each.process_set is hvd.global_process_set for each in copies)
