"""The collectives for dense tensors: eager, in ``tf.function`` and in graphs of TensorFlow 1.

With all that goes along with them: reductions, process sets, ranks. Programs import it from here, or say
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

_basics = HorovodBasics(__file__)  # for programs that call what it has by this name
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
) -> Any:
    """The reduction of a dense tensor over all ranks."""
    how = reducing(op, prescale_factor, postscale_factor)
    return call_one("Allreduce", tensor, name, ignore_name_scope, process_set, **how)


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """The reduction of dense tensors of any types as one operation."""
    how = reducing(op, prescale_factor, postscale_factor)
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
    """The reduction of a dense tensor, of which every rank keeps its rows."""
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
    """The same of several dense tensors as one operation."""
    how = reducing(check_scatter_op(op), prescale_factor, postscale_factor)
    return call_group("Reducescatter", tensors, name, ignore_name_scope, process_set, **how)


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The ranks' tensors joined along the first dimension, which may differ and be zero.

    Shapes ``[n_r, …]`` on rank r give ``[n_0 + n_1 + …, …]`` everywhere. Errors as of ``allreduce``; a tensor
    without dimensions is a tf.errors.InvalidArgumentError.
    """
    return call_one("Allgather", tensor, name, ignore_name_scope, process_set)


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Several tensors of any types joined as one operation, each as by ``allgather``."""
    return call_group("Allgather", tensors, name, ignore_name_scope, process_set)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's tensor, which has the same shape and type on all ranks.

    ``root_rank`` is a rank of the job, also in a process set.
    """
    return call_one("Broadcast", tensor, name, ignore_name_scope, process_set, root_rank=root_rank)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gives the root's values of these variables to all ranks, in the variables; they come back.

    In a graph of TensorFlow 1 what comes back are the operations that do so.
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
    """Gives every rank its rows of this rank's tensor; returns what the ranks gave for this one, by rank.

    ``splits[r]`` rows go to rank r of the process set; without it all get the same number. With it the result
    is a pair: the rows, and how many of them came from each rank, as a tensor of the type of ``splits``.
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
    """Says that this rank has no more data, and waits until every rank has said so.

    Meanwhile the others' allreduces go on without it: it contributes what changes nothing. Returns the rank
    that joined last, the same on all ranks, as a tensor.
    """
    return call("Join", "join")


def rank_op(name: str | None = None) -> Any:
    """This process's rank in the job, read when it runs."""
    return functions.HorovodRank(name=name)


def local_rank_op(name: str | None = None) -> Any:
    """This process's rank on its host, read when it runs."""
    return functions.HorovodLocalRank(name=name)


def local_size_op(name: str | None = None) -> Any:
    """The number of ranks on this host, read when it runs."""
    return functions.HorovodLocalSize(name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of ranks in a process set, 0 being all, read when it runs."""
    return functions.HorovodSize(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 where this process is a member of the process set, else 0; read when it runs."""
    return functions.HorovodProcessSetIncluded(process_set_id=process_set_id, name=name)


def _alltoall_grad(op: Any, grad_wrt_output: Any, grad_wrt_received_splits: Any) -> list[Any]:
    """The gradients of an alltoall's tensor and splits, for gradient functions of other libraries."""
    return derivatives.of_alltoall(op, grad_wrt_output, grad_wrt_received_splits)[:2]


_executing_eagerly = tf.executing_eagerly  # as other libraries call it
