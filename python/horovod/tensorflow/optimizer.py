"""Optimizers of TensorFlow 1 that average the gradients over all ranks; Keras's are passed on to _keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._keras import optimizer as _keras
from horovod.common.basics import Average, ProcessSet, global_process_set
from horovod.framework.compression import Compressor, NoneCompressor
from horovod.framework.gradient_list import GradientOptions
from horovod.framework.grouping import check_passes
from horovod.tensorflow.accumulation import Accumulation
from horovod.tensorflow.divergence import compare_after
from horovod.tensorflow.lists import tensors


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """The optimizer that DistributedOptimizer returns; other libraries check for it with isinstance."""

    def __init__(self, optimizer: Any, use_locking: bool, options: GradientOptions[Any], passes: int) -> None:
        super().__init__(name=options.name, use_locking=use_locking)
        self._optimizer, self._options = optimizer, options
        self._accumulation = Accumulation(passes, options.sparse_as_dense)

    def register_local_var(self, var: Any) -> None:
        """Leaves the gradient of a variable out of the reduction: every rank keeps its own."""
        self._options.local.append(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the optimizer's gradients, reduced over all ranks; zeros until the last pass of a step."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        return self._accumulation.add(pairs, self._options.reduce)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Calls the optimizer's own method in the last pass of a step; in other passes it only counts."""

        def apply(pairs: Any) -> Any:
            shared = self._options.shared([variable for _, variable in pairs])
            done = self._optimizer.apply_gradients(pairs, global_step, name)
            return compare_after(done, self._options.check, ((each.name, each) for each in shared))

        return self._accumulation.apply(list(grads_and_vars), apply, global_step)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the optimizer's own method."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the optimizer's own method."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        """Calls the optimizer's own method."""
        return self._optimizer.variables()


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes an optimizer that reduces the gradients over all ranks before it uses them.

    Args:
        optimizer: a ``tf.compat.v1.train.Optimizer``, or one of Keras, which ``horovod.keras`` wraps.
        name: the prefix of reductions; distinguishes several optimizers that reduce concurrently.
        use_locking: as for the optimizer's own.
        device_dense: accepted for compatibility, like ``device_sparse``: operations run on the CPU.
        device_sparse: see ``device_dense``.
        compression: ``Compression.fp16``, or a class of your own, makes messages smaller.
        sparse_as_dense: tf.IndexedSlices are made dense first; otherwise the ranks' rows are gathered.
        backward_passes_per_step: gradients of this many passes are summed up before they are reduced.
        op: Average, Sum, or Adasum of the gradients.
        gradient_predivide_factor: averages divide by the factor before the sum and by size / factor after it.
        average_aggregated_gradients: the sum over the passes is divided by their number.
        num_groups: the old name of ``groups``, as a number.
        groups: a number of groups, or lists of variables, whose gradients are reduced as one operation.
        process_set: the ranks that take part; other ranks use their own gradients.
        scale_local_gradients: gradients of local variables (``register_local_var``) are divided by the
            number of ranks.

    Raises:
        ValueError: it is not an optimizer, or was wrapped before, or the options contradict each other.
    """
    shared: dict[str, Any] = {
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "num_groups": num_groups,
        "groups": groups,
        "process_set": process_set,
        "scale_local_gradients": scale_local_gradients,
    }
    passes, average = check_passes(backward_passes_per_step), average_aggregated_gradients
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if not hasattr(optimizer, "apply_gradients"):
            raise ValueError(
                f"DistributedOptimizer takes an optimizer of tf.compat.v1.train or of Keras, not "
                f"{type(optimizer).__name__}"
            )
        return _keras.DistributedOptimizer(
            optimizer,
            name,
            backward_passes_per_step=passes,
            average_aggregated_gradients=average,
            **shared,
        )
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("DistributedOptimizer: this optimizer was wrapped before; wrap it once")
    name = f"Distributed{type(optimizer).__name__}" if name is None else name
    options = GradientOptions(tensors, name, **shared, scale=1.0 / passes if average else 1.0)
    return _DistributedOptimizer(optimizer, use_locking, options, passes)
