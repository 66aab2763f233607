"""The collectives for dense tensors: eager, in ``tf.function`` and in graphs of TensorFlow 1.

The module also exports reductions, process sets and ranks, as programs import them from here or use
``hvd.mpi_ops``; MPI is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._keras.variables import variables_of
from horovod.common import basics
from horovod.common.basics import *  # noqa: F403
from horovod.common.basics import HorovodBasics, ProcessSet, Sum, global_process_set
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from horovod.framework.collectives import barrier as barrier
from horovod.framework.collectives import check_scatter_op
from horovod.framework.divergence import count_join
from horovod.tensorflow import derivatives
from horovod.tensorflow.library import call, call_group, call_one, functions, in_order, invalid, reducing

__all__ = [
    *basics.__all__,
    "HorovodInternalError",
    "allgather",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]

_basics = HorovodBasics(__file__)  # programs call its methods by this name
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
check_num_rank_power_of_2 = num_rank_is_power_2


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    step: bool = False,
) -> Any:
    """Reduces a dense tensor over all ranks; ``step``: it reports a step of training under its name."""
    how = reducing(op, prescale_factor, postscale_factor) | {"step": int(step)}
    return call_one("Allreduce", tensor, name, ignore_name_scope, process_set, **how)


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    step: bool = False,
) -> list[Any]:
    """Reduces dense tensors of any types as one operation; ``step`` is as for ``_allreduce``."""
    how = reducing(op, prescale_factor, postscale_factor) | {"step": int(step)}
    return call_group("Allreduce", tensors, name, ignore_name_scope, process_set, **how)


def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces a dense tensor; every rank keeps its rows of the result."""
    how = reducing(check_scatter_op(op), prescale_factor, postscale_factor)
    return call_one("Reducescatter", tensor, name, ignore_name_scope, process_set, **how)


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Does ``_reducescatter`` of several dense tensors as one operation."""
    how = reducing(check_scatter_op(op), prescale_factor, postscale_factor)
    return call_group("Reducescatter", tensors, name, ignore_name_scope, process_set, **how)


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Joins the ranks' tensors along the first dimension, which may differ and be zero.

    Shapes ``[n_r, …]`` on rank r give ``[n_0 + n_1 + …, …]`` everywhere. Errors are those of ``allreduce``; a
    tensor without dimensions is a tf.errors.InvalidArgumentError.
    """
    return call_one("Allgather", tensor, name, ignore_name_scope, process_set)


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Joins several tensors of any types as one operation, each as by ``allgather``."""
    return call_group("Allgather", tensors, name, ignore_name_scope, process_set)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's tensor, which has the same shape and type on all ranks.

    ``root_rank`` is a rank of the job, even in a process set.
    """
    return call_one("Broadcast", tensor, name, ignore_name_scope, process_set, root_rank=root_rank)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gives the root's values of these variables to all ranks, and returns the variables.

    In a graph of TensorFlow 1 it returns the operations that do so.
    """
    variables = variables_of(variables)
    names = [None if name is None else f"{name}.{i}" for i in range(len(variables))]
    assigned: list[Any] = []
    for variable, each in zip(variables, names, strict=True):
        with in_order(assigned):
            assigned.append(variable.assign(broadcast(variable, root_rank, each, process_set=process_set)))
    outside = tf.executing_eagerly() or tf.inside_function()
    return variables if outside else assigned


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank its rows of this rank's tensor; returns the rows for this rank, ordered by sender.

    ``splits[r]`` rows go to rank r of the process set; without ``splits`` all ranks get the same number. With
    ``splits`` the result is a pair: the rows, and the number of rows from each rank in the type of
    ``splits``.
    """
    counts = tf.constant([], tf.int64) if splits is None else tf.convert_to_tensor(splits)
    if not counts.dtype.is_integer:
        raise invalid(f"alltoall: splits must be integers, not {counts.dtype.name}")
    sent = tf.cast(counts, tf.int64)
    rows, received = call_one(
        "Alltoall", tensor, name, ignore_name_scope, process_set, splits=sent, splits_given=splits is not None
    )
    return rows if splits is None else (rows, tf.cast(received, counts.dtype))


def join() -> Any:
    """Signals that this rank has run out of data and waits for all ranks to do the same.

    Until then the others' allreduces continue without it: it contributes neutral values. Returns the rank
    that joined last, the same on all ranks, as a tensor.
    """
    last = call("Join", "join")
    if tf.executing_eagerly():
        count_join()
    return last


def rank_op(name: str | None = None) -> Any:
    """Returns an operation that reads this process's rank in the job when it runs."""
    return functions.HorovodRank(name=name)


def local_rank_op(name: str | None = None) -> Any:
    """Returns an operation that reads this process's rank on its host when it runs."""
    return functions.HorovodLocalRank(name=name)


def local_size_op(name: str | None = None) -> Any:
    """Returns an operation that reads the number of ranks on this host when it runs."""
    return functions.HorovodLocalSize(name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns an operation that reads the size of a process set when it runs; set 0 has all ranks."""
    return functions.HorovodSize(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns an operation that reads when it runs whether this process is a member: 1, otherwise 0."""
    return functions.HorovodProcessSetIncluded(process_set_id=process_set_id, name=name)


def _alltoall_grad(op: Any, grad_wrt_output: Any, grad_wrt_received_splits: Any) -> list[Any]:
    """Returns the gradients of an alltoall's tensor and splits, for gradient functions of other libraries."""
    return derivatives.of_alltoall(op, grad_wrt_output, grad_wrt_received_splits)[:2]


_executing_eagerly = tf.executing_eagerly  # other libraries use this name
