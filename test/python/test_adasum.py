"""Adasum against its formula in NumPy, for every kind of array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import horovod as basics


def merge(a: Any, b: Any) -> Any:
    def factor(one: Any) -> Any:
        return 1 - np.vdot(a, b) / (2 * np.vdot(one, one)) if one.any() else 1

    return factor(a) * a + factor(b) * b


def adasum(parts: list[Any]) -> Any:
    """Ranks beyond the power of two fold in first; then neighbours, then pairs of them, and so on."""
    power = 1 << (len(parts).bit_length() - 1)
    folded = [merge(parts[r], parts[r + power]) if r + power < len(parts) else parts[r] for r in range(power)]
    while len(folded) > 1:
        folded = [merge(folded[i], folded[i + 1]) for i in range(0, len(folded), 2)]
    return folded[0]


def values(shape: Any, rank: int, seed: int = 0) -> Any:
    return np.round(np.random.default_rng(97 * seed + rank).standard_normal(shape) * 8) / 8


def check(kind: Any, result: Any, expected: Any, dtype: str) -> None:
    tolerance = {"float32": 1e-5, "float64": 1e-12}.get(dtype) or 5 * kind.step(dtype)
    np.testing.assert_allclose(kind.numpy(result), expected, atol=4 * tolerance, rtol=tolerance)


def floats(kind: Any) -> list[str]:
    return [dtype for dtype in kind.dtypes if "float" in dtype]


@pytest.mark.parametrize("shape", [(), (1,), (17,), (3, 5), (0,), (70_001,)])
def test_adasum(kind: Any, shape: tuple[int, ...], rank: int, size: int) -> None:
    expected = adasum([values(shape, r) for r in range(size)])
    for dtype in floats(kind):
        tensor = kind.array(values(shape, rank), dtype)
        result = kind.hvd.allreduce(tensor, op=kind.hvd.Adasum)
        assert result.dtype == tensor.dtype and tuple(result.shape) == shape
        check(kind, result, expected, dtype)
        check(kind, tensor, values(shape, rank), dtype)
        assert kind.hvd.allreduce_(tensor, op=kind.hvd.Adasum) is tensor
        check(kind, tensor, expected, dtype)


def test_factors(kind: Any, rank: int, size: int) -> None:
    tensor = kind.array(values(9, rank))
    result = kind.hvd.allreduce(tensor, op=basics.Adasum, prescale_factor=4.0, postscale_factor=0.5)
    check(kind, result, adasum([4 * values(9, r) for r in range(size)]) / 2, "float32")


@pytest.mark.parametrize("grouped", [False, True])
def test_every_tensor_for_itself(kind: Any, grouped: bool, rank: int, size: int) -> None:
    shapes = [5, 1, 0, 1000, 33, 4]
    tensors = [kind.array(values(shape, rank, seed)) for seed, shape in enumerate(shapes)]
    if grouped:
        results = kind.hvd.grouped_allreduce(tensors, op=basics.Adasum)
    else:
        named = [
            kind.hvd.allreduce_async(tensor, name=f"adasum {i}", op=basics.Adasum)
            for i, tensor in enumerate(tensors)
        ]
        results = [kind.hvd.synchronize(handle) for handle in named]
    for seed, (shape, result) in enumerate(zip(shapes, results, strict=True)):
        check(kind, result, adasum([values(shape, r, seed) for r in range(size)]), "float32")


def test_zeros_add_nothing(kind: Any, rank: int, size: int) -> None:
    tensor = kind.array(values(6, 0) * (rank == size - 1))
    check(kind, kind.hvd.allreduce(tensor, op=basics.Adasum), values(6, 0), "float32")


def test_equal_on_all_ranks(kind: Any, rank: int, size: int) -> None:
    result = kind.hvd.allreduce(kind.array(values(1001, rank)), op=basics.Adasum)
    everywhere = kind.numpy(kind.hvd.allgather(result)).reshape(size, -1)
    assert (everywhere == everywhere[0]).all()


def test_refuses(kind: Any) -> None:
    with pytest.raises(ValueError, match="no adasum of int32; what it has: average"):
        kind.hvd.allreduce(kind.array([1], "int32"), op=basics.Adasum)
    with pytest.raises(ValueError, match="Average and op=Sum"):
        kind.hvd.reducescatter(kind.array([1.0]), op=basics.Adasum)
