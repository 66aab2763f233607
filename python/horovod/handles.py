"""Operations in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from horovod import _core

T = TypeVar("T")


class Handle(Generic[T]):
    """An operation in flight; see ``poll`` and ``synchronize``."""

    __slots__ = ("_arrays", "_operation", "_output", "_pick")  # no closure: there may be thousands

    def __init__(
        self,
        operation: _core.Operation,
        pick: Callable[[list[Any]], T],
        written: list[Any] | None,
        arrays: Any,
    ) -> None:
        """The outcome is what ``pick`` makes of the tensors that are written to, or, without them, of the
        engine's results as ``arrays`` adopts them."""
        self._operation = operation
        self._pick: Callable[[list[Any]], T] | None = pick
        self._output: Any = written
        self._arrays = arrays

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._operation.done()

    def wait(self) -> T:
        """Waits for the operation and returns its result; raises what went wrong."""
        self._operation.wait()
        if self._pick is not None:
            if self._output is None:
                self._output = [self._arrays.adopt(result) for result in self._operation.results()]
            self._output = self._pick(self._output)
            self._pick = None
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
