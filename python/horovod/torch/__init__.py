"""Horovod for PyTorch: ``import horovod.torch as hvd``."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "horovod.torch needs PyTorch, which is not installed here: pip install torch"
    ) from error

from horovod import __version__ as __version__
from horovod.basics import *  # noqa: F403
from horovod.collectives import barrier as barrier
from horovod.collectives import join as join
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.handles import poll as poll
from horovod.handles import synchronize as synchronize
from horovod.objects import allgather_object as allgather_object
from horovod.objects import broadcast_object as broadcast_object
from horovod.torch.compression import Compression as Compression
from horovod.torch.normalization import SyncBatchNorm as SyncBatchNorm
from horovod.torch.operations import *  # noqa: F403
from horovod.torch.optimizer import DistributedOptimizer as DistributedOptimizer
from horovod.torch.state import broadcast_optimizer_state as broadcast_optimizer_state
from horovod.torch.state import broadcast_parameters as broadcast_parameters
