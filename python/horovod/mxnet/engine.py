"""Collectives as operations on the engine of MXNet: they start when their arrays are ready."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import mxnet as mx

from horovod import _core
from horovod.common.basics import Sum
from horovod.common.process_sets import ProcessSet, check_member, global_process_set


class _Call(ctypes.Structure):
    """struct mxnet_call of src/native/mxnet.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("operation", "reduction", "root", "process_set", "grouped")),
        ("priority", ctypes.c_int32),
        *((name, ctypes.c_double) for name in ("prescale", "postscale")),
        ("name", ctypes.c_char_p),
        ("count", ctypes.c_int32),
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
    )


_push = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Call))(_core.mxnet_push(mx.base._LIB._handle))


class _Counter:
    """Numbers what has no name, in the order of the program: the engine's is another one on every rank."""

    def __init__(self) -> None:
        self._job: list[int] = []
        self._numbers: dict[tuple[int, int], Iterator[int]] = {}

    def next(self, operation: _core.Operation, process_set: int) -> int:
        if self._job is not global_process_set.ranks:  # another list for every job
            self._job, self._numbers = global_process_set.ranks, {}
        return next(self._numbers.setdefault((process_set, operation.number), itertools.count()))


_counter = _Counter()


def check(operation: _core.Operation, arrays: Sequence[Any]) -> None:
    """ValueError for what can't be sent."""
    _core.placement()  # ValueError before init
    for index, array in enumerate(arrays):
        text = f"{operation.name}: array {index}"
        if not isinstance(array, mx.nd.NDArray):
            raise ValueError(f"{text} is {type(array).__name__}; horovod.mxnet takes MXNet's arrays")
        if array.stype != "default":
            raise ValueError(f"{text} is sparse ({array.stype}); pass array.tostype('default')")
        if not array.ctx.device_type.startswith("cpu"):
            raise ValueError(f"{text} is on {array.ctx}; this version takes arrays in the host's memory")
        if operation.shape in ("same_rows", "divided") and not array.shape:
            raise ValueError(f"{text} has no dimensions; it must have rows")


def _handles(arrays: Sequence[Any]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.handle for array in arrays))


def push(
    operation: _core.Operation,
    inputs: Sequence[Any],
    outputs: Sequence[Any] | None = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    priority: int = 0,
    reduction: int = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    grouped: bool = False,
) -> None:
    """Starts a collective; without outputs in place. Errors come where an array is next waited for."""
    check(operation, inputs)
    number = check_member(process_set)
    if not inputs:
        return
    call = _Call(
        operation=operation.number,
        reduction=reduction,
        root=root,
        process_set=number,
        grouped=grouped,
        priority=priority,
        prescale=prescale,
        postscale=postscale,
        name=(name or f"noname.{_counter.next(operation, number)}").encode(),
        count=len(inputs),
        inputs=_handles(inputs),
        outputs=None if outputs is None else _handles(outputs),
    )
    code = _push(ctypes.byref(call))
    if code == -2:
        raise MemoryError(f"{operation.name}: out of memory")
    mx.base.check_call(code)


def empty(like: Any, rows: int | None = None) -> Any:
    """Memory for a result of the same kind, type and shape, or with so many rows."""
    shape = like.shape if rows is None else (rows, *like.shape[1:])
    if isinstance(like, mx.np.ndarray):
        return mx.np.empty(shape, dtype=like.dtype, ctx=like.ctx)
    return mx.nd.empty(shape, like.ctx, like.dtype)


def only(name: str, arrays: Sequence[Any]) -> Any:
    """A parameter's array; ValueError where it lies on several devices."""
    if len(arrays) > 1:
        raise ValueError(
            f"{name} lies on {len(arrays)} devices, but a rank is one device: start a rank for each "
            "(horovodrun -np N)"
        )
    return arrays[0]
