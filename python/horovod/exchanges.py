"""The operations that give every rank rows of its own; see :mod:`horovod.collectives`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Generic

from horovod import _core
from horovod.basics import Average, Sum
from horovod.compression import Compressor, NoneCompressor
from horovod.handles import ALLTOALL, REDUCESCATTER, A, Arrays, Handle, check_process_set


def splits_of(splits: Any) -> list[int]:
    """Numbers of rows from a list, or a one-dimensional array of integers of any framework."""
    try:
        return [operator.index(n) for n in (splits.tolist() if hasattr(splits, "tolist") else splits)]
    except TypeError:
        raise ValueError(
            f"splits must be integers in one dimension, one for each rank, not {splits}"
        ) from None


class Exchanges(Generic[A]):
    """Reducescatter and alltoall for one kind of arrays."""

    def __init__(self, arrays: Arrays[A]) -> None:
        self._arrays = arrays

    # -- reducescatter -----------------------------------------------------------------------------

    def _scatter_async(
        self,
        tensors: Sequence[A],
        name: str | None,
        op: int,
        factors: tuple[float, float],
        process_set: Any,
        grouped: bool,
    ) -> Handle[A]:
        if op not in (Average, Sum):
            raise ValueError("reducescatter does op=Average and op=Sum only")
        inputs = [self._arrays.dense(t) for t in tensors]
        number = check_process_set(process_set)
        operation = _core.submit(REDUCESCATTER, name, inputs, None, op, *factors, 0, number, 0, grouped)

        def results() -> Any:
            adopted = [self._arrays.adopt(result) for result in operation.results()]
            return adopted if grouped else adopted[0]

        return Handle(operation, results)

    def reducescatter_async(
        self,
        tensor: A,
        name: str | None = None,
        op: int = Average,
        process_set: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[A]:
        """Starts the reduction of a tensor over all ranks, of which every rank keeps its rows."""
        factors = (prescale_factor, postscale_factor)
        return self._scatter_async([tensor], name, op, factors, process_set, False)

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[A],
        name: str | None = None,
        op: int = Average,
        process_set: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[A]:
        """As ``reducescatter_async``, several tensors as one operation."""
        factors = (prescale_factor, postscale_factor)
        return self._scatter_async(tensors, name, op, factors, process_set, True)

    def reducescatter(
        self,
        tensor: A,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int = Average,
        process_set: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> A:
        """The reduction of a tensor over all ranks, of which every rank keeps its rows.

        The first dimension is divided; where it does not divide evenly the first ranks get one row more.
        """
        small, context = compression.compress(tensor)
        factors = (prescale_factor, postscale_factor)
        handle = self._scatter_async([small], name, op, factors, process_set, False)
        decompressed: A = compression.decompress(handle.wait(), context)
        return decompressed

    def grouped_reducescatter(
        self,
        tensors: Sequence[A],
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int = Average,
        process_set: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[A]:
        """As ``reducescatter``, several tensors as one operation."""
        pairs = [compression.compress(tensor) for tensor in tensors]
        factors = (prescale_factor, postscale_factor)
        handle = self._scatter_async([small for small, _ in pairs], name, op, factors, process_set, True)
        return [compression.decompress(r, c) for r, (_, c) in zip(handle.wait(), pairs, strict=True)]

    # -- alltoall ----------------------------------------------------------------------------------

    def exchange_async(self, tensor: A, splits: Any, name: str | None, process_set: Any) -> Handle[A]:
        """As ``alltoall_async``, but the result is always a pair."""
        source = self._arrays.dense(tensor)
        number = check_process_set(process_set)
        numbers = None if splits is None else splits_of(splits)
        operation = _core.submit(ALLTOALL, name, (source,), None, Sum, 1.0, 1.0, 0, number, 0, False, numbers)
        return Handle(operation, lambda: tuple(self._arrays.adopt(r) for r in operation.results()))

    def alltoall_async(
        self, tensor: A, splits: Any = None, name: str | None = None, process_set: Any = None
    ) -> Handle[A]:
        """Starts giving every rank its rows of this rank's tensor."""
        handle = self.exchange_async(tensor, splits, name, process_set)
        return handle if splits is not None else handle.then(operator.itemgetter(0))

    def alltoall(
        self, tensor: A, splits: Any = None, name: str | None = None, process_set: Any = None
    ) -> Any:
        """Gives every rank its rows of this rank's tensor; returns what the ranks gave for this one, by rank.

        ``splits[r]`` rows go to rank r; without it all get the same number, so the first dimension must be
        divisible by the size. With it the result is a pair: the rows, and how many of them came from each
        rank.
        """
        return self.alltoall_async(tensor, splits, name, process_set).wait()
