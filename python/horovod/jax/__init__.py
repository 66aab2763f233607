"""Horovod for JAX: ``import horovod.jax as hvd``.

The collectives take arrays and pytrees, eagerly and inside ``jit``, with derivatives, vmap and scan.
"""

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError("horovod.jax needs JAX, which is not installed here: pip install jax") from error

from horovod import __version__ as __version__
from horovod.common.basics import *  # noqa: F403
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.framework.compression import Compression as Compression
from horovod.framework.objects import allgather_object as allgather_object
from horovod.framework.objects import broadcast_object as broadcast_object
from horovod.jax import elastic as elastic
from horovod.jax.operations import allgather as allgather
from horovod.jax.operations import allreduce as allreduce
from horovod.jax.operations import alltoall as alltoall
from horovod.jax.operations import barrier as barrier
from horovod.jax.operations import broadcast as broadcast
from horovod.jax.operations import reducescatter as reducescatter
from horovod.jax.optimizer import DistributedOptimizer as DistributedOptimizer
from horovod.jax.optimizer import broadcast_parameters as broadcast_parameters
from horovod.jax.optimizer import value_and_grad as value_and_grad

# A pytree is one call, so a list of tensors is a group.
grouped_allreduce = allreduce
grouped_allgather = allgather
grouped_reducescatter = reducescatter
