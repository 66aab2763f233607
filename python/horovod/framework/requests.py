"""Calls of collectives as requests to the engine.

Every collective is written once, as a method that makes a :class:`Call`; ``asynchronous`` and ``blocking``
turn it into the functions that users call."""

from __future__ import annotations

import functools
import inspect
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Generic, ParamSpec, TypeVar

from horovod import _core
from horovod.common.basics import Sum
from horovod.common.process_sets import ProcessSet, check_member, global_process_set
from horovod.framework.handles import Handle

A = TypeVar("A")
T = TypeVar("T")
P = ParamSpec("P")

ALLREDUCE = _core.operations["allreduce"]
ALLGATHER = _core.operations["allgather"]
BROADCAST = _core.operations["broadcast"]
JOIN = _core.operations["join"]
ALLTOALL = _core.operations["alltoall"]
BARRIER = _core.operations["barrier"]
REDUCESCATTER = _core.operations["reducescatter"]


def factor_bits(factor: float) -> int:
    """Returns a float64 as an integer: equality then distinguishes 0.0 from -0.0, and a NaN equals itself."""
    bits: int = struct.unpack("=q", struct.pack("=d", factor))[0]
    return bits


def factor_of(bits: int) -> float:
    """Returns the float64 of ``factor_bits``."""
    factor: float = struct.unpack("=d", struct.pack("=q", bits))[0]
    return factor


class Call(Generic[A, T]):
    """A checked request and its tensors. ``pick`` turns the list of results into the outcome of the call."""

    __slots__ = ("name", "pick", "process_set", "request", "splits", "tensors")

    def __init__(
        self,
        operation: _core.Operation,
        tensors: Sequence[A],
        pick: Callable[[list[A]], T],
        name: str | None,
        process_set: ProcessSet = global_process_set,
        reduction: int = Sum,
        factors: tuple[float, float] = (1.0, 1.0),
        root: int = 0,
        grouped: bool = False,
        splits: Sequence[int] | None = None,
        priority: int = 0,
    ) -> None:
        self.tensors = tensors
        self.pick = pick
        self.name = name
        self.process_set = process_set
        self.splits = splits
        self.request = _core.describe(
            operation,
            reduction=reduction,
            prescale=factors[0],
            postscale=factors[1],
            root=root,
            process_set=check_member(process_set),
            priority=priority,
            grouped=grouped,
        )


def asynchronous(
    make: Callable[P, Call[Any, T]], text: str, in_place: bool = False
) -> Callable[P, Handle[T]]:
    """Makes the function of a collective that returns a handle at once."""

    def start(*args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        handle: Handle[T] = args[0]._arrays.start(make(*args, **kwargs), in_place)  # type: ignore[attr-defined]
        return handle

    return _signed(start, make, "Handle[{}]", text)


def blocking(make: Callable[P, Call[Any, T]], text: str, in_place: bool = False) -> Callable[P, T]:
    """Makes the function of a collective that returns its outcome; differentiable if the framework can."""

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        call = make(*args, **kwargs)
        if in_place:
            return call.pick(args[0]._arrays.run(call, in_place))  # type: ignore[attr-defined]
        outcome: T = args[0].outcome(call)  # type: ignore[attr-defined]
        return outcome

    return _signed(run, make, "{}", text)


def _signed(made: Callable[P, T], make: Callable[P, Any], returned: str, text: str) -> Callable[P, T]:
    """Gives a function the parameters of the method it was made from, for help() and editors."""
    signature = inspect.signature(make)
    outcome = str(signature.return_annotation).removeprefix("Call[A, ").removesuffix("]")
    functools.update_wrapper(made, make, ("__module__",))
    made.__signature__ = signature.replace(return_annotation=returned.format(outcome))  # type: ignore[attr-defined]
    made.__doc__ = text
    return made


def named(collectives: type[T]) -> type[T]:
    """Names the functions of a class that ``asynchronous`` and ``blocking`` have made; a class decorator."""
    for name, member in vars(collectives).items():
        if hasattr(member, "__signature__"):
            member.__name__, member.__qualname__ = name, f"{collectives.__name__}.{name}"
    return collectives


# Returns the outcome of a call with one tensor; it is in C, as it is called for every gradient of a step.
first: Callable[[Sequence[Any]], Any] = itemgetter(0)


def every(tensors: list[A]) -> list[A]:
    """Returns the outcome of a call with a list of tensors."""
    return tensors
