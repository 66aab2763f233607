"""Random collectives on arrays of every layout, beside NumPy: strided, reversed, overlapping, read-only,
without elements; several at once, on values that every order of additions adds up exactly.

HOROVOD_TEST_SEED draws them; a failure names its seed and number, and HOROVOD_TEST_OPERATION=NUMBER repeats
that one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod import _core

SEED = int(os.environ.get("HOROVOD_TEST_SEED", "1"))
OPERATIONS = 5000 if "HOROVOD_TEST_FULL" in os.environ else 100
IN_FLIGHT = 8
TYPES = [np.dtype(name) for name in _core.dtypes if name != "bfloat16"]


# -- arrays: a base, and a view of it in some layout --------------------------------------------------


def _plain(random: Any, shape: tuple[int, ...], new: Callable[..., Any]) -> tuple[Any, Any]:
    base = new(shape)
    return base, base


def _fortran(random: Any, shape: tuple[int, ...], new: Callable[..., Any]) -> tuple[Any, Any]:
    base = new(shape[::-1])
    return base, base.T


def _reversed(random: Any, shape: tuple[int, ...], new: Callable[..., Any]) -> tuple[Any, Any]:
    base = new(shape)
    return base, base[(*(slice(None, None, -1) for _ in shape), ...)]


def _spread(random: Any, shape: tuple[int, ...], new: Callable[..., Any]) -> tuple[Any, Any]:
    """Every second element, from the second on."""
    base = new(tuple(2 * extent + 1 for extent in shape))
    return base, base[(*(slice(1, 2 * extent + 1, 2) for extent in shape), ...)]


def _repeated(random: Any, shape: tuple[int, ...], new: Callable[..., Any]) -> tuple[Any, Any]:
    """One row in all places."""
    base = new((1, *shape[1:]) if shape else ())
    return base, np.broadcast_to(base, shape)


def _windows(random: Any, shape: tuple[int, ...], new: Callable[..., Any]) -> tuple[Any, Any]:
    """Rows that overlap by all but one element."""
    if len(shape) != 2 or not all(shape):
        return _plain(random, shape, new)
    base = new((shape[0] + shape[1] - 1,))
    return base, np.lib.stride_tricks.sliding_window_view(base, shape[1])


def _read_only(random: Any, shape: tuple[int, ...], new: Callable[..., Any]) -> tuple[Any, Any]:
    base = new(shape)
    view = base.view()
    view.flags.writeable = False
    return base, view


def _middle(random: Any, shape: tuple[int, ...], new: Callable[..., Any]) -> tuple[Any, Any]:
    """Dense, within more."""
    base = new((shape[0] + 4, *shape[1:]) if shape else (3,))
    return base, base[2 : 2 + shape[0]] if shape else base[1:2].reshape(())


LAYOUTS = [_plain, _fortran, _reversed, _spread, _repeated, _windows, _read_only, _middle]


def values(random: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return np.asarray(random.integers(0, 2, shape), dtype)
    if dtype.kind in "iu":
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(random.bytes(size), dtype).reshape(shape).copy()
    numbers = np.asarray(random.integers(-3, 4, shape), dtype)
    return numbers + 1j * random.integers(-3, 4, shape).astype(dtype) if dtype.kind == "c" else numbers


@dataclass
class Piece:
    """What every rank has for one operation."""

    layout: Callable[..., Any]
    base: Any
    view: Any
    before: Any


def piece(number: int, rank: int, shape: tuple[int, ...], dtype: np.dtype[Any], place: int = 0) -> Piece:
    random = np.random.default_rng([SEED, number, rank, place, 1])
    layout = LAYOUTS[random.integers(len(LAYOUTS))]
    base, view = layout(random, shape, lambda shape: np.asarray(values(random, shape, dtype), dtype))
    assert view.shape == shape, (layout, view.shape, shape)
    return Piece(layout, base, view, base.copy())


# -- operations ---------------------------------------------------------------------------------------


@dataclass
class Operation:
    number: int
    text: str
    shapes: list[list[tuple[int, ...]]]  # of each rank, of each array
    dtype: np.dtype[Any]
    start: Callable[[list[Any]], Any]  # a handle
    expect: Callable[[list[list[Any]]], list[Any]]  # of all ranks' arrays
    in_place: bool = False
    pieces: list[list[Piece]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pieces = [
            [piece(self.number, rank, shape, self.dtype, place) for place, shape in enumerate(shapes)]
            for rank, shapes in enumerate(self.shapes)
        ]

    @property
    def own(self) -> list[Piece]:
        return self.pieces[hvd.rank()]


def reduced(arrays: list[Any], op: int) -> Any:
    stacked = np.stack(arrays)
    dtype = stacked.dtype
    if op in (hvd.Sum, hvd.Average):
        total = stacked.any(0) if dtype.kind == "b" else stacked.sum(0, dtype=dtype)
        if op == hvd.Sum:
            return total
        if dtype.kind in "iu":  # towards zero
            quotient = np.abs(total.astype(object)) // len(arrays) * np.sign(total.astype(object))
            return quotient.astype(dtype) if total.size else total
        return total / dtype.type(len(arrays))
    if op == hvd.Product:
        return stacked.all(0) if dtype.kind == "b" else stacked.prod(0, dtype=dtype)
    return stacked.min(0) if op == hvd.Min else stacked.max(0)


def draw_shape(random: Any) -> tuple[int, ...]:
    limit = [3, 3, 9, 40, 600][random.integers(5)]
    return tuple(int(random.integers(0, limit if axis == 0 else 5)) for axis in range(random.integers(0, 4)))


def rounds_average(dtype: np.dtype[Any]) -> bool:
    """Whether an average of whole numbers may differ from NumPy's; that of halves is rounded once."""
    return dtype.kind == "b" or (bool(hvd.size() & (hvd.size() - 1)) and dtype != np.float16)


def draw_op(random: Any, dtype: np.dtype[Any], count: int = 5) -> int:
    ops = [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product][:count]
    while True:
        op = ops[random.integers(len(ops))]
        average = op == hvd.Average and rounds_average(dtype)
        if not average and not (op in (hvd.Min, hvd.Max) and dtype.kind == "c"):
            return int(op)


def rows_of(array: Any, rank: int) -> Any:
    return np.array_split(array, hvd.size())[rank]


def rows_for(rank: int, array: Any, splits: list[int]) -> Any:
    return array[sum(splits[:rank]) :][: splits[rank]]


def draw(number: int) -> Operation:
    random = np.random.default_rng([SEED, number])
    dtype, shape, size, name = (
        TYPES[random.integers(len(TYPES))],
        draw_shape(random),
        hvd.size(),
        f"n{number}",
    )
    kind = random.integers(6)
    count = int(random.integers(1, 4))
    same = [[shape] * count] * size
    if kind == 0:
        op, in_place = draw_op(random, dtype), bool(random.integers(2))
        call = hvd.grouped_allreduce_async_ if in_place else hvd.grouped_allreduce_async
        return Operation(
            number, f"grouped allreduce {op}", same, dtype, lambda arrays: call(arrays, op=op, name=name),
            lambda all: [reduced([each[i] for each in all], op) for i in range(count)], in_place,
        )  # fmt: skip
    same = [[shape]] * size
    if kind == 1:
        op, in_place = draw_op(random, dtype), bool(random.integers(2))
        call = hvd.allreduce_async_ if in_place else hvd.allreduce_async
        return Operation(
            number, f"allreduce {op}", same, dtype, lambda arrays: call(arrays[0], op=op, name=name),
            lambda all: [reduced([each[0] for each in all], op)], in_place,
        )  # fmt: skip
    if kind == 2:
        root, in_place = int(random.integers(size)), bool(random.integers(2))
        call = hvd.broadcast_async_ if in_place else hvd.broadcast_async
        return Operation(
            number, f"broadcast from {root}", same, dtype, lambda arrays: call(arrays[0], root, name=name),
            lambda all: [all[root][0]], in_place,
        )  # fmt: skip
    shape = shape or (2,)
    if kind == 3:
        op = draw_op(random, dtype, 2)
        return Operation(
            number, f"reducescatter {op}", [[shape]] * size, dtype,
            lambda arrays: hvd.reducescatter_async(arrays[0], op=op, name=name),
            lambda all: [rows_of(reduced([each[0] for each in all], op), hvd.rank())],
        )  # fmt: skip
    rows = [int(random.integers(0, shape[0] + 1)) for _ in range(size)]
    shapes = [[(count, *shape[1:])] for count in rows]
    if kind == 4:
        return Operation(
            number, "allgather", shapes, dtype, lambda arrays: hvd.allgather_async(arrays[0], name=name),
            lambda all: [np.concatenate([each[0] for each in all])],
        )  # fmt: skip
    splits = [random.multinomial(count, [1 / (size + 1)] * (size + 1))[:size].tolist() for count in rows]
    return Operation(
        number, "alltoall", shapes, dtype,
        lambda arrays: hvd.alltoall_async(arrays[0], splits=splits[hvd.rank()], name=name),
        lambda all: [
            np.concatenate([rows_for(hvd.rank(), each[0], s) for each, s in zip(all, splits, strict=True)]),
            [s[hvd.rank()] for s in splits],
        ],
    )  # fmt: skip


# -- running ------------------------------------------------------------------------------------------


def writes_nothing(each: Piece) -> bool:
    return not (each.view.flags.writeable and each.view.flags.c_contiguous)


def start(operation: Operation) -> Any:
    """A handle; None where this rank, and so every rank, has been refused."""
    arrays = [each.view for each in operation.own]
    if operation.in_place and any(writes_nothing(each) for pieces in operation.pieces for each in pieces):
        if any(writes_nothing(each) for each in operation.own):
            with pytest.raises(ValueError, match=r"contiguous|read-only"):
                operation.start(arrays)
        return None
    return operation.start(arrays)


def check(operation: Operation, handle: Any) -> None:
    results = hvd.synchronize(handle)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    expected = operation.expect([[each.view for each in map(copy_before, p)] for p in operation.pieces])
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(result), wanted, strict=isinstance(wanted, np.ndarray))
    for each, wanted in zip(operation.own, expected, strict=False):
        if operation.in_place:
            np.testing.assert_array_equal(each.view, wanted)
            each.view[...] = copy_before(each).view  # and nothing beside it
        np.testing.assert_array_equal(each.base, each.before)


def copy_before(each: Piece) -> Piece:
    """The same view of the base as it was."""
    if each.base is each.view:
        return Piece(each.layout, each.before, each.before, each.before)
    offset = each.view.__array_interface__["data"][0] - each.base.__array_interface__["data"][0]
    view = np.ndarray(each.view.shape, each.view.dtype, each.before, offset, each.view.strides)
    return Piece(each.layout, each.before, view, each.before)


def describe(operation: Operation) -> str:
    shapes = [[(p.view.shape, p.layout.__name__) for p in pieces] for pieces in operation.pieces]
    return (
        f"HOROVOD_TEST_SEED={SEED} HOROVOD_TEST_OPERATION={operation.number}: {operation.text} of "
        f"{operation.dtype}{', in place' if operation.in_place else ''}: {shapes}"
    )


def test_every_layout() -> None:
    only = os.environ.get("HOROVOD_TEST_OPERATION")
    numbers = [int(only)] if only else range(OPERATIONS)
    for first in range(0, len(numbers), IN_FLIGHT):
        operations = [draw(number) for number in numbers[first : first + IN_FLIGHT]]
        order = np.random.default_rng([SEED, first, hvd.rank()])
        order.shuffle(operations)
        try:
            handles = []
            for operation in operations:
                handles.append((operation, start(operation)))
            order.shuffle(handles)
            for operation, handle in handles:
                if handle is not None:
                    check(operation, handle)
        except Exception as error:
            raise AssertionError(describe(operation)) from error


# -- sparse -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average], ids=["sum", "average"])
def test_sparse(op: int) -> None:
    """Entries that are there twice, none at all, several dimensions, on each rank others."""
    torch = pytest.importorskip("torch")
    import horovod.torch as on_torch

    for number in range(OPERATIONS // 10):
        common = np.random.default_rng([SEED, number, 7])
        shape = [int(common.integers(1, 6)) for _ in range(common.integers(1, 4))]
        dense = int(common.integers(0, len(shape)))
        dtype = [torch.float32, torch.float64, torch.int64][common.integers(3 if op == hvd.Sum else 2)]
        tensors = []
        for rank in range(hvd.size()):
            random = np.random.default_rng([SEED, number, rank, 8])
            entries = int(random.integers(0, 7))
            indices = torch.tensor(
                np.stack([random.integers(0, extent, entries) for extent in shape[: len(shape) - dense]])
            )
            numbers = torch.tensor(random.integers(-9, 10, (entries, *shape[len(shape) - dense :])))
            tensors.append(torch.sparse_coo_tensor(indices, numbers.to(dtype), shape))
        result = on_torch.sparse_allreduce_async(tensors[hvd.rank()], f"sparse {number}", op)()
        expected = sum(each.to_dense() for each in tensors)
        if op == hvd.Average:
            expected = expected / hvd.size()
        assert result.dtype == dtype
        torch.testing.assert_close(
            result.to_dense(), expected, msg=f"HOROVOD_TEST_SEED={SEED}, number {number}"
        )
