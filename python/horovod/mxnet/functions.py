"""Equal parameters and objects on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mxnet as mx

from horovod.framework.objects import allgather_object as allgather_object
from horovod.framework.objects import broadcast_object as broadcast_object
from horovod.mxnet.engine import only
from horovod.mxnet.mpi_ops import broadcast_


def _array_of(name: str, parameter: Any) -> Any:
    """Returns the array of a parameter of Gluon; None while its shape is unknown."""
    try:
        return only(name, parameter.list_data())
    except mx.gluon.parameter.DeferredInitializationError:
        return None


def _broadcast_when_initialized(parameter: Any, root_rank: int, name: str) -> None:
    initialize = parameter._init_impl

    def initialize_and_broadcast(*args: Any, **kwargs: Any) -> None:
        initialize(*args, **kwargs)
        broadcast_(_array_of(name, parameter), root_rank, name)

    parameter._init_impl = initialize_and_broadcast


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Gives the root's parameters to all ranks, in place.

    A parameter whose shape is not known yet is broadcast after the first forward pass has initialized it.

    Args:
        params: ``net.collect_params()``, or a dict of arrays such as ``module.get_params()[0]``.
        root_rank: the rank that has them.
        prefix: a prefix of their names, which distinguishes them from others that are broadcast concurrently.

    Raises:
        ValueError: ``params`` is not a dict, or a parameter is on several devices.
    """
    if not isinstance(params, (Mapping, mx.gluon.ParameterDict)):
        raise ValueError(f"broadcast_parameters takes a dict or a ParameterDict, not {type(params).__name__}")
    for key, parameter in sorted(params.items()):
        name = f"{prefix or ''}{key}"
        gluon = isinstance(parameter, mx.gluon.Parameter)
        array = _array_of(name, parameter) if gluon else parameter
        if array is None:
            _broadcast_when_initialized(parameter, root_rank, name)
        else:
            broadcast_(array, root_rank, name)
