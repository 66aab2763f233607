"""Parameters of PyTorch for the comparison between ranks (:mod:`horovod.framework.divergence`)."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from horovod.framework.divergence import ParameterCheck


def compare_parameters(check: ParameterCheck, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Counts a step, and compares the parameters if it is their turn."""
    if check.is_on() and check.count():
        check.compare((name, _bytes_of(each)) for name, each in parameters if not _is_sharded(each))


def _bytes_of(parameter: torch.Tensor) -> torch.Tensor:
    """Returns the bytes row by row, whatever the order in memory, the type and the device."""
    dense = parameter.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return dense.reshape(-1).view(torch.uint8)


def _is_sharded(parameter: torch.Tensor) -> bool:
    """Returns true for parameters of FSDP and DTensor, of which each rank has a part of its own."""
    return hasattr(parameter, "device_mesh") or hasattr(parameter, "_is_flat_param")
