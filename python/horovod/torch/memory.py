"""Conversion of tensors of any layout to the dense memory that an operation reads and writes."""

from __future__ import annotations

import itertools
from typing import Any

import torch

Tensors = list[torch.Tensor]
Copies = list[tuple[Tensors, torch.Tensor]]  # the caller's tensors, and the memory that is copied into them


def is_dense(tensors: Tensors) -> bool:
    """Returns true for a list of one contiguous tensor that is no lazy view: its memory has all elements in
    order.

    Such a list passes every check below.
    """
    tensor = tensors[0]
    if len(tensors) > 1 or tensor.layout is not torch.strided or tensor.is_nested:
        return False
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def check(what: str, tensors: Tensors) -> None:
    """Raises ValueError for tensors that cannot be joined into one vector."""
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.is_nested:
            raise ValueError(
                f"{what}: a tensor has the layout {'nested' if tensor.is_nested else tensor.layout}; "
                "all_reduce alone takes sparse tensors: pass x.to_dense()"
            )
        if tensor.dtype != tensors[0].dtype:
            raise ValueError(f"{what}: a list holds both {tensors[0].dtype} and {tensor.dtype}")


def check_written(what: str, tensors: Tensors) -> None:
    """Raises ValueError if two elements of one tensor share memory, so that it cannot hold a result."""
    for tensor in tensors:
        if not tensor.is_contiguous() and _overlaps_itself(tensor):
            raise ValueError(
                f"{what}: elements of a tensor that the operation writes share memory (shape "
                f"{list(tensor.shape)}, strides {list(tensor.stride())}); pass x.contiguous()"
            )


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    if not tensor.numel():
        return False
    extents = [(stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    reach = 0
    for stride, size in sorted(extents):
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    offsets = torch.zeros(1, dtype=torch.int64)
    for stride, size in extents:
        offsets = (offsets[:, None] + torch.arange(size) * stride).view(-1)
    return bool(torch.unique(offsets).numel() < tensor.numel())


def joined(tensors: Tensors) -> torch.Tensor:
    """Returns the elements of a list in one tensor; a single tensor keeps its shape, and dense memory."""
    if is_dense(tensors):
        return tensors[0].detach()
    if len(tensors) == 1:
        return tensors[0].detach().resolve_conj().resolve_neg().contiguous()
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dim() == 1 else tensor.view(-1)  # a view takes 0.7 us


def vector(what: str, tensors: Tensors) -> torch.Tensor:
    """Checks a list, and returns its elements as a vector: memory of one dense tensor, otherwise a copy."""
    if is_dense(tensors):
        return _flat(tensors[0].detach())
    check(what, tensors)
    return _flat(joined(tensors))


def room(what: str, tensors: Tensors) -> torch.Tensor:
    """Checks a list, and returns a vector for its elements: memory of one dense tensor, otherwise new."""
    if is_dense(tensors):
        return _flat(tensors[0].detach())
    check(what, tensors)
    check_written(what, tensors)
    return tensors[0].detach().new_empty(sum(map(torch.Tensor.numel, tensors)))


def padded(tensors: Tensors) -> Tensors:
    """Replaces empty tensors by one byte, since Gloo cannot send nothing."""
    return [each if each.numel() else torch.zeros(1, dtype=torch.uint8) for each in tensors]


def fill(copies: Copies) -> None:
    """Copies results into the caller's tensors."""
    for tensors, source in copies:
        parts = torch.split(source.view(-1), [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.detach().copy_(part.view(tensor.shape))


def on_host(tensors: Tensors) -> tuple[Tensors, Copies]:
    """Returns memory of the host for dense tensors, and the copies to those that are on a GPU."""
    rooms = [torch.empty_like(each, device="cpu") if each.is_cuda else each for each in tensors]
    pairs = zip(tensors, rooms, strict=True)
    return rooms, [([own], room) for own, room in pairs if own.is_cuda]


def stream_of(tensors: Tensors) -> torch.cuda.Stream | None:
    """Returns the stream on which this thread works, if the tensors are on a GPU."""
    return torch.cuda.current_stream(tensors[0].device) if tensors and tensors[0].is_cuda else None


def gpus_of(results: Any) -> list[int | str | torch.device]:
    """Returns the GPUs of tensors, or of lists of them."""
    lists = (each if isinstance(each, list) else [each] for each in results)
    return sorted({each.device for each in itertools.chain(*lists) if each.is_cuda}, key=str)


def share_bytes(tensors: Tensors) -> bool:
    """Returns true if two of these dense tensors share memory."""
    spans = sorted([(tensor.data_ptr(), tensor.nbytes) for tensor in tensors if tensor.nbytes])
    return any(start + length > after for (start, length), (after, _) in itertools.pairwise(spans))


def copied_if_shared(inputs: Tensors, outputs: Tensors, rank: int, size: int) -> Tensors:
    """Returns the inputs, copied if they share memory with an output except at the place of this rank."""
    if not share_bytes(inputs + outputs):
        return inputs
    spans: Tensors = []
    for pair in zip(inputs, outputs, strict=True):
        part, whole = sorted(pair, key=torch.Tensor.numel)
        place = whole.data_ptr() + rank * part.numel() * part.element_size()
        is_in_place = part.data_ptr() == place and part.numel() * size == whole.numel() > part.numel()
        spans += [whole] if is_in_place else pair
    return [tensor.clone() for tensor in inputs] if share_bytes(spans) else inputs


def pieces(what: str, tensor: torch.Tensor, count: int) -> Tensors:
    """Returns views of ``count`` equal parts of a tensor, in the order of its elements."""
    if tensor.is_contiguous():
        return list(tensor.detach().view(count, tensor.numel() // count))
    if tensor.dim() == 0 or tensor.shape[0] % count:
        raise ValueError(
            f"{what}: rows of a tensor of shape {list(tensor.shape)} cannot be dealt to {count} ranks whose "
            "order is not ascending; pass x.contiguous()"
        )
    return list(tensor.detach().tensor_split(count))
