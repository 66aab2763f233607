"""Functions of the packages for Keras: collectives of single values, eager or traced; variables; models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import horovod
from horovod._keras.optimizer import DistributedOptimizer
from horovod._keras.variables import variables_of
from horovod.common.basics import Average
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import reduction_of
from horovod.framework.compression import Compressor, NoneCompressor


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    """Gives the root's values to variables of Keras, which are the same on all ranks; it can't be traced.

    Raises:
        HorovodInternalError: the ranks' variables differ in number, shape or type; none has changed.
    """
    variables = variables_of(variables)
    values = [np.array(variable.numpy()) for variable in variables]
    counts = horovod.allgather(np.array([len(values)]), "broadcast_variables").tolist()
    if len(set(counts)) > 1:
        text = f"broadcast_variables: the ranks have {counts} variables, by rank"
        raise HorovodInternalError(text, code="MISMATCH")
    handles = [
        horovod.broadcast_async_(value, root_rank, f"broadcast_variables.{place}")
        for place, value in enumerate(values)
    ]
    for handle in handles:
        handle.wait()
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def broadcast_global_variables(root_rank: int) -> None:
    """Raises an error: there are no global variables if TensorFlow runs eagerly, and none in Keras 3.

    Raises:
        RuntimeError: always; it names the functions to use.
    """
    raise RuntimeError(
        "broadcast_global_variables: there are no global variables; give fit the callback "
        f"BroadcastGlobalVariablesCallback({root_rank}), or call broadcast_variables(model.weights, "
        f"{root_rank}) and broadcast_variables(model.optimizer.variables, {root_rank})"
    )


def load_model(
    keras: Any,
    filepath: Any,
    custom_optimizers: Sequence[type] | None,
    custom_objects: dict[str, Any] | None,
) -> Any:
    """Loads a model with its optimizer."""
    known = {kind.__name__: kind for kind in custom_optimizers or ()} | (custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known)
    if getattr(model, "optimizer", None) is None:
        raise ValueError(f"load_model: {filepath} holds no optimizer; use keras.models.load_model")
    return model


class Functions:
    """The functions that depend on Keras's version or back end.

    Args:
        keras: the module.
        framework: our package for its back end.
        tensor_of: converts a number, an array, a tensor or a variable to a tensor of the back end.
    """

    def __init__(self, keras: Any, framework: Any, tensor_of: Callable[[Any], Any]) -> None:
        self.keras, self.framework, self.tensor_of = keras, framework, tensor_of

    def allreduce(
        self,
        value: Any,
        name: str | None = None,
        average: bool | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: int | None = None,
        compression: type[Compressor] = NoneCompressor,
    ) -> Any:
        """Reduces a value over all ranks, and returns a tensor of the back end.

        Args:
            value: a number, an array, a tensor or a variable; the same shape and type on all ranks.
            name: equal on all ranks.
            average: the old form of ``op=Average`` (True) or ``op=Sum`` (False).
            prescale_factor: the value is multiplied by it before the reduction.
            postscale_factor: the result is multiplied by it.
            op: Average (the default), Sum, Min, Max, Product or Adasum.
            compression: ``Compression.fp16``, or a class of your own, makes messages smaller.
        """
        return self.framework.allreduce(
            self.tensor_of(value),
            op=reduction_of(average, op),
            name=name,
            compression=compression,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )

    def allgather(self, value: Any, name: str | None = None) -> Any:
        """Joins the ranks' values along the first dimension, which may differ by rank except with JAX."""
        return self.framework.allgather(self.tensor_of(value), name=name)

    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        """Returns the root's value; shape and type are the same on all ranks."""
        return self.framework.broadcast(self.tensor_of(value), root_rank, name=name)

    def reducescatter(self, value: Any, name: str | None = None, op: int = Average) -> Any:
        """Sums or averages the ranks' values; every rank keeps its rows of the result."""
        return self.framework.reducescatter(self.tensor_of(value), name=name, op=op)

    def load_model(
        self,
        filepath: Any,
        custom_optimizers: Sequence[type] | None = None,
        custom_objects: dict[str, Any] | None = None,
        compression: type[Compressor] = NoneCompressor,
        legacy_opts: bool = False,
    ) -> Any:
        """Loads a model with its optimizer, which becomes a DistributedOptimizer.

        Args:
            filepath: as for ``keras.models.load_model``; every rank reads it.
            custom_optimizers: classes of optimizers that Keras does not know.
            custom_objects: other objects that Keras does not know, by name.
            compression: as for ``DistributedOptimizer``.
            legacy_opts: accepted for compatibility in Keras 2: the file says whether its optimizer is legacy.

        Raises:
            ValueError: ``legacy_opts`` in Keras 3, or the model was saved without an optimizer.
        """
        if legacy_opts and self.keras.__version__ >= "3":
            raise ValueError("legacy_opts: Keras 3 has no legacy optimizers")
        model = load_model(self.keras, filepath, custom_optimizers, custom_objects)
        DistributedOptimizer(model.optimizer, compression=compression)
        return model
