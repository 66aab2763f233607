"""Collectives of single values, eager or traced, and of variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import horovod
from horovod.collectives import reduction_of
from horovod.common.basics import Average
from horovod.common.exceptions import HorovodInternalError
from horovod.compression import Compressor, NoneCompressor
from horovod.keras.backend import framework
from horovod.variables import variables_of


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] = NoneCompressor,
) -> Any:
    """The reduction of a value over all ranks, as a tensor of the back end.

    Args:
        value: a number, an array, a tensor or a variable; the same shape and type on all ranks.
        name: equal on all ranks.
        average: the old way to say ``op=Average`` (True) or ``op=Sum`` (False).
        prescale_factor: the value is multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it.
        op: Average (the default), Sum, Min, Max, Product or Adasum.
        compression: ``Compression.fp16``, or a class of your own, makes what is sent smaller.
    """
    return framework.allreduce(
        keras.ops.convert_to_tensor(value),
        op=reduction_of(average, op, 1),
        name=name,
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """The ranks' values joined along the first dimension, which may differ by rank, but not with JAX."""
    return framework.allgather(keras.ops.convert_to_tensor(value), name=name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The root's value; shape and type are the same on all ranks."""
    return framework.broadcast(keras.ops.convert_to_tensor(value), root_rank, name=name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """The sum or average of the ranks' values, of which every rank keeps its rows."""
    return framework.reducescatter(keras.ops.convert_to_tensor(value), name=name, op=op)


def broadcast_global_variables(root_rank: int) -> None:
    """Refused: Keras 3 has no global variables.

    Raises:
        RuntimeError: always; it names what to use.
    """
    raise RuntimeError(
        "broadcast_global_variables: Keras 3 has no global variables; give fit the callback "
        f"BroadcastGlobalVariablesCallback({root_rank}), or call broadcast_variables(model.weights, "
        f"{root_rank}) and broadcast_variables(model.optimizer.variables, {root_rank})"
    )


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    """Gives the root's values to variables of Keras, the same ones on all ranks; not traced.

    Raises:
        HorovodInternalError: the ranks' variables differ in number, shape or type; none has changed.
    """
    variables = variables_of(variables)
    values = [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]
    counts = horovod.allgather(np.array([len(values)]), "broadcast_variables").tolist()
    if len(set(counts)) > 1:
        raise HorovodInternalError(f"broadcast_variables: the ranks have {counts} variables, by rank")
    handles = [
        horovod.broadcast_async_(value, root_rank, f"broadcast_variables.{place}")
        for place, value in enumerate(values)
    ]
    for handle in handles:
        handle.wait()
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
