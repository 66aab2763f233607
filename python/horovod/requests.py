"""What one call asks of the engine. Every collective is written once, as a method that makes a
:class:`Request`; ``asynchronous`` and ``blocking`` turn it into the functions that users call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from horovod import _core
from horovod.common.basics import Sum
from horovod.common.process_sets import ProcessSet, check_member, global_process_set
from horovod.handles import Handle

A = TypeVar("A")
T = TypeVar("T")
P = ParamSpec("P")

# Values of hvd_operation in horovod.h.
ALLREDUCE = 0
ALLGATHER = 1
BROADCAST = 2
JOIN = 3
ALLTOALL = 5
BARRIER = 6
REDUCESCATTER = 7

_MAKES_RESULTS = {
    ALLGATHER,
    ALLTOALL,
    REDUCESCATTER,
}  # memory of the engine, since shapes are not known before


class Arrays(Protocol[A]):
    """What the collectives must know of a framework's arrays."""

    def dense(self, array: A) -> A:
        """The array itself, or a copy that is dense and row-major."""

    def empty_like(self, array: A) -> A:
        """Uninitialised memory for a result of the same shape and type."""

    def adopt(self, result: _core.Result) -> A:
        """An array over memory of the engine, without a copy."""


class Request(Generic[A, T]):
    """One call, checked and ready. ``pick`` makes the call's outcome of the tensors that come out."""

    __slots__ = (
        *("arrays", "factors", "grouped", "name", "operation", "pick", "process_set", "reduction", "root"),
        *("splits", "tensors"),
    )

    def __init__(
        self,
        arrays: Arrays[A],
        operation: int,
        tensors: Sequence[A],
        pick: Callable[[list[A]], T],
        name: str | None,
        process_set: ProcessSet = global_process_set,
        reduction: int = Sum,
        factors: tuple[float, float] = (1.0, 1.0),
        root: int = 0,
        grouped: bool = False,
        splits: Sequence[int] | None = None,
    ) -> None:
        self.arrays = arrays
        self.operation = operation
        self.tensors = tensors
        self.pick = pick
        self.name = name
        self.process_set = process_set
        self.reduction = reduction
        self.factors = factors
        self.root = root
        self.grouped = grouped
        self.splits = splits

    def _ask(
        self, how: Callable[..., Any], inputs: Sequence[A], outputs: Sequence[A] | None, *finish: Any
    ) -> Any:
        return how(
            self.operation,
            self.name,
            inputs,
            outputs,
            self.reduction,
            *self.factors,
            self.root,
            check_member(self.process_set),
            0,
            self.grouped,
            self.splits,
            *finish,
        )

    def _memory(self, in_place: bool) -> tuple[list[A], list[A] | None]:
        if in_place:
            return list(self.tensors), None
        inputs = [self.arrays.dense(tensor) for tensor in self.tensors]
        if self.operation in _MAKES_RESULTS:
            return inputs, None
        return inputs, [self.arrays.empty_like(tensor) for tensor in inputs]

    def start(self, in_place: bool = False) -> Handle[T]:
        """Submits the request."""
        inputs, outputs = self._memory(in_place)
        finish = self._adopt_and_pick if self.operation in _MAKES_RESULTS else self.pick
        handle: Handle[T] = self._ask(_core.submit, inputs, outputs, finish)
        return handle

    def _adopt_and_pick(self, results: list[_core.Result]) -> T:
        return self.pick([self.arrays.adopt(result) for result in results])

    def run(self, in_place: bool = False) -> list[A]:
        """Submits the request and waits; the calling thread does the work itself."""
        inputs, outputs = self._memory(in_place)
        results: Sequence[_core.Result] | None = self._ask(_core.run, inputs, outputs)
        if self.operation in _MAKES_RESULTS:
            return [self.arrays.adopt(result) for result in results or ()]
        return inputs if outputs is None else outputs


def asynchronous(
    ask: Callable[P, Request[Any, T]], text: str, in_place: bool = False
) -> Callable[P, Handle[T]]:
    """The form of a collective that returns a handle at once."""

    def start(*args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        return ask(*args, **kwargs).start(in_place)

    return _signed(start, ask, "Handle[{}]", text)


def blocking(ask: Callable[P, Request[Any, T]], text: str, in_place: bool = False) -> Callable[P, T]:
    """The form of a collective that returns its outcome; differentiable where the framework can."""

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        request = ask(*args, **kwargs)
        if in_place:
            return request.pick(request.run(in_place))
        outcome: T = args[0].outcome(request)  # type: ignore[attr-defined]
        return outcome

    return _signed(run, ask, "{}", text)


def _signed(made: Callable[P, T], ask: Callable[P, Any], returned: str, text: str) -> Callable[P, T]:
    """Gives a function the parameters of the method it was made from, for help() and editors."""
    signature = inspect.signature(ask)
    outcome = str(signature.return_annotation).removeprefix("Request[A, ").removesuffix("]")
    functools.update_wrapper(made, ask, ("__module__",))
    made.__signature__ = signature.replace(return_annotation=returned.format(outcome))  # type: ignore[attr-defined]
    made.__doc__ = text
    return made


def named(collectives: type[T]) -> type[T]:
    """Class decorator: functions made by ``asynchronous`` and ``blocking`` learn what they are called."""
    for name, member in vars(collectives).items():
        if hasattr(member, "__signature__"):
            member.__name__, member.__qualname__ = name, f"{collectives.__name__}.{name}"
    return collectives


def first(tensors: list[A]) -> A:
    """The outcome of a call with one tensor."""
    return tensors[0]


def every(tensors: list[A]) -> list[A]:
    """The outcome of a call with a list of tensors."""
    return tensors
