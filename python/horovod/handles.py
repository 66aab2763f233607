"""Operations in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from horovod import _core

T = TypeVar("T")


class Handle(Generic[T]):
    """An operation in flight; see ``poll`` and ``synchronize``."""

    __slots__ = ("_finish", "_operation", "_output")

    def __init__(self, operation: _core.Operation, finish: Callable[[], T]) -> None:
        self._operation = operation
        self._finish: Callable[[], T] | None = finish
        self._output: Any = None

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._operation.done()

    def wait(self) -> T:
        """Waits for the operation and returns its result; raises what went wrong."""
        self._operation.wait()
        if self._finish is not None:
            self._output = self._finish()
            self._finish = None
        output: T = self._output
        return output


def poll(handle: Handle[Any]) -> bool:
    """Whether the operation is done, so that ``synchronize`` would not wait."""
    if not isinstance(handle, Handle):
        raise ValueError(f"poll takes the handle of an asynchronous operation, not {handle!r}")
    return handle.done()


@overload
def synchronize(handle: Handle[T]) -> T: ...
@overload
def synchronize(handle: object) -> Any: ...
def synchronize(handle: Any) -> Any:
    """Waits for an asynchronous operation and returns its result; None when it is no handle.

    Raises:
        HorovodInternalError: the operation failed between the ranks.
    """
    return handle.wait() if isinstance(handle, Handle) else None
