"""Operations that give every rank rows of its own, for every kind of array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_collectives import all_values, check, is_impossible, values

import horovod as basics


def rows_of(rows: int, rank: int, size: int) -> slice:
    """What a rank keeps of so many rows."""
    counts = [rows // size + (r < rows % size) for r in range(size)]
    return slice(sum(counts[:rank]), sum(counts[: rank + 1]))


# -- reducescatter ---------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [basics.Sum, basics.Average])
@pytest.mark.parametrize("shape", [(6,), (5, 3), (1,), (0, 4), (4, 0), (70_001,), (2, 2, 3)])
def test_reducescatter(kind: Any, shape: tuple[int, ...], op: int, rank: int, size: int) -> None:
    for dtype in kind.dtypes:
        tensor = kind.array(values(shape, rank, dtype), dtype)
        if is_impossible(dtype, op):
            with pytest.raises(ValueError, match="reducescatter: there is no average of bool"):
                kind.hvd.reducescatter(tensor, op=op)
            continue
        result = kind.hvd.reducescatter(tensor, op=op)
        parts = all_values(shape, size, dtype)
        whole = parts.sum(0) if op == basics.Sum else parts.mean(0)
        assert result.dtype == tensor.dtype
        check(kind, result, whole[rows_of(shape[0], rank, size)], dtype)
        check(kind, tensor, values(shape, rank, dtype), dtype)


def test_reducescatter_average_is_default_and_factors(kind: Any, rank: int, size: int) -> None:
    tensor = kind.array(values((7,), rank))
    own = rows_of(7, rank, size)
    check(kind, kind.hvd.reducescatter(tensor), all_values((7,), size).mean(0)[own], "float32")
    scaled = kind.hvd.reducescatter(tensor, op=basics.Sum, prescale_factor=0.5, postscale_factor=3.0)
    check(kind, scaled, 1.5 * all_values((7,), size).sum(0)[own], "float32")


def test_reducescatter_async_and_strided(kind: Any, rank: int, size: int) -> None:
    matrix = kind.array(values((4, 6), rank))
    order = range(20) if rank % 2 else reversed(range(20))
    handles = {i: kind.hvd.reducescatter_async(matrix.T, name=f"s{i}", op=basics.Sum) for i in order}
    expected = all_values((4, 6), size).sum(0).T[rows_of(6, rank, size)]
    for handle in handles.values():
        check(kind, kind.hvd.synchronize(handle), expected, "float32")


def test_grouped_reducescatter(kind: Any, rank: int, size: int) -> None:
    shapes = [(1, 2), (5,), (0, 3)]
    tensors = [kind.array(values(shape, rank)) for shape in shapes]
    results = kind.hvd.grouped_reducescatter(tensors, op=basics.Sum)
    handle = kind.hvd.grouped_reducescatter_async(tensors, op=basics.Sum)
    for shape, *two in zip(shapes, results, kind.hvd.synchronize(handle), strict=True):
        for result in two:
            expected = all_values(shape, size).sum(0)[rows_of(shape[0], rank, size)]
            check(kind, result, expected, "float32")


def test_reducescatter_of_several_types(kind: Any, rank: int, size: int) -> None:
    dtypes = ["float32", "int64", "float64", "float32"]
    tensors = [kind.array(values((7, 2), rank), dtype) for dtype in dtypes]
    results = kind.hvd.grouped_reducescatter(tensors, op=basics.Sum)
    for dtype, result in zip(dtypes, results, strict=True):
        check(kind, result, all_values((7, 2), size).sum(0)[rows_of(7, rank, size)], dtype)


def test_reducescatter_refuses(kind: Any, rank: int, size: int) -> None:
    for op in (basics.Adasum, basics.Max, basics.Min, basics.Product):
        for error in (ValueError, RuntimeError):
            with pytest.raises(error, match="Average and op=Sum"):
                kind.hvd.reducescatter(kind.array([1.0]), op=op)
            with pytest.raises(error, match="Average and op=Sum"):
                kind.hvd.grouped_reducescatter_async([kind.array([1.0])], op=op)
    with pytest.raises(ValueError, match="no dimensions"):
        kind.hvd.reducescatter(kind.array(1.0))
    if size > 1:
        with pytest.raises(basics.HorovodInternalError, match="shape"):
            kind.hvd.reducescatter(kind.array(np.zeros(rank + 1)), name="rows differ")


def test_reducescatter_compression(rank: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd

    tensor = torch.full((5,), 1 / 3)
    result = hvd.reducescatter(tensor, compression=hvd.Compression.fp16, op=hvd.Sum)
    assert result.dtype == torch.float32
    assert torch.allclose(result, tensor[rows_of(5, rank, size)] * size, rtol=2e-3)


@pytest.mark.parametrize("grouped", [False, True])
def test_reducescatter_gradient(grouped: bool, rank: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd

    for op in (hvd.Sum, hvd.Average):
        tensor = torch.ones(5, 2, requires_grad=True)
        options = {"op": op, "prescale_factor": 2.0, "postscale_factor": 0.25}
        if grouped:
            (result,) = hvd.grouped_reducescatter([tensor], **options)
        else:
            result = hvd.reducescatter(tensor, **options)
        (result * (rank + 1)).sum().backward()
        expected = np.empty((5, 2))
        for r in range(size):
            expected[rows_of(5, r, size)] = (r + 1) * 0.5 * (size if op == hvd.Sum else 1)
        np.testing.assert_allclose(tensor.grad.numpy(), expected)


# -- alltoall --------------------------------------------------------------------------------------


def block(source: int, target: int, rows: int, width: int = 2) -> Any:
    return np.arange(rows * width).reshape(rows, width) % 50 + source * 10 + target


def blocks_to(rank: int, size: int, rows: Any) -> Any:
    return np.concatenate([block(rank, r, rows(rank, r)) for r in range(size)])


def blocks_from(rank: int, size: int, rows: Any) -> Any:
    return np.concatenate([block(r, rank, rows(r, rank)) for r in range(size)])


ROWS = [
    lambda source, target: 3,
    lambda source, target: (source + 2 * target) % 4,
    lambda source, target: 20_000 if target == 0 else 0,
    lambda source, target: 0,
]


@pytest.mark.parametrize("rows", ROWS)
def test_alltoall_with_splits(kind: Any, rows: Any, rank: int, size: int) -> None:
    splits = [rows(rank, r) for r in range(size)]
    for dtype in kind.dtypes:
        tensor = kind.array(blocks_to(rank, size, rows), dtype)
        for given in (splits, kind.array(splits, "int32")):
            result, received = kind.hvd.alltoall(tensor, splits=given)
            assert result.dtype == tensor.dtype
            check(kind, result, blocks_from(rank, size, rows), dtype)
            assert received.tolist() == [rows(r, rank) for r in range(size)]


def test_alltoall_evenly(kind: Any, rank: int, size: int) -> None:
    tensor = kind.array(blocks_to(rank, size, ROWS[0]))
    expected = blocks_from(rank, size, ROWS[0])
    check(kind, kind.hvd.alltoall(tensor), expected, "float32")
    handles = [kind.hvd.alltoall_async(tensor, name=f"even {i}") for i in range(10)]
    for handle in handles:
        check(kind, kind.hvd.synchronize(handle), expected, "float32")
    empty = kind.hvd.alltoall(kind.array(np.zeros((0, 3))))
    assert tuple(empty.shape) == (0, 3)


def test_alltoall_of_some_rows_to_some_ranks(kind: Any, rank: int, size: int) -> None:
    tensor = kind.array([[rank, 0], [rank, 1], [rank, 2]])
    handle = kind.hvd.alltoall_async(tensor, [1] + [0] * (size - 1))
    result, received = kind.hvd.synchronize(handle)
    expected = [[r, 0] for r in range(size)] if rank == 0 else np.zeros((0, 2))
    check(kind, result, expected, "float32")
    assert received.tolist() == [int(rank == 0)] * size


def test_alltoall_refuses(kind: Any, rank: int, size: int) -> None:
    tensor = kind.array(np.zeros((2 * size + 1, 2)))
    for splits, words in [
        ([1] * (size + 1), "splits for"),
        ([2 * size + 2] + [0] * (size - 1), "exceed"),
        ([-1] * size, "is -1"),
        ([[1]] * size, "one dimension"),
        (kind.array([1.0] * size), "integers"),
        (3, "one dimension"),
    ]:
        with pytest.raises(ValueError, match=words):
            kind.hvd.alltoall(tensor, splits)
    with pytest.raises(ValueError, match="no dimensions"):
        kind.hvd.alltoall(kind.array(1.0))
    if size > 1:
        with pytest.raises(ValueError, match="evenly"):
            kind.hvd.alltoall(tensor)
        with pytest.raises(basics.HorovodInternalError, match="shape"):
            kind.hvd.alltoall(kind.array(np.zeros((size, rank + 1))), name="widths differ")


@pytest.mark.parametrize("given", [False, True])
def test_alltoall_gradient(given: bool, rank: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd

    splits = [r + 1 for r in range(size)] if given else [2] * size
    more = 1 if given else 0  # rows that go nowhere
    tensor = torch.ones(sum(splits) + more, 3, requires_grad=True)
    if given:
        result, received = hvd.alltoall(tensor, torch.tensor(splits, dtype=torch.int32))
        assert received.tolist() == [rank + 1] * size and not received.requires_grad
    else:
        result = hvd.alltoall(tensor)
    (result * (rank + 5)).sum().backward()
    expected = [r + 5 for r in range(size) for _ in range(splits[r])] + [0] * more
    np.testing.assert_allclose(tensor.grad.numpy(), np.repeat(np.array(expected)[:, None], 3, 1))
