"""The collectives for PyTorch tensors; the blocking ones that make new tensors are differentiable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod import _core
from horovod.basics import Average, Sum, rank, size
from horovod.collectives import Collectives
from horovod.compression import Compressor, NoneCompressor
from horovod.handles import reduction_of


class _Tensors:
    """PyTorch tensors."""

    def dense(self, array: torch.Tensor) -> torch.Tensor:
        if array.layout is not torch.strided:
            raise ValueError(f"a tensor of layout {array.layout} can't be sent; pass x.to_dense()")
        return array.detach().resolve_conj().resolve_neg().contiguous()

    def empty_like(self, array: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(array, memory_format=torch.contiguous_format)

    def adopt(self, result: _core.Result) -> torch.Tensor:
        return torch.utils.dlpack.from_dlpack(result)


collectives: Collectives[torch.Tensor] = Collectives(_Tensors())
allreduce_ = collectives.allreduce_
allreduce_async = collectives.allreduce_async
allreduce_async_ = collectives.allreduce_async_
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = collectives.grouped_allreduce_async
grouped_allreduce_async_ = collectives.grouped_allreduce_async_
allgather_async = collectives.allgather_async
grouped_allgather_async = collectives.grouped_allgather_async
broadcast_ = collectives.broadcast_
broadcast_async = collectives.broadcast_async
broadcast_async_ = collectives.broadcast_async_
reducescatter_async = collectives.reducescatter_async
grouped_reducescatter_async = collectives.grouped_reducescatter_async
alltoall_async = collectives.alltoall_async


def _differentiates(tensors: Sequence[torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


class _Allreduce(torch.autograd.Function):
    """The gradient of a reduction is the same reduction of the gradients."""

    @staticmethod
    def forward(ctx: Any, arguments: tuple[Any, ...], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.arguments = arguments
        return tuple(_reduce(arguments, *tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        name, *rest = ctx.arguments
        return None, *_reduce((_derived(name, "gradient"), *rest), *gradients)


def _derived(name: str | None, what: str) -> str | None:
    return f"{name}.{what}" if name else None


def _reduce(arguments: tuple[Any, ...], *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Arguments: name, reduction, factors, process set, whether the tensors are a group."""
    name, reduction, (before, after), process_set, grouped = arguments
    if grouped:
        return collectives.grouped_allreduce(
            tensors, None, name, NoneCompressor, reduction, before, after, process_set
        )
    return [
        collectives.allreduce(tensors[0], None, name, NoneCompressor, reduction, before, after, process_set)
    ]


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> torch.Tensor:
    """The reduction of a tensor over all ranks, in a new tensor. Differentiable."""
    reduction = reduction_of(average, op)
    arguments = (name, reduction, (prescale_factor, postscale_factor), process_set, False)
    small, context = compression.compress(tensor)
    reduce = _Allreduce.apply if _differentiates([tensor]) else _reduce
    (output,) = reduce(arguments, small)
    decompressed: torch.Tensor = compression.decompress(output, context)
    return decompressed


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> list[torch.Tensor]:
    """The reduction of several tensors as one operation, in new tensors. Differentiable."""
    reduction = reduction_of(average, op)
    arguments = (name, reduction, (prescale_factor, postscale_factor), process_set, True)
    pairs = [compression.compress(tensor) for tensor in tensors]
    small = [compressed for compressed, _ in pairs]
    reduce = _Allreduce.apply if _differentiates(tensors) else _reduce
    outputs = reduce(arguments, *small)
    return [compression.decompress(output, ctx) for output, (_, ctx) in zip(outputs, pairs, strict=True)]


class _Allgather(torch.autograd.Function):
    """The gradient is this rank's rows of the averaged gradient."""

    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: Any, *tensors: torch.Tensor) -> Any:
        ctx.name, ctx.process_set = name, process_set
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        return tuple(collectives.grouped_allgather(tensors, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        own = torch.tensor(ctx.rows).unsqueeze(0)
        rows = allgather(own, _derived(ctx.name, "rows"), ctx.process_set)
        name = _derived(ctx.name, "gradient")
        reduced = collectives.grouped_allreduce(
            gradients, None, name, NoneCompressor, Average, process_set=ctx.process_set
        )
        starts = rows[: rank()].sum(dim=0).tolist()
        slices = [
            gradient.narrow(0, start, count)
            for gradient, start, count in zip(reduced, starts, ctx.rows, strict=True)
        ]
        return None, None, *slices


def allgather(tensor: torch.Tensor, name: str | None = None, process_set: Any = None) -> torch.Tensor:
    """The ranks' tensors joined along the first dimension, which may differ and be zero. Differentiable."""
    if not _differentiates([tensor]):
        return collectives.allgather(tensor, name, process_set)
    gathered: tuple[torch.Tensor] = _Allgather.apply(name, process_set, tensor)  # type: ignore[no-untyped-call]
    return gathered[0]


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: Any = None
) -> list[torch.Tensor]:
    """Several tensors joined as one operation. Differentiable."""
    if not _differentiates(tensors):
        return collectives.grouped_allgather(tensors, name, process_set)
    return list(_Allgather.apply(name, process_set, *tensors))  # type: ignore[no-untyped-call]


class _Broadcast(torch.autograd.Function):
    """The gradient is the averaged gradient at the root, and zero elsewhere."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: Any
    ) -> torch.Tensor:
        ctx.root_rank, ctx.name, ctx.process_set = root_rank, name, process_set
        return collectives.broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        (gradient,) = gradients
        name = _derived(ctx.name, "gradient")
        reduced = collectives.allreduce(gradient, name=name, op=Average, process_set=ctx.process_set)
        return reduced if rank() == ctx.root_rank else torch.zeros_like(reduced), None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any = None
) -> torch.Tensor:
    """The root's tensor, in a new tensor. Differentiable."""
    if not _differentiates([tensor]):
        return collectives.broadcast(tensor, root_rank, name, process_set)
    given: torch.Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)  # type: ignore[no-untyped-call]
    return given


class _Reducescatter(torch.autograd.Function):
    """The gradient is all ranks' gradients joined, times the factors, and times the size for a sum."""

    @staticmethod
    def forward(ctx: Any, arguments: tuple[Any, ...], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.arguments = arguments
        return tuple(_scatter(arguments, *tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        name, op, process_set, (before, after) = ctx.arguments
        factor = before * after * (size() if op == Sum else 1)
        joined = collectives.grouped_allgather(gradients, _derived(name, "gradient"), process_set)
        return None, *(gradient.mul_(factor) for gradient in joined)


def _scatter(arguments: tuple[Any, ...], *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Arguments: name, reduction, process set, factors."""
    name, op, process_set, factors = arguments
    return collectives.grouped_reducescatter(tensors, name, NoneCompressor, op, process_set, *factors)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: int = Average,
    process_set: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """The reduction of a tensor over all ranks, of which every rank keeps its rows. Differentiable."""
    if not _differentiates([tensor]):
        return collectives.reducescatter(
            tensor, name, compression, op, process_set, prescale_factor, postscale_factor
        )
    (kept,) = grouped_reducescatter(
        [tensor], name, compression, op, process_set, prescale_factor, postscale_factor
    )
    return kept


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: int = Average,
    process_set: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """As ``reducescatter``, several tensors as one operation. Differentiable."""
    arguments = (name, op, process_set, (prescale_factor, postscale_factor))
    pairs = [compression.compress(tensor) for tensor in tensors]
    scatter = _Reducescatter.apply if _differentiates(tensors) else _scatter
    outputs = scatter(arguments, *(small for small, _ in pairs))
    return [compression.decompress(output, ctx) for output, (_, ctx) in zip(outputs, pairs, strict=True)]


class _Alltoall(torch.autograd.Function):
    """The gradients go back to where the rows came from; rows that went nowhere have none."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: Any) -> Any:
        rows, received = collectives.exchange_async(tensor, splits, name, process_set).wait()
        ctx.shape, ctx.received, ctx.name, ctx.process_set = tensor.shape, received, name, process_set
        ctx.mark_non_differentiable(received)
        return rows, received

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        name = _derived(ctx.name, "gradient")
        returned, _ = collectives.alltoall(gradients[0], ctx.received, name, ctx.process_set)
        gradient = returned.new_zeros(ctx.shape)
        gradient[: returned.shape[0]] = returned
        return gradient, None, None, None


def alltoall(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: Any = None
) -> Any:
    """Gives every rank its rows of this rank's tensor; returns what the ranks gave for this one, by rank.

    ``splits[r]`` rows go to rank r; without it all get the same number, so the first dimension must be
    divisible by the size. With it the result is a pair: the rows, and how many of them came from each rank.
    Differentiable.
    """
    if not _differentiates([tensor]):
        return collectives.alltoall(tensor, splits, name, process_set)
    rows, received = _Alltoall.apply(tensor, splits, name, process_set)  # type: ignore[no-untyped-call]
    return rows if splits is None else (rows, received)
