"""Operations in flight."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from horovod._core import Handle as Handle

T = TypeVar("T")


def poll(handle: Handle[Any]) -> bool:
    """Returns true if the operation is done, so that ``synchronize`` would not wait. Any thread may call."""
    if not isinstance(handle, Handle):
        raise ValueError(f"poll takes the handle of an asynchronous operation, not {handle!r}")
    return handle.done()


@overload
def synchronize(handle: Handle[T]) -> T: ...
@overload
def synchronize(handle: object) -> Any: ...
def synchronize(handle: Any) -> Any:
    """Waits for an asynchronous operation and returns its result; returns None for any other object.

    Raises:
        HorovodInternalError: the operation failed between the ranks.
    """
    return handle.wait() if isinstance(handle, Handle) else None
