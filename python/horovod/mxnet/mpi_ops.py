"""The collectives for MXNet's arrays.

Those whose results have a known shape return at once, as MXNet's own operations do; allgather and alltoall
wait, since only the ranks together know how many rows come. ``priority`` is MXNet's and the engine's: larger
runs earlier among what is ready, equal on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx

from horovod import _core
from horovod.arrays import NumPyArrays
from horovod.collectives import reduction_of
from horovod.common import basics
from horovod.common.basics import *  # noqa: F403
from horovod.common.basics import Average, ProcessSet, global_process_set
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import check_member
from horovod.exchanges import Exchanges, check_scatter_op
from horovod.mxnet.engine import check, empty, push
from horovod.requests import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER

__all__ = [
    *basics.__all__,
    "HorovodInternalError",
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]


def _allreduce(
    tensors: Sequence[Any],
    in_place: bool,
    average: bool | None,
    name: str | None,
    priority: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    op: int | None,
    grouped: bool = False,
) -> Sequence[Any]:
    check(ALLREDUCE, tensors)
    outputs = None if in_place else [empty(tensor) for tensor in tensors]
    push(
        ALLREDUCE,
        tensors,
        outputs,
        name=name,
        process_set=process_set,
        priority=priority,
        reduction=reduction_of(average, op, 3),
        prescale=prescale_factor,
        postscale=postscale_factor,
        grouped=grouped,
    )
    return tensors if outputs is None else outputs


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """The reduction of an array over all ranks, in a new array of the same shape and type.

    Args:
        tensor: the same shape and type on all ranks.
        average: the old way to say ``op=Average`` (True) or ``op=Sum`` (False).
        name: equal on all ranks. None: calls are matched by their order in the program.
        priority: larger runs earlier among what is ready; equal on all ranks.
        prescale_factor: the array is multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it.
        process_set: the ranks that take part.
        op: Average (the default; integers truncate), Sum, Min, Max, Product or Adasum.

    Raises:
        ValueError: an argument of this rank makes no sense; nothing was sent.
        mxnet.base.MXNetError: the ranks disagree, or one is lost; where the result is waited for.
    """
    factors = (prescale_factor, postscale_factor)
    return _allreduce([tensor], False, average, name, priority, *factors, process_set, op)[0]


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """As ``allreduce``, in place; returns the array."""
    factors = (prescale_factor, postscale_factor)
    return _allreduce([tensor], True, average, name, priority, *factors, process_set, op)[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Sequence[Any]:
    """As ``allreduce``, several arrays of any types as one operation: all of them or none."""
    factors = (prescale_factor, postscale_factor)
    return _allreduce(tensors, False, average, name, priority, *factors, process_set, op, True)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Sequence[Any]:
    """As ``grouped_allreduce``, in place; returns the arrays."""
    factors = (prescale_factor, postscale_factor)
    return _allreduce(tensors, True, average, name, priority, *factors, process_set, op, True)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's array, in a new one; ``root_rank`` is a rank of the job, also in a process set."""
    check(BROADCAST, [tensor])
    output = empty(tensor)
    push(BROADCAST, [tensor], [output], name=name, process_set=process_set, priority=priority, root=root_rank)
    return output


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As ``broadcast``, in place; returns the array."""
    push(BROADCAST, [tensor], name=name, process_set=process_set, priority=priority, root=root_rank)
    return tensor


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """The sum or average over all ranks, of which every rank keeps its rows.

    The first dimension is divided; where it does not divide evenly the first ranks get one row more.

    Raises:
        ValueError: another ``op`` than Average and Sum, or fewer rows than ranks, of an array of ``mx.nd``,
            which can't be empty.
    """
    return _reducescatter([tensor], op, name, priority, process_set, prescale_factor, postscale_factor)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """As ``reducescatter``, several arrays as one operation."""
    factors = (prescale_factor, postscale_factor)
    return _reducescatter(tensors, op, name, priority, process_set, *factors, grouped=True)


def _reducescatter(
    tensors: Sequence[Any],
    op: int,
    name: str | None,
    priority: int,
    process_set: ProcessSet,
    prescale_factor: float,
    postscale_factor: float,
    grouped: bool = False,
) -> list[Any]:
    check_scatter_op(op)
    check(REDUCESCATTER, tensors)
    check_member(process_set)
    ranks, own = len(process_set.ranks), process_set.ranks.index(_core.placement()[0])
    outputs = []
    for tensor in tensors:
        whole, rest = divmod(tensor.shape[0], ranks)
        if not whole and not isinstance(tensor, mx.np.ndarray):
            raise ValueError(
                f"reducescatter: {rest} rows for {ranks} ranks leave some without any, but an array of mx.nd "
                "can't be empty; pass more rows, or arrays of mx.np"
            )
        outputs.append(empty(tensor, whole + (own < rest)))
    push(
        REDUCESCATTER,
        tensors,
        outputs,
        name=name,
        process_set=process_set,
        priority=priority,
        reduction=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        grouped=grouped,
    )
    return outputs


# ---- by waiting ------------------------------------------------------------------------------------------


class _Memory(NumPyArrays):
    """The values of MXNet's arrays, once they are there."""

    def dense(self, array: Any) -> Any:
        return array.asnumpy()


_exchanges: Exchanges[Any] = Exchanges(_Memory())


def _as(like: Any, array: Any) -> Any:
    module = mx.np if isinstance(like, mx.np.ndarray) else mx.nd
    return module.array(array, dtype=array.dtype, ctx=like.ctx)


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The ranks' arrays joined along the first dimension, which may differ.

    Waits; ``priority`` has no effect.
    """
    check(ALLGATHER, [tensor])
    return _as(tensor, _exchanges.allgather(tensor, name, process_set))


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """As ``allgather``, several arrays as one operation."""
    check(ALLGATHER, tensors)
    joined = _exchanges.grouped_allgather(tensors, name, process_set)
    return [_as(tensor, array) for tensor, array in zip(tensors, joined, strict=True)]


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank its rows of this rank's array; returns what the ranks gave for this one, by rank.

    ``splits[r]`` rows go to rank r of the process set; without it all get the same number. With it the result
    is a pair: the rows, and how many of them came from each rank. Waits; ``priority`` has no effect.
    """
    check(ALLTOALL, [tensor])
    if isinstance(splits, mx.nd.NDArray):
        splits = splits.asnumpy()
    outcome = _exchanges.alltoall(tensor, splits, name, process_set)
    if splits is None:
        return _as(tensor, outcome)
    return tuple(_as(tensor, array) for array in outcome)
