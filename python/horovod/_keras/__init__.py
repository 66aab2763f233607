"""The names that other libraries import from here. Modules of this folder serve both packages for Keras."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from horovod._keras import functions
from horovod._keras.optimizer import DistributedOptimizer
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.framework.compression import Compressor, NoneCompressor


def create_distributed_optimizer(
    keras: Any,
    optimizer: Any,
    name: str | None,
    device_dense: str,
    device_sparse: str,
    compression: type[Compressor],
    sparse_as_dense: bool,
    gradient_predivide_factor: float,
    op: int,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """``horovod.keras.DistributedOptimizer``, of Keras 2 or 3 by the type of the optimizer."""
    return DistributedOptimizer(
        optimizer,
        name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def _functions_of(backend: Any) -> Any:
    """Returns our package for a module of Keras, or of ``tf.keras`` if that is another Keras."""
    own = backend.__name__.partition(".")[0] == "keras"
    return importlib.import_module("horovod.keras" if own else "horovod.tensorflow.keras")


def broadcast_global_variables(backend: Any, root_rank: int) -> None:
    """``horovod.keras.broadcast_global_variables``."""
    functions.broadcast_global_variables(root_rank)


def allreduce(
    backend: Any,
    value: Any,
    name: str | None,
    average: bool | None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] = NoneCompressor,
) -> Any:
    """``horovod.keras.allreduce`` on the back end of a Keras, like the next three functions."""
    how = (prescale_factor, postscale_factor, op, compression)
    return _functions_of(backend).allreduce(value, name, average, *how)


def allgather(backend: Any, value: Any, name: str | None = None) -> Any:
    return _functions_of(backend).allgather(value, name)


def broadcast(backend: Any, value: Any, root_rank: int, name: str | None = None) -> Any:
    return _functions_of(backend).broadcast(value, root_rank, name)


def reducescatter(backend: Any, value: Any, name: str | None = None, op: int = Average) -> Any:
    return _functions_of(backend).reducescatter(value, name, op)


def load_model(
    keras: Any,
    wrap_optimizer: Callable[[Any], Callable[..., Any]],
    optimizer_modules: Any,
    filepath: Any,
    custom_optimizers: Sequence[type] | None,
    custom_objects: dict[str, Any] | None,
) -> Any:
    """Loads a model and wraps its optimizer; ``wrap_optimizer`` returns a wrapping constructor for a class.

    ``optimizer_modules`` has no meaning: Keras finds its own optimizers.
    """
    model = functions.load_model(keras, filepath, custom_optimizers, custom_objects)
    wrap_optimizer(lambda **config: model.optimizer)()
    return model
