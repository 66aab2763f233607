"""A guard for calls that replace the memory of a storage: they raise while the engine works on that memory.

A storage in flight is kept alive, but these calls free the memory inside it, and PyTorch can't pin memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from horovod import _core

_ANYWHERE = (0, (1 << 63) - 1)  # address and bytes of all memory


def _memory_of(storage: torch.UntypedStorage) -> tuple[int, int]:
    return (storage.data_ptr(), storage.nbytes()) if storage.device.type in ("cpu", "cuda") else (0, 0)


def _of_tensor(tensor: torch.Tensor) -> tuple[int, int]:
    return _memory_of(tensor.untyped_storage()) if tensor.layout is torch.strided else (0, 0)


def _of_unshared(storage: torch.UntypedStorage) -> tuple[int, int]:
    return (0, 0) if storage.is_shared() else _memory_of(storage)


def _guarded(replace: Callable[..., Any], memory_of: Callable[[Any], tuple[int, int]]) -> Callable[..., Any]:
    @functools.wraps(replace)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _core.in_flight(*_ANYWHERE) is not None:
            with torch._C.DisableTorchFunction():
                operation = _core.in_flight(*memory_of(self))
            if operation is not None:
                raise RuntimeError(
                    f"{replace.__name__} would free memory that is in flight: synchronize its handle first "
                    f"({operation})"
                )
        return replace(self, *args, **kwargs)

    call._guards_memory = True  # type: ignore[attr-defined]
    return call


def guard() -> None:
    """Installs the check in front of these calls, once. All other functions that replace memory use them."""
    for owner, name, memory_of in (
        (torch.Tensor, "resize_", _of_tensor),
        (torch.Tensor, "resize_as_", _of_tensor),
        (torch.UntypedStorage, "resize_", _memory_of),
        (torch.UntypedStorage, "_share_fd_cpu_", _of_unshared),
        (torch.UntypedStorage, "_share_filename_cpu_", _of_unshared),
    ):
        replace = getattr(owner, name)
        if not hasattr(replace, "_guards_memory"):
            setattr(owner, name, _guarded(replace, memory_of))
