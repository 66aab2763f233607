"""What all operations share: frameworks' arrays, operations in flight, process sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from horovod import _core
from horovod.basics import Average, Sum

A = TypeVar("A")

# Values of hvd_operation in horovod.h.
ALLREDUCE = 0
ALLGATHER = 1
BROADCAST = 2
ALLTOALL = 5
BARRIER = 6
REDUCESCATTER = 7


class Arrays(Protocol[A]):
    """What the collectives must know of a framework's arrays."""

    def dense(self, array: A) -> A:
        """The array itself, or a copy that is dense and row-major."""

    def empty_like(self, array: A) -> A:
        """Uninitialised memory for a result of the same shape and type."""

    def adopt(self, result: _core.Result) -> A:
        """An array over memory of the engine, without a copy."""


class Handle(Generic[A]):
    """An operation in flight; see ``poll`` and ``synchronize``."""

    __slots__ = ("_finish", "_operation", "_output")

    def __init__(self, operation: _core.Operation, finish: Callable[[], Any]) -> None:
        self._operation = operation
        self._finish: Callable[[], Any] | None = finish
        self._output: Any = None

    def then(self, change: Callable[[Any], Any]) -> Handle[A]:
        """This operation with its result changed."""
        return Handle(self._operation, lambda: change(self.wait()))

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._operation.done()

    def wait(self) -> Any:
        """Waits for the operation and returns its result; raises what went wrong."""
        self._operation.wait()
        if self._finish is not None:
            self._output = self._finish()
            self._finish = None
        return self._output


def reduction_of(average: bool | None, op: int | None) -> int:
    """The reduction that the old parameter ``average`` and the new one ``op`` mean together."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("pass op or average, not both; average is the old way to say op=Average or op=Sum")
    warnings.warn("average is deprecated: pass op=Average or op=Sum", DeprecationWarning, stacklevel=3)
    return Average if average else Sum


def check_process_set(process_set: Any) -> int:
    """The id of a process set; this version has the global one only."""
    if process_set is None or process_set is global_process_set:
        return 0
    raise ValueError("process sets other than the global one are not supported by this version")


class GlobalProcessSet:
    """The set of all ranks."""

    process_set_id = 0

    def included(self) -> bool:
        """Whether this rank is a member: always."""
        return True

    def rank(self) -> int:
        """This rank's number in the set."""
        return _core.placement()[0]

    def size(self) -> int:
        """Number of ranks in the set."""
        return _core.placement()[1]

    @property
    def ranks(self) -> list[int]:
        """The members."""
        return list(range(self.size()))


global_process_set = GlobalProcessSet()


def poll(handle: Handle[Any]) -> bool:
    """Whether the operation is done, so that ``synchronize`` would not wait."""
    if not isinstance(handle, Handle):
        raise ValueError(f"poll takes the handle of an asynchronous operation, not {handle!r}")
    return handle.done()


def synchronize(handle: Any) -> Any:
    """Waits for an asynchronous operation and returns its result; None when it is no handle."""
    return handle.wait() if isinstance(handle, Handle) else None


def barrier(process_set: Any = None) -> None:
    """Waits until every rank has called it."""
    _core.run(BARRIER, None, (), None, Sum, 1.0, 1.0, 0, check_process_set(process_set), 0, False)
