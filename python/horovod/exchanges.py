"""The operations in which every rank's tensor has rows of its own; see :mod:`horovod.collectives`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from horovod import _core
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.compression import Compressor, NoneCompressor
from horovod.requests import (
    ALLGATHER,
    ALLTOALL,
    REDUCESCATTER,
    A,
    Arrays,
    Call,
    asynchronous,
    blocking,
    every,
    first,
    named,
)

T = TypeVar("T")


def splits_of(splits: Any) -> list[int]:
    """Numbers of rows from a list, or a one-dimensional array of integers of any framework."""
    try:
        return [operator.index(n) for n in (splits.tolist() if hasattr(splits, "tolist") else splits)]
    except TypeError:
        raise ValueError(
            f"splits must be integers in one dimension, one for each rank, not {splits}"
        ) from None


class UnsupportedReductionError(NotImplementedError, ValueError):
    """An operation can't do this reduction. Programs expect a RuntimeError, which the first base is."""


def check_scatter_op(op: int) -> int:
    """The reduction, if reducescatter can do it."""
    if op not in REDUCESCATTER.reductions:
        names = [name for name, number in _core.reductions.items() if number in REDUCESCATTER.reductions]
        does = " and ".join(f"op={name.capitalize()}" for name in names)
        raise UnsupportedReductionError(f"{REDUCESCATTER.name} does {does} only")
    return op


def own_rows(extent: int, ranks: Sequence[int]) -> int:
    """How many of so many rows reducescatter gives to this rank of a process set: the first get one more."""
    return extent // len(ranks) + (ranks.index(_core.placement()[0]) < extent % len(ranks))


@named
class Exchanges(Generic[A]):
    """Allgather, reducescatter and alltoall for one kind of arrays."""

    def __init__(self, arrays: Arrays[A]) -> None:
        self._arrays = arrays

    def outcome(self, call: Call[A, T]) -> T:
        """Runs a call that makes new tensors; frameworks with gradients record it."""
        return call.pick(self._arrays.run(call))

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
        """The ranks' tensors joined along the first dimension, which may differ and be zero.

        Shapes ``[n_r, …]`` on rank r give ``[n_0 + n_1 + …, …]`` everywhere. Without dimensions: ValueError.
        """,
    )
    grouped_allgather_async = asynchronous(
        _grouped_allgather, "Starts joining several tensors as one operation."
    )
    grouped_allgather = blocking(
        _grouped_allgather, "Several tensors joined as one operation, each as by ``allgather``."
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
        _reducescatter, "Starts the reduction of a tensor over all ranks, of which every rank keeps its rows."
    )
    grouped_reducescatter_async = asynchronous(
        _grouped_reducescatter, "As ``reducescatter_async``, several tensors as one operation."
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
        """The reduction of a tensor over all ranks, of which every rank keeps its rows.

        The first dimension is divided; where it does not divide evenly the first ranks get one row more.

        Raises:
            ValueError: another ``op`` than Average and Sum (a NotImplementedError, too), or a tensor without
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
        """As ``reducescatter``, several tensors as one operation."""
        pairs = [compression.compress(tensor) for tensor in tensors]
        call = self._grouped_reducescatter(
            [small for small, _ in pairs], name, op, process_set, prescale_factor, postscale_factor
        )
        results: list[A] = self.outcome(call)
        return [compression.decompress(r, c) for r, (_, c) in zip(results, pairs, strict=True)]

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
        """Gives every rank its rows of this rank's tensor; returns what the ranks gave for this one, by rank.

        ``splits[r]`` rows go to rank r of the process set; without it all get the same number, so the first
        dimension must be divisible by the size. With it the result is a pair: the rows, and how many of
        them came from each rank.
        """,
    )
