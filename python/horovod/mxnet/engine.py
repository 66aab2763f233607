"""Collectives as operations on the engine of MXNet: they start when their arrays are ready."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import mxnet as mx

from horovod import _core
from horovod.common.process_sets import global_process_set
from horovod.framework.arrays import CopiedArrays
from horovod.framework.collectives import own_rows
from horovod.framework.requests import Call

T = TypeVar("T")


class _Call(ctypes.Structure):
    """struct mxnet_call of src/native/mxnet.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("operation", "reduction", "root", "process_set", "grouped")),
        *((name, ctypes.c_int32) for name in ("generated", "priority")),
        *((name, ctypes.c_double) for name in ("prescale", "postscale")),
        ("name", ctypes.c_char_p),
        ("count", ctypes.c_int32),
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
    )


_prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Call))
_native_push = _prototype(_core.mxnet_push(mx.base._LIB._handle))


class _Counter:
    """Numbers calls without a name in the order of the program; MXNet's engine runs them in any order."""

    def __init__(self) -> None:
        self._job: list[int] = []
        self._numbers: dict[int, Iterator[int]] = {}

    def next(self, process_set: int) -> int:
        if self._job is not global_process_set.ranks:  # another list for every job
            self._job, self._numbers = global_process_set.ranks, {}
        return next(self._numbers.setdefault(process_set, itertools.count()))


_counter = _Counter()


def _check(operation: _core.Operation, arrays: Sequence[Any]) -> None:
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


def _push(call: Call[Any, Any], inputs: Sequence[Any], outputs: Sequence[Any] | None) -> None:
    request = call.request
    operation, process_set = request.operation, request.process_set
    name = f"noname.mxnet.{_counter.next(process_set)}" if call.name is None else call.name
    native = _Call(
        operation=operation.number,
        reduction=request.reduction,
        root=request.root,
        process_set=process_set,
        grouped=request.grouped,
        generated=call.name is None,
        priority=request.priority,
        prescale=request.prescale,
        postscale=request.postscale,
        name=name.encode(),
        count=len(inputs),
        inputs=_handles(inputs),
        outputs=None if outputs is None else _handles(outputs),
    )
    code = _native_push(ctypes.byref(native))
    if code == -2:
        raise MemoryError(f"{operation.name}: out of memory")
    mx.base.check_call(code)


def _module_of(array: Any) -> Any:
    return mx.np if isinstance(array, mx.np.ndarray) else mx.nd


def _empty(like: Any, call: Call[Any, Any]) -> Any:
    """Allocates an array for the result of a call with this array."""
    shape, module, ranks = like.shape, _module_of(like), call.process_set.ranks
    if call.request.operation.result == "part":
        if shape[0] < len(ranks) and module is mx.nd:
            raise ValueError(
                f"reducescatter: {shape[0]} rows for {len(ranks)} ranks leave some without any, but an array "
                "of mx.nd can't be empty; pass more rows, or arrays of mx.np"
            )
        shape = (own_rows(shape[0], ranks), *shape[1:])
    return module.empty(shape, dtype=like.dtype, ctx=like.ctx)


class _Copies(CopiedArrays[Any]):
    """MXNet's arrays, for operations whose results have a shape that no rank knows by itself."""

    def values(self, array: Any) -> Any:
        return array.asnumpy()

    def array(self, values: Any, like: Any) -> Any:
        return _module_of(like).array(values, dtype=values.dtype, ctx=like.ctx)


class ArgumentError(mx.base.MXNetError, ValueError):  # type: ignore[misc]
    """A wrong argument: an error of MXNet's own operations, and a ValueError as in the other packages."""


@contextlib.contextmanager
def argument_errors() -> Iterator[None]:
    """Converts every ValueError to an ArgumentError."""
    try:
        yield
    except ValueError as error:
        raise ArgumentError(str(error)) from error


@argument_errors()
def run(call: Call[Any, T], in_place: bool = False) -> T:
    """Puts a call on MXNet's engine, and returns its arrays at once, as MXNet's own operations do.

    Errors are raised where the program next waits for the arrays. Allgather and alltoall wait here: only the
    ranks together know the number of rows.
    """
    operation, arrays = call.request.operation, list(call.tensors)
    _check(operation, arrays)
    if operation.result in ("joined", "exchanged"):
        return call.pick(_Copies().run(call))
    outputs = None if in_place else [_empty(array, call) for array in arrays]
    if arrays:
        _push(call, arrays, outputs)
    return call.pick(arrays if outputs is None else outputs)


def only(name: str, arrays: Sequence[Any]) -> Any:
    """Returns a parameter's array; ValueError if it has one on each of several devices."""
    if len(arrays) > 1:
        raise ValueError(
            f"{name} is on {len(arrays)} devices, but a rank is one device: start a rank for each "
            "(horovodrun -np N)"
        )
    return arrays[0]
