"""Horovod for PyTorch: ``import horovod.torch as hvd``."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "horovod.torch needs PyTorch, which is not installed here: pip install torch"
    ) from error

from horovod import __version__ as __version__
from horovod.common.basics import *  # noqa: F403  # type checkers don't follow mpi_ops.__all__
from horovod.torch import elastic as elastic
from horovod.torch import storage as _storage
from horovod.torch.compression import Compression as Compression
from horovod.torch.functions import allgather_object as allgather_object
from horovod.torch.functions import broadcast_object as broadcast_object
from horovod.torch.functions import broadcast_optimizer_state as broadcast_optimizer_state
from horovod.torch.functions import broadcast_parameters as broadcast_parameters
from horovod.torch.mpi_ops import *  # noqa: F403
from horovod.torch.optimizer import DistributedOptimizer as DistributedOptimizer
from horovod.torch.optimizer import _DistributedOptimizer as _DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm as SyncBatchNorm

_storage.guard()
