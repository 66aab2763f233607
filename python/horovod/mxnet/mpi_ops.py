"""The collectives for MXNet's arrays.

``priority`` is MXNet's and the engine's: larger runs earlier among what is ready, equal on all ranks.
:mod:`horovod.mxnet.engine` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx

from horovod.common import basics
from horovod.common.basics import *  # noqa: F403
from horovod.common.basics import Average, HorovodBasics, ProcessSet, global_process_set
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import reduction_of
from horovod.framework.collectives import check_scatter_op, splits_of
from horovod.framework.requests import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    REDUCESCATTER,
    Call,
    every,
    first,
)
from horovod.mxnet.engine import argument_errors, run

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

_basics = HorovodBasics(__file__)  # for programs that call what it has by this name


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
    how = (reduction_of(average, op), (prescale_factor, postscale_factor))
    return run(Call(ALLREDUCE, [tensor], first, name, process_set, *how, priority=priority))


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
    how = (reduction_of(average, op), (prescale_factor, postscale_factor))
    call = Call(ALLREDUCE, [tensor], first, name, process_set, *how, priority=priority)
    return run(call, in_place=True)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """As ``allreduce``, several arrays of any types as one operation: all of them or none."""
    how = (reduction_of(average, op), (prescale_factor, postscale_factor))
    return run(Call(ALLREDUCE, tensors, every, name, process_set, *how, grouped=True, priority=priority))


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """As ``grouped_allreduce``, in place; returns the arrays."""
    how = (reduction_of(average, op), (prescale_factor, postscale_factor))
    return run(
        Call(ALLREDUCE, tensors, every, name, process_set, *how, grouped=True, priority=priority),
        in_place=True,
    )


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's array, in a new one; ``root_rank`` is a rank of the job, also in a process set."""
    return run(Call(BROADCAST, [tensor], first, name, process_set, root=root_rank, priority=priority))


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As ``broadcast``, in place; returns the array."""
    return run(
        Call(BROADCAST, [tensor], first, name, process_set, root=root_rank, priority=priority), in_place=True
    )


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
    how = (check_scatter_op(op), (prescale_factor, postscale_factor))
    return run(Call(REDUCESCATTER, [tensor], first, name, process_set, *how, priority=priority))


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
    how = (check_scatter_op(op), (prescale_factor, postscale_factor))
    return run(Call(REDUCESCATTER, tensors, every, name, process_set, *how, grouped=True, priority=priority))


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The ranks' arrays joined along the first dimension, which may differ. Waits."""
    return run(Call(ALLGATHER, [tensor], first, name, process_set, priority=priority))


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """As ``allgather``, several arrays as one operation."""
    return run(Call(ALLGATHER, tensors, every, name, process_set, grouped=True, priority=priority))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank its rows of this rank's array; returns what the ranks gave for this one, by rank.

    ``splits[r]`` rows go to rank r of the process set; without it all get the same number. With it the result
    is a pair: the rows, and how many of them came from each rank. Waits.
    """
    if isinstance(splits, mx.nd.NDArray):
        splits = splits.asnumpy()
    with argument_errors():
        counts, pick = (None, first) if splits is None else (splits_of(splits), tuple)
    return run(Call(ALLTOALL, [tensor], pick, name, process_set, splits=counts, priority=priority))
