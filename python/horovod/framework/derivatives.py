"""Gradients of the collectives, for frameworks that differentiate. The gradient of a collective is another
collective; what follows knows which, the framework only how to record it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from horovod import _core
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import check_member
from horovod.framework.arrays import Arrays
from horovod.framework.collectives import Collectives
from horovod.framework.requests import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    REDUCESCATTER,
    A,
    Call,
    every,
)

T = TypeVar("T")
Rule = Callable[[list[A]], list[A]]


class Differentiable(Arrays[A], Protocol[A]):
    """What must be known beyond :class:`Arrays`."""

    def needs_gradient(self, tensors: Sequence[A]) -> bool:
        """Whether the framework would ask for the gradient of a result of these."""

    def record(self, forward: Rule[A], backward: Rule[A], tensors: Sequence[A]) -> list[A]:
        """The result of ``forward(tensors)``, whose gradients go through ``backward``."""

    def zeros_like(self, array: A) -> A:
        """Zeros of the same shape and type."""

    def extend(self, array: A, rows: int) -> A:
        """The array with rows of zeros added up to this number."""


class _Rows(NamedTuple):
    """Numbers of rows that a gradient must know: of each tensor given, and received from each rank."""

    given: list[int]
    received: list[int]


class DifferentiableCollectives(Collectives[A]):
    """The operations for one kind of arrays that can be differentiated, any number of times."""

    def __init__(self, arrays: Differentiable[A]) -> None:
        super().__init__(arrays)
        self._differentiable = arrays

    def outcome(self, call: Call[A, T]) -> T:
        """Runs a call that makes new tensors, and records it where a gradient may be asked for."""
        return call.pick(self._outputs(call))

    def _outputs(self, call: Call[A, Any]) -> list[A]:
        if not self._differentiable.needs_gradient(call.tensors):
            return self._arrays.run(call)
        operation = call.request.operation
        rule = _RULES[operation.number]
        counts = _Rows([], [])
        if operation.shape == "same_rows":
            counts.given.extend(map(len, call.tensors))  # type: ignore[arg-type]

        def forward(tensors: list[A]) -> list[A]:
            outputs = self._arrays.run(call)
            if operation.result == "exchanged":
                counts.received.extend(outputs[1].tolist())  # type: ignore[attr-defined]
            call.tensors = ()  # the graph need not keep them
            return outputs

        def backward(gradients: list[A]) -> list[A]:
            return rule(self, call, gradients, counts)

        return self._differentiable.record(forward, backward, call.tensors)

    def follow(
        self, call: Call[A, Any], operation: _core.Operation, gradients: list[A], **options: Any
    ) -> list[A]:
        """The collective that an operation's gradients go through; its name says of which it is."""
        name = f"{call.name}.gradient" if call.name else None
        follower: Call[A, Any] = Call(operation, gradients, every, name, call.process_set, **options)
        return self._outputs(follower)

    # -- one rule for each operation ---------------------------------------------------------------

    def _of_allreduce(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """The same reduction of the gradients."""
        asked = call.request
        options = {"reduction": asked.reduction, "factors": (asked.prescale, asked.postscale)}
        return self.follow(call, ALLREDUCE, gradients, grouped=bool(asked.grouped), **options)

    def _of_allgather(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """This rank's rows of the averaged gradients."""
        before = _rows_before(call, rows.given)
        reduced = self.follow(
            call, ALLREDUCE, gradients, reduction=Average, grouped=bool(call.request.grouped)
        )
        return [
            gradient[start : start + count]  # type: ignore[index]
            for gradient, start, count in zip(reduced, before, rows.given, strict=True)
        ]

    def _of_broadcast(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """The averaged gradient at the root, zeros elsewhere."""
        (reduced,) = self.follow(call, ALLREDUCE, gradients, reduction=Average)
        at_root = _core.placement()[0] == call.request.root
        return [reduced if at_root else self._differentiable.zeros_like(reduced)]

    def _of_reducescatter(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """All ranks' gradients joined, times the factors, and times the size for a sum."""
        factor = call.request.prescale * call.request.postscale
        if call.request.reduction == Sum:
            factor *= call.process_set.size() or 1
        joined = self.follow(call, ALLGATHER, gradients, grouped=bool(call.request.grouped))
        return [gradient * factor for gradient in joined]  # type: ignore[operator,misc]

    def _of_alltoall(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """Rows go back to where they came from; those that went nowhere have no gradient."""
        returned = self.follow(call, ALLTOALL, gradients[:1], splits=rows.received)[0]
        return [self._differentiable.extend(returned, rows.given[0])]


def _rows_before(call: Call[A, Any], counts: list[int]) -> list[int]:
    """How many rows the lower ranks have, by tensor."""
    name = f"{call.name}.rows" if call.name else None
    number = check_member(call.process_set)
    request = _core.describe(ALLGATHER, process_set=number)
    gathered = _core.run(request, name, (array("q", counts),))
    assert gathered is not None
    everything = memoryview(gathered[0]).tolist()
    lower = call.process_set.rank() or 0
    return [sum(everything[i : lower * len(counts) : len(counts)]) for i in range(len(counts))]


_RULES: dict[int, Callable[..., list[Any]]] = {
    ALLREDUCE.number: DifferentiableCollectives._of_allreduce,
    ALLGATHER.number: DifferentiableCollectives._of_allgather,
    BROADCAST.number: DifferentiableCollectives._of_broadcast,
    REDUCESCATTER.number: DifferentiableCollectives._of_reducescatter,
    ALLTOALL.number: DifferentiableCollectives._of_alltoall,
}
