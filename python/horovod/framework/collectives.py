"""Every collective operation, written once for all frameworks.

The differences between frameworks are in :class:`horovod.framework.arrays.Arrays`. A framework's module makes
one :class:`Collectives` and exports its methods.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from horovod import _core
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, check_member, global_process_set
from horovod.common.util import reduction_of
from horovod.framework.arrays import Arrays
from horovod.framework.compression import Compressor, NoneCompressor, send_compressed
from horovod.framework.divergence import count_join
from horovod.framework.handles import Handle
from horovod.framework.requests import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    JOIN,
    REDUCESCATTER,
    A,
    Call,
    asynchronous,
    blocking,
    every,
    first,
    named,
)

T = TypeVar("T")


def splits_of(splits: Any) -> list[int]:
    """Returns numbers of rows from a list, or from a one-dimensional array of integers of any framework."""
    try:
        return [operator.index(n) for n in (splits.tolist() if hasattr(splits, "tolist") else splits)]
    except TypeError:
        raise ValueError(
            f"splits must be integers in one dimension, one for each rank, not {splits}"
        ) from None


class UnsupportedReductionError(NotImplementedError, ValueError):
    """An operation can't do this reduction. NotImplementedError is the RuntimeError that programs expect."""


def check_scatter_op(op: int) -> int:
    """Returns the reduction; raises UnsupportedReductionError unless reducescatter can do it."""
    if op not in REDUCESCATTER.reductions:
        names = [name for name, number in _core.reductions.items() if number in REDUCESCATTER.reductions]
        does = " and ".join(f"op={name.capitalize()}" for name in names)
        raise UnsupportedReductionError(f"{REDUCESCATTER.name} does {does} only")
    return op


def own_rows(extent: int, ranks: Sequence[int]) -> int:
    """Returns how many of ``extent`` rows reducescatter gives to this rank of a process set.

    The first ``extent % len(ranks)`` ranks get one row more than the others.
    """
    return extent // len(ranks) + (ranks.index(_core.placement()[0]) < extent % len(ranks))


@named
class Collectives(Generic[A]):
    """The operations for one kind of arrays.

    Names must be equal on all ranks; operations without a name are matched by their order. A trailing
    underscore means in place; ``_async`` returns a :class:`horovod.framework.handles.Handle` at once. Any
    thread may call.

    Raises:
        ValueError: an argument of this rank makes no sense; nothing was sent.
        HorovodInternalError: the ranks disagree, or one is lost.
    """

    def __init__(self, arrays: Arrays[A]) -> None:
        self._arrays = arrays

    def outcome(self, call: Call[A, T]) -> T:
        """Runs a call that makes new tensors; frameworks with gradients record it."""
        return call.pick(self._arrays.run(call))

    # -- allreduce ---------------------------------------------------------------------------------

    def _allreduce(
        self,
        tensor: A,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Call[A, A]:
        reduction, factors = reduction_of(average, op), (prescale_factor, postscale_factor)
        return Call(ALLREDUCE, [tensor], first, name, process_set, reduction, factors)

    def _grouped_allreduce(
        self,
        tensors: Sequence[A],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Call[A, list[A]]:
        factors = (prescale_factor, postscale_factor)
        reduction = reduction_of(average, op)
        return Call(ALLREDUCE, tensors, every, name, process_set, reduction, factors, grouped=True)

    allreduce_async = asynchronous(
        _allreduce, "Starts the reduction of a tensor over all ranks into a new one."
    )

    def allreduce_async_(
        self,
        tensor: A,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[A]:
        """Starts the reduction of a tensor over all ranks, in place."""
        # Written out: for the gradients of a step `asynchronous` would take longer than the engine takes.
        reduction = op if op is not None and average is None else reduction_of(average, op)
        number = 0 if process_set is global_process_set else check_member(process_set)
        request = _core.describe(
            ALLREDUCE,
            reduction=reduction,
            prescale=prescale_factor,
            postscale=postscale_factor,
            process_set=number,
        )
        return _core.submit(request, name, (tensor,), finish=first)

    allreduce_ = blocking(_allreduce, "Reduces a tensor over all ranks, in place.", in_place=True)
    grouped_allreduce_async = asynchronous(
        _grouped_allreduce, "Starts the reduction of several tensors as one operation: all of them or none."
    )
    grouped_allreduce_async_ = asynchronous(
        _grouped_allreduce, "Does the same as ``grouped_allreduce_async``, in place.", in_place=True
    )
    grouped_allreduce_ = blocking(
        _grouped_allreduce, "Reduces several tensors as one operation, in place.", in_place=True
    )

    def allreduce(
        self,
        tensor: A,
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> A:
        """Reduces a tensor over all ranks, into a new tensor of the same shape and type.

        Args:
            tensor: the same shape and type on all ranks.
            average: the old form of ``op=Average`` (True) or ``op=Sum`` (False).
            name: equal on all ranks; needed if the ranks may start operations in different orders.
            compression: ``Compression.fp16``, or a class of your own, makes messages smaller.
            op: Average (the default; integers truncate), Sum, Min, Max, Product or Adasum.
            prescale_factor: the tensor is multiplied by it before the reduction.
            postscale_factor: the result is multiplied by it.
            process_set: the ranks that take part.
        """
        small, context = compression.compress(tensor)
        call = self._allreduce(small, average, name, op, prescale_factor, postscale_factor, process_set)
        decompressed: A = compression.decompress(self.outcome(call), context)
        return decompressed

    def grouped_allreduce(
        self,
        tensors: Sequence[A],
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[A]:
        """Reduces several tensors as one operation, into new tensors; see ``allreduce``."""
        how = (average, name, op, prescale_factor, postscale_factor, process_set)
        return send_compressed(
            compression, tensors, lambda small: self.outcome(self._grouped_allreduce(small, *how))
        )

    # -- broadcast ---------------------------------------------------------------------------------

    def _broadcast(
        self,
        tensor: A,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Call[A, A]:
        return Call(BROADCAST, [tensor], first, name, process_set, root=root_rank)

    broadcast_async = asynchronous(
        _broadcast, "Starts giving the root's tensor to all ranks, in a new tensor."
    )
    broadcast_async_ = asynchronous(
        _broadcast, "Starts giving the root's tensor to all ranks, in place.", in_place=True
    )
    broadcast = blocking(
        _broadcast,
        """Returns the root's tensor, in a new tensor.

        ``root_rank`` is a rank of the job, even in a process set; shape and type are the same on all ranks.
        """,
    )
    broadcast_ = blocking(_broadcast, "Gives the root's tensor to all ranks, in place.", in_place=True)

    # -- allgather ---------------------------------------------------------------------------------

    def _allgather(
        self, tensor: A, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Call[A, A]:
        return Call(ALLGATHER, [tensor], first, name, process_set)

    def _grouped_allgather(
        self, tensors: Sequence[A], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Call[A, list[A]]:
        return Call(ALLGATHER, tensors, every, name, process_set, grouped=True)

    allgather_async = asynchronous(
        _allgather, "Starts joining the ranks' tensors along the first dimension, which may differ."
    )
    allgather = blocking(
        _allgather,
        """Joins the ranks' tensors along the first dimension, which may differ and be zero.

        Shapes ``[n_r, …]`` on rank r give ``[n_0 + n_1 + …, …]`` everywhere. A tensor without dimensions is a
        ValueError.
        """,
    )
    grouped_allgather_async = asynchronous(
        _grouped_allgather, "Starts joining several tensors as one operation."
    )
    grouped_allgather = blocking(
        _grouped_allgather, "Joins several tensors as one operation, each as by ``allgather``."
    )

    # -- reducescatter -----------------------------------------------------------------------------

    def _reducescatter(
        self,
        tensor: A,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Call[A, A]:
        factors = (prescale_factor, postscale_factor)
        op = check_scatter_op(op)
        return Call(REDUCESCATTER, [tensor], first, name, process_set, op, factors)

    def _grouped_reducescatter(
        self,
        tensors: Sequence[A],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Call[A, list[A]]:
        factors, op = (prescale_factor, postscale_factor), check_scatter_op(op)
        return Call(REDUCESCATTER, tensors, every, name, process_set, op, factors, grouped=True)

    reducescatter_async = asynchronous(
        _reducescatter, "Starts reducing a tensor over all ranks; every rank keeps its rows of the result."
    )
    grouped_reducescatter_async = asynchronous(
        _grouped_reducescatter, "Starts ``reducescatter`` of several tensors as one operation."
    )

    def reducescatter(
        self,
        tensor: A,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> A:
        """Reduces a tensor over all ranks; every rank keeps its rows of the result.

        The first dimension is divided among the ranks; if it does not divide evenly, the first ranks get one
        row more.

        Raises:
            ValueError: ``op`` is neither Average nor Sum (also a NotImplementedError), or the tensor has no
                dimensions.
        """
        small, context = compression.compress(tensor)
        call = self._reducescatter(small, name, op, process_set, prescale_factor, postscale_factor)
        decompressed: A = compression.decompress(self.outcome(call), context)
        return decompressed

    def grouped_reducescatter(
        self,
        tensors: Sequence[A],
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[A]:
        """Does ``reducescatter`` of several tensors as one operation."""
        how = (name, op, process_set, prescale_factor, postscale_factor)
        return send_compressed(
            compression, tensors, lambda small: self.outcome(self._grouped_reducescatter(small, *how))
        )

    # -- alltoall ----------------------------------------------------------------------------------

    def _alltoall(
        self,
        tensor: A,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Call[A, Any]:
        numbers = None if splits is None else splits_of(splits)
        pick = first if splits is None else tuple
        return Call(ALLTOALL, [tensor], pick, name, process_set, splits=numbers)

    alltoall_async = asynchronous(_alltoall, "Starts giving every rank its rows of this rank's tensor.")
    alltoall = blocking(
        _alltoall,
        """Gives every rank its rows of this rank's tensor; returns the rows for this rank, ordered by sender.

        ``splits[r]`` rows go to rank r of the process set; without ``splits`` all ranks get the same number,
        so the first dimension must be divisible by the size. With ``splits`` the result is a pair: the rows,
        and the number of rows from each rank.
        """,
    )


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the process set has called it. Any thread may call.

    Raises:
        ValueError: this rank is not a member.
        HorovodInternalError: a rank is lost, or has left.
    """
    _core.run(_core.describe(BARRIER, process_set=check_member(process_set)), None, ())


def join(device: int = -1) -> int:
    """Signals that this rank has run out of data and waits for all ranks to do the same.

    Until then the others' allreduces and barriers continue without it: it contributes neutral values, zeros
    to sums, and still counts in averages. Other operations fail, unless ``HOROVOD_JOIN=all``.

    Args:
        device: accepted for compatibility; it has no meaning.

    Returns:
        The rank that joined last, the same on all ranks: the one to broadcast the model from.

    Raises:
        HorovodInternalError: a rank is lost, or has left.

    Example::

        for batch in loader:  # the ranks have different numbers of batches
            train(batch)
        last = hvd.join()
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    """
    handle = _core.submit(_core.describe(JOIN), None, ())
    handle.wait()
    count_join()
    return handle.joined_last()
