"""Horovod for PyTorch: ``import horovod.torch as hvd``."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "horovod.torch needs PyTorch, which is not installed here: pip install torch"
    ) from error

from horovod import __version__
from horovod.basics import *  # noqa: F403
from horovod.basics import __all__ as _basics
from horovod.common.exceptions import HorovodInternalError
from horovod.handles import barrier, global_process_set, poll, synchronize
from horovod.objects import allgather_object, broadcast_object
from horovod.torch.compression import Compression
from horovod.torch.operations import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.state import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    *_basics,
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "__version__",
    "allgather",
    "allgather_async",
    "allgather_object",
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
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]
