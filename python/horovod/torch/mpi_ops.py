"""The collectives for PyTorch tensors; the blocking ones that make new tensors are differentiable.

The module also exports handles, reductions, process sets and ranks, as programs import them from here or use
``hvd.mpi_ops``; MPI is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod import _core
from horovod.common import basics
from horovod.common.basics import *  # noqa: F403
from horovod.common.basics import Average, HorovodBasics, ProcessSet, Sum, global_process_set
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.framework.arrays import MemoryArrays
from horovod.framework.collectives import barrier, join
from horovod.framework.derivatives import Differentiable, DifferentiableCollectives, Rule
from horovod.framework.handles import poll, synchronize

__all__ = [
    *basics.__all__,
    "HorovodInternalError",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "shared_zeros",
    "sparse_allreduce_async",
    "synchronize",
]

_basics = HorovodBasics(__file__)  # programs call its methods by this name
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)


class _Recorded(torch.autograd.Function):
    """A collective in the graph. Its gradient may be differentiated again."""

    @staticmethod
    def forward(ctx: Any, forward: Rule[Any], backward: Rule[Any], *tensors: torch.Tensor) -> Any:
        ctx.rule = backward
        outputs = forward(list(tensors))
        ctx.mark_non_differentiable(*(t for t in outputs if not (t.is_floating_point() or t.is_complex())))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return None, None, *ctx.rule(list(gradients))


class _Tensors(MemoryArrays[torch.Tensor], Differentiable[torch.Tensor]):
    """PyTorch's tensors."""

    def dense(self, array: torch.Tensor) -> torch.Tensor:
        if not isinstance(array, torch.Tensor):
            return array  # the engine accepts the object or raises an error
        if array.is_nested:
            raise ValueError("a nested tensor can't be sent: pass its parts, x.unbind()")
        if array.layout is not torch.strided:
            raise ValueError(
                f"a tensor of layout {array.layout} can't be sent: pass x.to_dense(), or use "
                "sparse_allreduce_async"
            )
        if array.is_contiguous() and not array.is_conj() and not array.is_neg():
            return array
        return array.detach().resolve_conj().resolve_neg().contiguous()

    def empty_like(self, array: torch.Tensor) -> torch.Tensor:
        if not isinstance(array, torch.Tensor):
            raise TypeError(f"horovod.torch takes tensors of PyTorch, not {type(array).__name__}")
        return torch.empty_like(array)

    def adopt(self, result: _core.Result) -> torch.Tensor:
        return torch.utils.dlpack.from_dlpack(result)

    def needs_gradient(self, tensors: Sequence[torch.Tensor]) -> bool:
        return torch.is_grad_enabled() and any(getattr(t, "requires_grad", False) for t in tensors)

    def record(
        self, forward: Rule[torch.Tensor], backward: Rule[torch.Tensor], tensors: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        return list(_Recorded.apply(forward, backward, *tensors))  # type: ignore[no-untyped-call]

    def zeros_like(self, array: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(array)

    def extend(self, array: torch.Tensor, rows: int) -> torch.Tensor:
        missing = array.new_zeros(rows - array.shape[0], *array.shape[1:])
        return torch.cat([array, missing]) if len(missing) else array


collectives: DifferentiableCollectives[torch.Tensor] = DifferentiableCollectives(_Tensors())
allreduce = collectives.allreduce
allreduce_ = collectives.allreduce_
allreduce_async = collectives.allreduce_async
allreduce_async_ = collectives.allreduce_async_
grouped_allreduce = collectives.grouped_allreduce
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = collectives.grouped_allreduce_async
grouped_allreduce_async_ = collectives.grouped_allreduce_async_
allgather = collectives.allgather
allgather_async = collectives.allgather_async
grouped_allgather = collectives.grouped_allgather
grouped_allgather_async = collectives.grouped_allgather_async
broadcast = collectives.broadcast
broadcast_ = collectives.broadcast_
broadcast_async = collectives.broadcast_async
broadcast_async_ = collectives.broadcast_async_
reducescatter = collectives.reducescatter
reducescatter_async = collectives.reducescatter_async
grouped_reducescatter = collectives.grouped_reducescatter
grouped_reducescatter_async = collectives.grouped_reducescatter_async
alltoall = collectives.alltoall
alltoall_async = collectives.alltoall_async


def shared_zeros(*shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Returns zeros in memory that the other ranks of this host read in place.

    Use it for tensors that are reduced repeatedly, such as a flat buffer of gradients: operations on it, or
    on views of it, save a copy of the sent data. In all other respects it is an ordinary tensor.

    Args:
        shape: as for ``torch.zeros``.
        dtype: as for ``torch.zeros``.

    Raises:
        HorovodInternalError: the host has not enough shared memory.
    """
    like = torch.empty(shape, dtype=dtype, device="meta")
    if not like.numel():
        return torch.zeros(shape, dtype=dtype)
    memory = _core.shared(like.nbytes)
    return torch.frombuffer(memory, dtype=like.dtype, count=like.numel()).view(like.shape)


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Starts summing or averaging a sparse tensor over the ranks, whose entries are gathered.

    Args:
        tensor: a sparse COO tensor of the same shape on all ranks, with any number of entries on each rank.
        name: equal on all ranks.
        op: Average or Sum.
        process_set: the ranks that take part.

    Returns:
        A function that waits and returns the reduced tensor, not coalesced.
    """
    if op not in (Average, Sum):
        raise ValueError("sparse tensors can be reduced by op=Average and op=Sum only")
    if tensor.layout is not torch.sparse_coo:
        raise ValueError(f"sparse_allreduce_async takes a sparse COO tensor, not one of {tensor.layout}")
    tensor = tensor.detach()
    indices, values, shape = tensor._indices(), tensor._values(), tensor.shape
    handle = grouped_allgather_async([indices.t(), values], name, process_set)

    def wait() -> torch.Tensor:
        joined, gathered = handle.wait()
        if op == Average:
            gathered = gathered / (process_set.size() or 1)
        return torch.sparse_coo_tensor(joined.t(), gathered, shape, check_invariants=False)

    return wait
