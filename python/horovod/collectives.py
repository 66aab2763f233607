"""Every collective operation, written once for all frameworks.

What differs between frameworks is in an :class:`Arrays`: how a dense copy is made, and how an array is made
from memory that the engine allocated. A framework's module makes one :class:`Collectives` and exports its
methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horovod import _core
from horovod.basics import Sum
from horovod.compression import Compressor, NoneCompressor
from horovod.exchanges import Exchanges
from horovod.handles import ALLGATHER, ALLREDUCE, BROADCAST, A, Handle, check_process_set, reduction_of


class Collectives(Exchanges[A]):
    """The operations for one kind of arrays.

    Names must be equal on all ranks; without one, operations are matched by their order. A trailing
    underscore means in place, ``_async`` returns a :class:`Handle` at once. Errors: ValueError for an
    argument of this rank, HorovodInternalError for all that lies between the ranks.
    """

    # -- allreduce ---------------------------------------------------------------------------------

    def _reduce(
        self,
        call: Callable[..., Any],
        inputs: Sequence[A],
        outputs: Sequence[A] | None,
        name: str | None,
        reduction: int,
        factors: tuple[float, float],
        process_set: Any,
        grouped: bool,
    ) -> Any:
        return call(
            ALLREDUCE,
            name,
            inputs,
            outputs,
            reduction,
            *factors,
            0,
            check_process_set(process_set),
            0,
            grouped,
        )

    def _reduce_async(
        self,
        tensors: Sequence[A],
        in_place: bool,
        name: str | None,
        reduction: int,
        factors: tuple[float, float],
        process_set: Any,
        grouped: bool,
    ) -> Handle[A]:
        inputs = tensors if in_place else [self._arrays.dense(t) for t in tensors]
        outputs = None if in_place else [self._arrays.empty_like(t) for t in inputs]
        operation = self._reduce(
            _core.submit, inputs, outputs, name, reduction, factors, process_set, grouped
        )
        results = list(tensors) if outputs is None else outputs
        return Handle(operation, lambda: results if grouped else results[0])

    def allreduce_async(
        self,
        tensor: A,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = None,
    ) -> Handle[A]:
        """Starts the reduction of a tensor over all ranks into a new one."""
        factors = (prescale_factor, postscale_factor)
        return self._reduce_async(
            [tensor], False, name, reduction_of(average, op), factors, process_set, False
        )

    def allreduce_async_(
        self,
        tensor: A,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = None,
    ) -> Handle[A]:
        """Starts the reduction of a tensor over all ranks, in place."""
        factors = (prescale_factor, postscale_factor)
        return self._reduce_async(
            [tensor], True, name, reduction_of(average, op), factors, process_set, False
        )

    def grouped_allreduce_async(
        self,
        tensors: Sequence[A],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = None,
    ) -> Handle[A]:
        """Starts the reduction of several tensors as one operation: all of them or none."""
        factors = (prescale_factor, postscale_factor)
        return self._reduce_async(tensors, False, name, reduction_of(average, op), factors, process_set, True)

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[A],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = None,
    ) -> Handle[A]:
        """As ``grouped_allreduce_async``, in place."""
        factors = (prescale_factor, postscale_factor)
        return self._reduce_async(tensors, True, name, reduction_of(average, op), factors, process_set, True)

    def allreduce(
        self,
        tensor: A,
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = None,
    ) -> A:
        """The reduction of a tensor over all ranks, in a new tensor."""
        reduction = reduction_of(average, op)
        small, context = compression.compress(self._arrays.dense(tensor))
        output = self._arrays.empty_like(small)
        factors = (prescale_factor, postscale_factor)
        self._reduce(_core.run, (small,), (output,), name, reduction, factors, process_set, False)
        decompressed: A = compression.decompress(output, context)
        return decompressed

    def allreduce_(
        self,
        tensor: A,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = None,
    ) -> A:
        """The reduction of a tensor over all ranks, in place."""
        factors = (prescale_factor, postscale_factor)
        reduction = reduction_of(average, op)
        self._reduce(_core.run, (tensor,), None, name, reduction, factors, process_set, False)
        return tensor

    def grouped_allreduce(
        self,
        tensors: Sequence[A],
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = None,
    ) -> list[A]:
        """The reduction of several tensors as one operation, in new tensors."""
        pairs = [compression.compress(tensor) for tensor in tensors]
        handle = self.grouped_allreduce_async(
            [small for small, _ in pairs], average, name, op, prescale_factor, postscale_factor, process_set
        )
        return [compression.decompress(r, c) for r, (_, c) in zip(handle.wait(), pairs, strict=True)]

    def grouped_allreduce_(
        self,
        tensors: Sequence[A],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = None,
    ) -> list[A]:
        """The reduction of several tensors as one operation, in place."""
        handle = self.grouped_allreduce_async_(
            tensors, average, name, op, prescale_factor, postscale_factor, process_set
        )
        reduced: list[A] = handle.wait()
        return reduced

    # -- allgather ---------------------------------------------------------------------------------

    def _gather_async(
        self, tensors: Sequence[A], name: str | None, process_set: Any, grouped: bool
    ) -> Handle[A]:
        inputs = [self._arrays.dense(t) for t in tensors]
        number = check_process_set(process_set)
        operation = _core.submit(ALLGATHER, name, inputs, None, Sum, 1.0, 1.0, 0, number, 0, grouped)

        def results() -> Any:
            adopted = [self._arrays.adopt(result) for result in operation.results()]
            return adopted if grouped else adopted[0]

        return Handle(operation, results)

    def allgather_async(self, tensor: A, name: str | None = None, process_set: Any = None) -> Handle[A]:
        """Starts joining the ranks' tensors along the first dimension, which may differ and be zero."""
        return self._gather_async([tensor], name, process_set, False)

    def grouped_allgather_async(
        self, tensors: Sequence[A], name: str | None = None, process_set: Any = None
    ) -> Handle[A]:
        """Starts joining several tensors as one operation."""
        return self._gather_async(tensors, name, process_set, True)

    def allgather(self, tensor: A, name: str | None = None, process_set: Any = None) -> A:
        """The ranks' tensors joined along the first dimension, which may differ and be zero."""
        gathered: A = self.allgather_async(tensor, name, process_set).wait()
        return gathered

    def grouped_allgather(
        self, tensors: Sequence[A], name: str | None = None, process_set: Any = None
    ) -> list[A]:
        """Several tensors joined as one operation."""
        gathered: list[A] = self.grouped_allgather_async(tensors, name, process_set).wait()
        return gathered

    # -- broadcast ---------------------------------------------------------------------------------

    def _broadcast(
        self,
        call: Callable[..., Any],
        tensor: A,
        output: A | None,
        root_rank: int,
        name: str | None,
        process_set: Any,
    ) -> Any:
        outputs = None if output is None else (output,)
        number = check_process_set(process_set)
        return call(BROADCAST, name, (tensor,), outputs, Sum, 1.0, 1.0, root_rank, number, 0, False)

    def broadcast_async(
        self, tensor: A, root_rank: int, name: str | None = None, process_set: Any = None
    ) -> Handle[A]:
        """Starts giving the root's tensor to all ranks, in a new tensor."""
        source = self._arrays.dense(tensor)
        output = self._arrays.empty_like(source)
        return Handle(
            self._broadcast(_core.submit, source, output, root_rank, name, process_set), lambda: output
        )

    def broadcast_async_(
        self, tensor: A, root_rank: int, name: str | None = None, process_set: Any = None
    ) -> Handle[A]:
        """Starts giving the root's tensor to all ranks, in place."""
        return Handle(
            self._broadcast(_core.submit, tensor, None, root_rank, name, process_set), lambda: tensor
        )

    def broadcast(self, tensor: A, root_rank: int, name: str | None = None, process_set: Any = None) -> A:
        """The root's tensor, in a new tensor."""
        source = self._arrays.dense(tensor)
        output = self._arrays.empty_like(source)
        self._broadcast(_core.run, source, output, root_rank, name, process_set)
        return output

    def broadcast_(self, tensor: A, root_rank: int, name: str | None = None, process_set: Any = None) -> A:
        """The root's tensor, in place."""
        self._broadcast(_core.run, tensor, None, root_rank, name, process_set)
        return tensor
