"""DistributedOptimizer: Keras's optimizers with gradients that are reduced over all ranks.

The user's own optimizer is instrumented and returned: its class becomes a subclass of the same name, so it is
saved under its original class, and loads without Horovod. :mod:`horovod._keras.keras3` serves the optimizers
of Keras 3 on every back end, :mod:`horovod._keras.keras2` those of Keras 2; they are imported when such an
optimizer is wrapped.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Sequence
from typing import Any, TypeVar

from horovod._keras.variables import variables_of_layers
from horovod.common.basics import Average, size
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.framework.compression import Compressor, NoneCompressor
from horovod.framework.gradient_list import GradientOptions
from horovod.framework.grouping import check_passes

O = TypeVar("O")  # noqa: E741


def DistributedOptimizer(  # noqa: N802
    optimizer: O,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> O:
    """Makes an optimizer of Keras reduce its gradients over all ranks before it applies them.

    Wrap it before ``model.compile``. A ``LossScaleOptimizer`` may be inside or outside.

    Args:
        optimizer: any of Keras 2 or 3; the same object is returned, instrumented.
        name: the prefix of its operations' names, equal on all ranks; None: made of its class and of the
            number of such optimizers that have started to reduce before.
        device_dense: accepted for compatibility, like ``device_sparse``; it has no meaning.
        device_sparse: see ``device_dense``.
        compression: ``Compression.fp16``, or a class of your own, makes messages smaller.
        sparse_as_dense: sparse gradients, which only TensorFlow makes, are reduced densely.
        gradient_predivide_factor: averages divide by the factor before the sum and by size / factor after it.
        op: Average, Sum or Adasum.
        backward_passes_per_step: gradients of this many batches are summed up before they are reduced and
            applied. In Keras 3 it becomes the optimizer's ``gradient_accumulation_steps``.
        average_aggregated_gradients: the gradients are averaged over those batches instead.
        num_groups: old name of ``groups`` as a number.
        groups: the number of groups of gradients to reduce as a whole, or lists of the variables of each
            group.
        process_set: the ranks that train together; other ranks apply their own gradients.
        scale_local_gradients: the gradients of local variables (``PartialDistributedOptimizer``) are divided
            by the number of ranks.

    Raises:
        ValueError: it is no optimizer of Keras, was wrapped before, or the options do not fit it.
    """
    size()  # init must have been called
    inside = _optimizer_inside(optimizer)
    module = _module_of(inside)
    options: GradientOptions[Any] = GradientOptions(
        module.tensors,
        f"Distributed{type(inside).__name__}" if name is None else name,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
        module.Variable,
        numbered=not name,
    )
    passes = check_passes(backward_passes_per_step)
    members = module.prepare(inside, options, passes, average_aggregated_gradients)
    kind = type(inside)
    members |= {"__module__": __package__, "_hvd": options}
    inside.__class__ = type(kind.__name__, (module._DistributedOptimizer, kind), members)
    _save_as(inside, kind, module.saved_names)
    return optimizer


def _save_as(optimizer: Any, kind: type, saved_names: Sequence[dict[type, str]]) -> None:
    """Saves the optimizer under the name of the user's class, by which Keras finds it without Horovod."""
    made, own = type(optimizer), kind.__module__.startswith("keras.")
    bases = kind.__mro__ if own else (kind,)  # on PyTorch Keras makes subclasses of its public classes
    for names in saved_names:
        if name := next((names[base] for base in bases if base in names), None):
            names[made] = name
            weakref.finalize(optimizer, names.pop, made, None).atexit = False


def _optimizer_inside(optimizer: Any) -> Any:
    """Returns the optimizer to instrument: the one inside a LossScaleOptimizer, otherwise the given one."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if hasattr(optimizer, "_hvd"):
        raise ValueError("DistributedOptimizer: this optimizer was wrapped before; wrap it once")
    return optimizer


def _module_of(optimizer: Any) -> Any:
    """Returns the module that serves an optimizer, chosen by the methods that the module overrides."""
    if not isinstance(optimizer, type):
        if hasattr(optimizer, "stateless_apply"):
            return importlib.import_module("horovod._keras.keras3")
        if hasattr(optimizer, "aggregate_gradients") or hasattr(optimizer, "_aggregate_gradients"):
            return importlib.import_module("horovod._keras.keras2")
    raise ValueError(
        "DistributedOptimizer takes an optimizer of Keras 2 or 3, such as keras.optimizers.Adam(0.001), not "
        f"{optimizer!r}"
    )


def PartialDistributedOptimizer(  # noqa: N802
    optimizer: O,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    local_layers: Any = None,
) -> O:
    """Makes a DistributedOptimizer that does not reduce the gradients of some layers.

    Args:
        local_layers: a layer, or several, which are built. Other arguments are as for
            ``DistributedOptimizer``.

    Raises:
        ValueError: one of them is not a layer, or has no variables yet.
    """
    local = variables_of_layers(local_layers)
    wrapped = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    inside: Any = getattr(wrapped, "inner_optimizer", wrapped)
    for variable in local:
        inside.register_local_var(variable)
    return wrapped
