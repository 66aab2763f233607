"""Makes all ranks start from the same parameters and optimizer state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from horovod.objects import broadcast_object
from horovod.torch.operations import broadcast_async_


def _named(params: Any) -> list[tuple[str, Any]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, Iterable) and not isinstance(params, torch.Tensor):
        entries = list(params)
        return [
            entry if isinstance(entry, tuple) else (f"parameter.{i}", entry)
            for i, entry in enumerate(entries)
        ]
    raise ValueError(
        f"broadcast_parameters takes a state_dict, named_parameters() or tensors, not {type(params)}"
    )


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Gives the root's parameters to all ranks, in place.

    Args:
        params: ``model.state_dict()``, ``model.named_parameters()``, or a list of tensors.
        root_rank: the rank that has them.
    """
    handles = []
    for name, tensor in _named(params):
        if isinstance(tensor, torch.Tensor):
            handles.append(_broadcast_in_place(tensor.detach(), root_rank, f"broadcast_parameters.{name}"))
    for finish in handles:
        finish()


def _broadcast_in_place(tensor: torch.Tensor, root_rank: int, name: str) -> Any:
    if tensor.is_contiguous():
        return broadcast_async_(tensor, root_rank, name).wait
    handle = broadcast_async_(tensor.contiguous(), root_rank, name)
    return lambda: tensor.copy_(handle.wait())


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None) -> None:
    """Gives the root's optimizer state to all ranks: hyperparameters, and what is kept for each parameter.

    No rank's parameters change, and a state that is empty at the root becomes empty everywhere.

    Args:
        optimizer: any but LBFGS, whose state is no set of tensors per parameter.
        root_rank: the rank that has it.
        model: accepted for compatibility; not needed.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "broadcast_optimizer_state can't take LBFGS; broadcast the model's parameters instead"
        )
    state = broadcast_object(optimizer.state_dict(), root_rank, "broadcast_optimizer_state")
    optimizer.load_state_dict(state)
