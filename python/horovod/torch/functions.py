"""Makes all ranks start from the same parameters and optimizer state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from horovod import _core
from horovod.common.basics import rank
from horovod.framework.objects import allgather_object as allgather_object
from horovod.framework.objects import broadcast_object as broadcast_object
from horovod.torch.mpi_ops import broadcast_async_

_SENT_AS_THEY_ARE = {getattr(torch, name, None) for name in _core.dtypes}


def _named(params: Any) -> list[tuple[str, Any]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, Iterable) and not isinstance(params, torch.Tensor):
        entries = list(params)
        return [
            entry if isinstance(entry, tuple) else (f"broadcast_parameters.{i}", entry)
            for i, entry in enumerate(entries)
        ]
    raise ValueError(
        f"broadcast_parameters takes a state_dict, named_parameters() or tensors, not {type(params)}"
    )


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Gives the root's parameters to all ranks, in place.

    Args:
        params: ``model.state_dict()``, ``model.named_parameters()``, or a list of tensors; the same names,
            shapes and types on all ranks.
        root_rank: the rank that has the values.

    Raises:
        ValueError: ``params`` is something else.
        HorovodInternalError: the ranks' parameters differ, or a rank is lost.
    """
    handles = []
    for name, tensor in _named(params):
        if isinstance(tensor, torch.Tensor):
            handles.append(_broadcast_in_place(tensor.detach(), root_rank, name))
    for finish in handles:
        finish()


def _broadcast_in_place(tensor: torch.Tensor, root_rank: int, name: str) -> Callable[[], None]:
    """Starts broadcasting a tensor of any type and layout; the returned function waits for it."""
    dense = tensor.contiguous()
    sent = dense if tensor.dtype in _SENT_AS_THEY_ARE else dense.reshape(-1).view(torch.uint8)
    handle = broadcast_async_(sent, root_rank, name)

    def finish() -> None:
        handle.wait()
        if dense.data_ptr() != tensor.data_ptr():
            tensor.copy_(dense)

    return finish


class _Absent(NamedTuple):
    """Takes the place of a tensor that is sent by a broadcast of its own."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def _replace(value: Any, kind: type, new: Callable[[Any], Any]) -> Any:
    """Copies nested dicts and lists, and replaces all objects of one kind in them."""
    if isinstance(value, kind):
        return new(value)
    if isinstance(value, dict):
        return {key: _replace(item, kind, new) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_replace(item, kind, new) for item in value)
    return value


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None) -> None:
    """Gives the root's optimizer state to all ranks: hyperparameters and the state of each parameter.

    No rank's parameters change, and a state that is empty at the root becomes empty everywhere. Trained
    parameters without a gradient get one of zeros, as some programs read gradients before the first backward.

    Args:
        optimizer: any except LBFGS, whose state is not a set of tensors per parameter.
        root_rank: the rank that has the state.
        model: accepted for compatibility; it has no meaning.

    Raises:
        ValueError: it is not an optimizer of torch.optim, or it is LBFGS.
        HorovodInternalError: a rank is lost.
    """
    if not hasattr(optimizer, "param_groups"):
        raise ValueError(
            f"broadcast_optimizer_state takes an optimizer of torch.optim, not {type(optimizer).__name__}"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "broadcast_optimizer_state can't take LBFGS; broadcast the model's parameters instead"
        )
    tensors: list[torch.Tensor] = []

    def leave_out(tensor: torch.Tensor) -> _Absent:
        tensors.append(tensor.cpu())  # where the others have room; load_state_dict moves it to the device
        return _Absent(tuple(tensor.shape), tensor.dtype)

    def make_room(absent: _Absent) -> torch.Tensor:
        tensors.append(torch.empty(absent.shape, dtype=absent.dtype))
        return tensors[-1]

    name = "broadcast_optimizer_state"
    at_root = rank() == root_rank
    state = _replace(optimizer.state_dict(), torch.Tensor, leave_out) if at_root else None
    state = broadcast_object(state, root_rank, name)
    if not at_root:
        state = _replace(state, _Absent, make_room)
    for finish in [_broadcast_in_place(t, root_rank, f"{name}.{i}") for i, t in enumerate(tensors)]:
        finish()
    if not at_root:
        optimizer.load_state_dict(state)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
