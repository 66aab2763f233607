"""Horovod for MXNet 1.9.1: ``import horovod.mxnet as hvd``."""

import atexit as _atexit
import contextlib as _contextlib
import sys as _sys

try:
    import mxnet as _mxnet
except ImportError as error:
    raise ImportError(
        "horovod.mxnet needs MXNet, which can't be imported here: pip install mxnet==1.9.1 numpy==1.23.5"
    ) from error

from horovod import __version__ as __version__
from horovod.common.basics import *  # noqa: F403  # type checkers don't follow mpi_ops.__all__
from horovod.mxnet.compression import Compression as Compression
from horovod.mxnet.functions import allgather_object as allgather_object
from horovod.mxnet.functions import broadcast_object as broadcast_object
from horovod.mxnet.functions import broadcast_parameters as broadcast_parameters
from horovod.mxnet.mpi_ops import *  # noqa: F403
from horovod.mxnet.trainer import DistributedOptimizer as DistributedOptimizer
from horovod.mxnet.trainer import DistributedTrainer as DistributedTrainer


@_atexit.register
def _finish_operations() -> None:
    """Finishes operations in flight before this rank leaves the job, as others wait for them.

    After an error it does not, as the others may never submit theirs.
    """
    if getattr(_sys, "last_value", None) is None:
        with _contextlib.suppress(_mxnet.base.MXNetError):
            _mxnet.nd.waitall()
