"""DistributedOptimizer: Keras's optimizers with gradients that are reduced over all ranks.

The user's own optimizer is instrumented and handed back: its class becomes a subclass of the same name, so it
is saved as what it was, and loads where Horovod is not installed. What is added differs: Keras 3's optimizers
on every back end are served by :mod:`horovod._keras.keras3`, Keras 2's by :mod:`horovod._keras.keras2`, which
are imported when such an optimizer is wrapped.
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

    Wrap it before ``model.compile``. A ``LossScaleOptimizer`` may stand inside or outside.

    Args:
        optimizer: any of Keras 2 or 3; the same object is returned, instrumented.
        name: of its operations, equal on all ranks; None: made of its class, and of how many such optimizers
            have begun to reduce before.
        device_dense: without meaning, as ``device_sparse``; accepted for compatibility.
        compression: ``Compression.fp16``, or a class of your own, makes what is sent smaller.
        sparse_as_dense: sparse gradients, which only TensorFlow makes, are reduced densely.
        gradient_predivide_factor: splits the division of an average: by this before the sum, the rest after.
        op: Average, Sum or Adasum.
        backward_passes_per_step: gradients of so many batches are summed up before they are reduced and
            applied. In Keras 3 it becomes the optimizer's ``gradient_accumulation_steps``.
        average_aggregated_gradients: they are averaged over those batches instead.
        num_groups: old name of ``groups`` as a number.
        groups: how many groups of gradients to reduce as a whole, or lists of the variables of each.
        process_set: the ranks that train together; others apply their own gradients.
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
    """The optimizer to be instrumented: the one that a LossScaleOptimizer scales for, or else itself."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if hasattr(optimizer, "_hvd"):
        raise ValueError("DistributedOptimizer: this optimizer was wrapped before; wrap it once")
    return optimizer


def _module_of(optimizer: Any) -> Any:
    """What serves it, known by the methods that are overridden there."""
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
    """A DistributedOptimizer that leaves the gradients of some layers to every rank.

    Args:
        local_layers: a layer, or several, which are built. All else as for ``DistributedOptimizer``.

    Raises:
        ValueError: a layer is none, or has no variables yet.
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
