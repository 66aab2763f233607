"""Functions that optimizers of other libraries make for themselves, under the names of Horovod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.basics import ProcessSet, global_process_set
from horovod.framework.compression import Compressor
from horovod.framework.gradient_list import GradientOptions
from horovod.tensorflow.functions import broadcast_variables
from horovod.tensorflow.lists import tensors

_LegacyOptimizer = tf.compat.v1.train.Optimizer


def _make_allreduce_grads_fn(
    name: str,
    device_dense: str,
    device_sparse: str,
    compression: type[Compressor],
    sparse_as_dense: bool,
    op: int,
    gradient_predivide_factor: float,
    groups: int | Sequence[Sequence[Any]] | None,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., list[Any]]:
    """Returns a function of gradients and, optionally, their variables, which returns the reduced gradients.

    The parameters are those of ``DistributedGradientTape``. ``groups`` of variables need the variables.
    """
    options = GradientOptions(
        tensors,
        name,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        0,
        groups,
        process_set,
        scale_local_gradients=True,
    )

    def allreduce_grads(grads: Sequence[Any], vars: Sequence[Any] | None = None) -> list[Any]:
        return options.reduce(list(grads), list(grads if vars is None else vars))

    return allreduce_grads


def _make_broadcast_group_fn() -> Callable[..., Any]:
    """Returns a function of variables and a root, which gives them the values that the root has."""
    return broadcast_variables
