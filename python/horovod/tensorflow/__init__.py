"""Horovod for TensorFlow: ``import horovod.tensorflow as hvd``."""

from typing import Any as _Any

try:
    import tensorflow as _tensorflow  # noqa: F401
except ImportError as error:
    raise ImportError(
        "horovod.tensorflow needs TensorFlow, which is not installed here: pip install tensorflow"
    ) from error

from horovod import __version__ as __version__
from horovod.common.basics import *  # noqa: F403  # type checkers don't follow mpi_ops.__all__
from horovod.tensorflow import derivatives as _derivatives  # noqa: F401
from horovod.tensorflow import elastic as elastic
from horovod.tensorflow.compression import Compression as Compression
from horovod.tensorflow.functions import BroadcastGlobalVariablesHook as BroadcastGlobalVariablesHook
from horovod.tensorflow.functions import allgather_object as allgather_object
from horovod.tensorflow.functions import broadcast_global_variables as broadcast_global_variables
from horovod.tensorflow.functions import broadcast_object as broadcast_object
from horovod.tensorflow.functions import broadcast_object_fn as broadcast_object_fn
from horovod.tensorflow.functions import broadcast_variables as broadcast_variables
from horovod.tensorflow.lists import tensors as tensors
from horovod.tensorflow.makers import _LegacyOptimizer as _LegacyOptimizer
from horovod.tensorflow.makers import _make_allreduce_grads_fn as _make_allreduce_grads_fn
from horovod.tensorflow.makers import _make_broadcast_group_fn as _make_broadcast_group_fn
from horovod.tensorflow.mpi_ops import *  # noqa: F403
from horovod.tensorflow.mpi_ops import _allreduce as _allreduce
from horovod.tensorflow.mpi_ops import _executing_eagerly as _executing_eagerly
from horovod.tensorflow.optimizer import DistributedOptimizer as DistributedOptimizer
from horovod.tensorflow.optimizer import _DistributedOptimizer as _DistributedOptimizer
from horovod.tensorflow.reductions import allreduce as allreduce
from horovod.tensorflow.reductions import grouped_allreduce as grouped_allreduce
from horovod.tensorflow.reductions import grouped_reducescatter as grouped_reducescatter
from horovod.tensorflow.reductions import reducescatter as reducescatter
from horovod.tensorflow.tape import DistributedGradientTape as DistributedGradientTape
from horovod.tensorflow.tape import PartialDistributedGradientTape as PartialDistributedGradientTape
from horovod.tensorflow.tape import _DistributedGradientTape as _DistributedGradientTape


def __getattr__(name: str) -> _Any:
    if name != "SyncBatchNormalization":  # a layer of Keras, which is imported only for it
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

    return SyncBatchNormalization
