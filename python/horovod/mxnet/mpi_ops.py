"""The collectives for MXNet's arrays.

``priority`` is MXNet's and the engine's: operations with a larger one run earlier among those that are ready;
it must be equal on all ranks.
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

_basics = HorovodBasics(__file__)  # programs call its methods by this name


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
    """Reduces an array over all ranks, into a new array of the same shape and type.

    Args:
        tensor: the same shape and type on all ranks.
        average: the old form of ``op=Average`` (True) or ``op=Sum`` (False).
        name: equal on all ranks. None: calls are matched by their order in the program.
        priority: operations with a larger one run earlier among those that are ready; equal on all ranks.
        prescale_factor: the array is multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it.
        process_set: the ranks that take part.
        op: Average (the default; integers truncate), Sum, Min, Max, Product or Adasum.

    Raises:
        ValueError: an argument of this rank is invalid; nothing was sent.
        mxnet.base.MXNetError: the ranks disagree, or one is lost; raised where the program waits for the
            result.
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
    """Does ``allreduce`` in place; returns the array."""
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
    """Does ``allreduce`` of several arrays of any types as one operation: all of them or none."""
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
    """Does ``grouped_allreduce`` in place; returns the arrays."""
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
    """Returns the root's array, in a new one; ``root_rank`` is a rank of the job, even in a process set."""
    return run(Call(BROADCAST, [tensor], first, name, process_set, root=root_rank, priority=priority))


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Does ``broadcast`` in place; returns the array."""
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
    """Sums or averages an array over all ranks; every rank keeps its rows of the result.

    The first dimension is divided among the ranks; if it does not divide evenly, the first ranks get one row
    more.

    Raises:
        ValueError: ``op`` is neither Average nor Sum, or an array of ``mx.nd``, which can't be empty, has
            fewer rows than there are ranks.
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
    """Does ``reducescatter`` of several arrays as one operation."""
    how = (check_scatter_op(op), (prescale_factor, postscale_factor))
    return run(Call(REDUCESCATTER, tensors, every, name, process_set, *how, grouped=True, priority=priority))


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Joins the ranks' arrays along the first dimension, which may differ. Waits."""
    return run(Call(ALLGATHER, [tensor], first, name, process_set, priority=priority))


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Does ``allgather`` of several arrays as one operation."""
    return run(Call(ALLGATHER, tensors, every, name, process_set, grouped=True, priority=priority))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank its rows of this rank's array; returns the rows for this rank, ordered by sender.

    ``splits[r]`` rows go to rank r of the process set; without ``splits`` all ranks get the same number. With
    ``splits`` the result is a pair: the rows, and the number of rows from each rank. Waits.
    """
    if isinstance(splits, mx.nd.NDArray):
        splits = splits.asnumpy()
    with argument_errors():
        counts, pick = (None, first) if splits is None else (splits_of(splits), tuple)
    return run(Call(ALLTOALL, [tensor], pick, name, process_set, splits=counts, priority=priority))
