"""DistributedOptimizer: Keras's optimizers with gradients that are reduced over all ranks.

On every back end Keras's training ends in the optimizer's ``apply``, whose gradients are reduced first. The
user's own optimizer is instrumented and handed back: its class becomes a subclass of the same name, so it is
saved as what it was, and loads where Horovod is not installed.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import keras
from keras import ops

from horovod.common.basics import Average, Min, size
from horovod.common.process_sets import ProcessSet, global_process_set, is_member
from horovod.compression import Compressor, NoneCompressor
from horovod.gradient_list import GradientList
from horovod.grouping import check_groups, make_groups, split_factor
from horovod.keras.backend import framework, tensors
from horovod.optimizer import Rules

O = TypeVar("O", bound=keras.optimizers.Optimizer)  # noqa: E741


@dataclass
class _Options:
    """What the user asked for."""

    name: str
    rules: Rules
    groups: int | Sequence[Sequence[Any]] | None
    scale: float
    scale_local: bool
    local: list[Any] = field(default_factory=list)  # variables that every rank has for itself

    def reduce(self, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        """The reduced gradients of these variables."""
        groups = self.groups
        if not isinstance(groups, int) and groups:
            groups = make_groups(groups, dict(enumerate(variables)))
        local = {id(variable) for variable in self.local}
        reduce = GradientList(
            tensors,
            [f"{self.name}.{place}" for place in range(len(variables))],
            self.rules,
            groups or None,
            [place for place, variable in enumerate(variables) if id(variable) in local],
            self.scale_local,
            self.scale,
        )
        return reduce(gradients)


class _DistributedOptimizer:
    """What DistributedOptimizer adds to the class of a user's optimizer."""

    _hvd: _Options

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """As the optimizer's own, with the gradients that all ranks have together."""
        this: Any = self
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            if not this.built:
                this.build(trainable_variables)
        if this.built:  # else Keras's own words tell what is missing
            variables = trainable_variables or this._trainable_variables
            grads = self._reduce(grads, variables) if len(grads) == len(variables) else grads
        super().apply(grads, trainable_variables)  # type: ignore[misc]

    def __reduce__(self) -> Any:
        """Copies and pickles are plain optimizers of the user's class."""
        restore, arguments = cast(tuple[Any, Any], super().__reduce__())
        plain = next(kind for kind in type(self).__mro__ if not issubclass(kind, _DistributedOptimizer))
        return getattr(plain, restore.__name__), arguments

    def register_local_var(self, variable: Any) -> None:
        """Leaves the gradient of a variable out of the reduction: every rank has its own."""
        self._hvd.local.append(variable)

    def _reduce(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """The reduced gradients; in passes before the last one, which only add up, those of this rank."""
        this: Any = self
        passes = this.gradient_accumulation_steps
        if not passes:
            return self._hvd.reduce(gradients, variables)
        places = [place for place, gradient in enumerate(gradients) if gradient is not None]
        present = [
            tensors.dense(gradients[i]) if tensors.is_sparse(gradients[i]) else gradients[i] for i in places
        ]
        sums = [this._accumulated_gradients[this._get_variable_index(variables[place])] for place in places]
        last = ops.equal((this._iterations + 1) % passes, 0)  # of passes; `iterations` counts steps

        def reduce_sums() -> list[Any]:
            own: list[Any] = [None] * len(gradients)
            for place, total, gradient in zip(places, sums, present, strict=True):
                own[place] = ops.add(total, gradient)
            reduced = self._hvd.reduce(own, variables)
            return [reduced[place] for place in places]

        outcome = list(gradients)
        for place, gradient in zip(places, ops.cond(last, reduce_sums, lambda: present), strict=True):
            outcome[place] = gradient
        for total in sums:  # they are in the reduced gradients already, to which Keras will add them
            total.assign(ops.where(last, ops.zeros(total.shape, total.dtype), total.value))
        return outcome

    def _agree(self, finite: Any) -> Any:
        """Whether it is true on all ranks."""
        rules = self._hvd.rules
        if not rules.member:
            return finite
        number = ops.cast(finite, "int32")
        name = f"{self._hvd.name}.finite"
        return ops.cast(framework.allreduce(number, op=Min, name=name, process_set=rules.process_set), "bool")


def _let_all_ranks_check(kind: Any) -> None:
    """A step is left out on all ranks when the gradients of one are not finite.

    ``compile`` puts a LossScaleOptimizer around ours, which decides whether to call it at all. Keras has no
    place for another opinion, so its class is changed, for optimizers of ours only.
    """
    check = kind.check_finite

    @functools.wraps(check)
    def check_finite(self: Any, grads: Any) -> Any:
        finite, inner = check(self, grads), self.inner_optimizer
        return inner._agree(finite) if isinstance(inner, _DistributedOptimizer) else finite

    kind.check_finite = check_finite


_let_all_ranks_check(keras.optimizers.LossScaleOptimizer)


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
        optimizer: any of Keras 3; the same object is returned, instrumented.
        name: of its operations, equal on all ranks; None: made of its class, and how many of it were wrapped.
        device_dense: without meaning, as ``device_sparse``; accepted for compatibility.
        compression: ``Compression.fp16``, or a class of your own, makes what is sent smaller.
        sparse_as_dense: sparse gradients, which only TensorFlow makes, are reduced densely.
        gradient_predivide_factor: splits the division of an average: by this before the sum, the rest after.
        op: Average, Sum or Adasum.
        backward_passes_per_step: gradients of so many batches are summed up before they are reduced and
            applied. It becomes the optimizer's ``gradient_accumulation_steps``.
        average_aggregated_gradients: they are averaged over those batches instead.
        num_groups: old name of ``groups`` as a number.
        groups: how many groups of gradients to reduce as a whole, or lists of the variables of each.
        process_set: the ranks that train together; others apply their own gradients.
        scale_local_gradients: the gradients of local variables (``PartialDistributedOptimizer``) are divided
            by the number of ranks.

    Raises:
        ValueError: it is no optimizer of Keras 3, was wrapped before, or the options do not fit it.
    """
    size()  # init must have been called
    kind = _optimizer_inside(optimizer)
    if num_groups:
        warnings.warn("num_groups is deprecated: pass groups", DeprecationWarning, stacklevel=2)
    rules = Rules(
        op,
        split_factor(gradient_predivide_factor, op),
        compression,
        process_set,
        is_member(process_set),
        sparse_as_dense=sparse_as_dense,
    )
    together = check_groups(groups or num_groups or None, keras.Variable)
    scale = 1.0 if average_aggregated_gradients else float(backward_passes_per_step)  # Keras averages
    _accumulate(kind, backward_passes_per_step)
    options = _Options(name or _new_name(type(kind)), rules, together, scale, scale_local_gradients)
    members = {"__module__": type(kind).__module__, "_hvd": options}
    kind.__class__ = type(type(kind).__name__, (_DistributedOptimizer, type(kind)), members)
    return optimizer


def _new_name(kind: type) -> str:
    """By class and order: Keras's own names differ where one rank has made more optimizers than another."""
    name = f"Distributed{kind.__name__}"
    _named[name] += 1
    return f"{name}_{_named[name]}" if _named[name] > 1 else name


_named: Counter[str] = Counter()


def _optimizer_inside(optimizer: Any) -> Any:
    """The optimizer to be instrumented: the one that a LossScaleOptimizer scales for, or else itself."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        kind = type(optimizer)
        raise ValueError(
            f"DistributedOptimizer takes an optimizer of Keras {keras.__version__}, not {kind.__module__}."
            f"{kind.__name__}; those of Keras 2 (TF_USE_LEGACY_KERAS, tf.keras.optimizers.legacy) are too old"
        )
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("DistributedOptimizer: this optimizer was wrapped before; wrap it once")
    return optimizer


def _accumulate(optimizer: Any, passes: int) -> None:
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"backward_passes_per_step must be an integer of at least 1, not {passes}")
    if passes == 1:
        return
    if optimizer.built or optimizer.gradient_accumulation_steps:
        raise ValueError(
            "backward_passes_per_step needs an optimizer that is not built yet and has no "
            "gradient_accumulation_steps of its own"
        )
    optimizer.gradient_accumulation_steps = passes


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
    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
    layers = [layer for layer in layers if layer is not None]
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise ValueError(f"local_layers must be layers of Keras, not {type(layer)}")
        if not layer.built:
            raise ValueError(
                f"the local layer '{layer.name}' has no variables yet: build the model, or call it, first"
            )
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
    for variable in (variable for layer in layers for variable in layer.trainable_variables):
        inside.register_local_var(variable)
    return wrapped


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: type[Compressor] = NoneCompressor,
    legacy_opts: bool = False,
) -> Any:
    """A saved model with its optimizer, which becomes a DistributedOptimizer.

    Args:
        filepath: what ``keras.models.load_model`` takes; read by every rank.
        custom_optimizers: classes of optimizers that Keras does not know.
        custom_objects: what else it does not know, by name.
        compression: as for ``DistributedOptimizer``.
        legacy_opts: Keras 2 only.

    Raises:
        ValueError: ``legacy_opts``, or the model was saved without an optimizer.
    """
    if legacy_opts:
        raise ValueError("legacy_opts: Keras 3 has no legacy optimizers")
    known = {kind.__name__: kind for kind in custom_optimizers or ()} | (custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known)
    if getattr(model, "optimizer", None) is None:
        raise ValueError(f"load_model: {filepath} holds no optimizer; use keras.models.load_model")
    DistributedOptimizer(model.optimizer, compression=compression)
    return model
