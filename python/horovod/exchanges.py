"""The operations that give every rank rows of its own; see :mod:`horovod.collectives`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

from horovod import _core
from horovod.basics import Average, Sum
from horovod.compression import Compressor, NoneCompressor
from horovod.handles import REDUCESCATTER, A, Arrays, Handle, check_process_set


class Exchanges(Generic[A]):
    """Reducescatter for one kind of arrays."""

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
