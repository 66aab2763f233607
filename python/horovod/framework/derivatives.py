"""Gradients of the collectives, for frameworks that differentiate.

The gradient of a collective is another collective. This module knows which one; a framework only records
it."""

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
    """Arrays of a framework that can record an operation and its gradient."""

    def needs_gradient(self, tensors: Sequence[A]) -> bool:
        """Returns true if the framework may ask for the gradient of a result of these tensors."""

    def record(self, forward: Rule[A], backward: Rule[A], tensors: Sequence[A]) -> list[A]:
        """Returns ``forward(tensors)``, and records ``backward`` for the gradients of these results."""

    def zeros_like(self, array: A) -> A:
        """Returns zeros of the same shape and type."""

    def extend(self, array: A, rows: int) -> A:
        """Returns the array with rows of zeros appended up to this number of rows."""


class _Rows(NamedTuple):
    """Numbers of rows that a gradient must know: of each given tensor, and received from each rank."""

    given: list[int]
    received: list[int]


class DifferentiableCollectives(Collectives[A]):
    """The operations for arrays that can be differentiated, any number of times."""

    def __init__(self, arrays: Differentiable[A]) -> None:
        super().__init__(arrays)
        self._differentiable = arrays

    def outcome(self, call: Call[A, T]) -> T:
        """Runs a call that makes new tensors, and records it if a gradient may be needed."""
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
            call.tensors = ()  # the graph does not need them
            return outputs

        def backward(gradients: list[A]) -> list[A]:
            return rule(self, call, gradients, counts)

        return self._differentiable.record(forward, backward, call.tensors)

    def follow(
        self, call: Call[A, Any], operation: _core.Operation, gradients: list[A], **options: Any
    ) -> list[A]:
        """Runs the collective on an operation's gradients; its name contains that of the operation."""
        name = f"{call.name}.gradient" if call.name else None
        follower: Call[A, Any] = Call(operation, gradients, every, name, call.process_set, **options)
        return self._outputs(follower)

    # -- one rule for each operation ---------------------------------------------------------------

    def _of_allreduce(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """Reduces the gradients in the same way."""
        asked = call.request
        options = {"reduction": asked.reduction, "factors": (asked.prescale, asked.postscale)}
        return self.follow(call, ALLREDUCE, gradients, grouped=bool(asked.grouped), **options)

    def _of_allgather(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """Returns this rank's rows of the averaged gradients."""
        before = _rows_before(call, rows.given)
        reduced = self.follow(
            call, ALLREDUCE, gradients, reduction=Average, grouped=bool(call.request.grouped)
        )
        return [
            gradient[start : start + count]  # type: ignore[index]
            for gradient, start, count in zip(reduced, before, rows.given, strict=True)
        ]

    def _of_broadcast(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """Returns the averaged gradient at the root, zeros on other ranks."""
        (reduced,) = self.follow(call, ALLREDUCE, gradients, reduction=Average)
        at_root = _core.placement()[0] == call.request.root
        return [reduced if at_root else self._differentiable.zeros_like(reduced)]

    def _of_reducescatter(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """Joins all ranks' gradients and multiplies them by the factors, and by the size for a sum."""
        factor = call.request.prescale * call.request.postscale
        if call.request.reduction == Sum:
            factor *= call.process_set.size() or 1
        joined = self.follow(call, ALLGATHER, gradients, grouped=bool(call.request.grouped))
        return [gradient * factor for gradient in joined]  # type: ignore[operator,misc]

    def _of_alltoall(self, call: Call[A, Any], gradients: list[A], rows: _Rows) -> list[A]:
        """Returns rows to the ranks that sent them; the gradient of rows that were not sent is zero."""
        returned = self.follow(call, ALLTOALL, gradients[:1], splits=rows.received)[0]
        return [self._differentiable.extend(returned, rows.given[0])]


def _rows_before(call: Call[A, Any], counts: list[int]) -> list[int]:
    """Returns the number of rows of all lower ranks, by tensor."""
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
