"""Horovod: data-parallel training on any number of processes.

``import horovod as hvd`` offers the collectives for NumPy arrays and for all arrays that NumPy can read, such
as eager arrays of JAX and TensorFlow. Results are NumPy arrays or, in place, the arrays that were passed.
Each framework has a package of its own, e.g. ``import horovod.torch as hvd``.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from horovod import _core
from horovod.common.basics import *  # noqa: F403
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.framework.arrays import NumPyArrays as _NumPyArrays
from horovod.framework.collectives import Collectives as _Collectives
from horovod.framework.collectives import barrier as barrier
from horovod.framework.collectives import join as join
from horovod.framework.compression import Compression as Compression
from horovod.framework.handles import poll as poll
from horovod.framework.handles import synchronize as synchronize
from horovod.framework.objects import allgather_object as allgather_object
from horovod.framework.objects import broadcast_object as broadcast_object

if _TYPE_CHECKING:
    from horovod import elastic as elastic
    from horovod.runner import run as run

__version__ = _core.version()

_collectives: _Collectives[_Any] = _Collectives(_NumPyArrays())
allreduce = _collectives.allreduce
allreduce_ = _collectives.allreduce_
allreduce_async = _collectives.allreduce_async
allreduce_async_ = _collectives.allreduce_async_
grouped_allreduce = _collectives.grouped_allreduce
grouped_allreduce_ = _collectives.grouped_allreduce_
grouped_allreduce_async = _collectives.grouped_allreduce_async
grouped_allreduce_async_ = _collectives.grouped_allreduce_async_
allgather = _collectives.allgather
allgather_async = _collectives.allgather_async
grouped_allgather = _collectives.grouped_allgather
grouped_allgather_async = _collectives.grouped_allgather_async
broadcast = _collectives.broadcast
broadcast_ = _collectives.broadcast_
broadcast_async = _collectives.broadcast_async
broadcast_async_ = _collectives.broadcast_async_
reducescatter = _collectives.reducescatter
reducescatter_async = _collectives.reducescatter_async
grouped_reducescatter = _collectives.grouped_reducescatter
grouped_reducescatter_async = _collectives.grouped_reducescatter_async
alltoall = _collectives.alltoall
alltoall_async = _collectives.alltoall_async


def __getattr__(name: str) -> _Any:
    """Imports what few ranks need when it is first used; importing the launcher takes long."""
    if name == "elastic":
        return _importlib.import_module("horovod.elastic")
    if name not in ("run", "runner"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    launcher = _importlib.import_module("horovod.runner")
    return launcher if name == "runner" else launcher.run


def __dir__() -> list[str]:
    return sorted({*globals(), "elastic", "run", "runner"})
