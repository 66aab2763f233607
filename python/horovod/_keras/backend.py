"""The back end that Keras has been set to, and our package that serves it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

try:
    import keras as keras
except ImportError as error:
    raise ImportError("horovod.keras needs Keras, which is not installed here: pip install keras") from error

from horovod._keras import jax_trainer
from horovod.common.process_sets import ProcessSet
from horovod.framework.compression import NoneCompressor
from horovod.framework.gradient_list import DenseTensors, EagerTensors, Tensors
from horovod.framework.reducer import Rules

BACKEND: str = keras.backend.backend()
if BACKEND not in ("tensorflow", "jax", "torch"):
    raise ImportError(
        f"horovod.keras works on the back ends tensorflow, jax and torch, not on {BACKEND}: set KERAS_BACKEND"
    )
framework: Any = importlib.import_module(f"horovod.{BACKEND}")
if BACKEND == "jax":
    jax_trainer.install(importlib.import_module("horovod.jax.errors").check)


class _OneCall(DenseTensors[Any]):
    """JAX's arrays: XLA runs collectives in any order, so all gradients of a step are one operation."""

    def size_of(self, process_set: ProcessSet) -> int:
        importlib.import_module("horovod.jax.primitive").traces.depend_on_ranks()
        return super().size_of(process_set)  # type: ignore[no-any-return]

    def reduce(
        self, groups: Sequence[Sequence[Any]], names: Sequence[str], rules: Rules
    ) -> Sequence[Sequence[Any]]:
        tree = [[*group] for group in groups]
        return framework.operations.reduce_gradients(  # type: ignore[no-any-return]
            tree, rules.op, names[0], NoneCompressor, rules.factors, rules.process_set
        )


def _tensors() -> Tensors[Any]:
    if BACKEND == "tensorflow":
        return framework.tensors  # type: ignore[no-any-return]
    return EagerTensors(framework.mpi_ops.collectives) if BACKEND == "torch" else _OneCall()


compare_parameters: Any = importlib.import_module(f"horovod.{BACKEND}.divergence").compare_parameters
tensors = _tensors()
tensor_of = keras.ops.convert_to_tensor
if BACKEND == "tensorflow":
    tensor_of = importlib.import_module("tensorflow").convert_to_tensor
