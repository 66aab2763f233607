"""tf.GradientTape with gradients that are reduced over all ranks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._keras.variables import variables_of_layers
from horovod.common.basics import Average, ProcessSet, global_process_set
from horovod.framework.compression import Compressor, NoneCompressor
from horovod.framework.gradient_list import GradientOptions
from horovod.tensorflow.lists import tensors


class _DistributedGradientTape(tf.GradientTape):  # type: ignore[misc]
    """The members that DistributedGradientTape adds to a tape."""

    _hvd: GradientOptions[Any]

    def register_local_source(self, source: Any) -> None:
        """Leaves the gradient of a variable out of the reduction: every rank keeps its own."""
        self._hvd.local.append(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **options: Any,
    ) -> Any:
        """Returns the tape's gradients, reduced over all ranks.

        Args:
            target: as for the tape's own method.
            sources: variables, the same ones on all ranks in the same order.
            output_gradients: as for the tape's own method.
            use_generic_names: accepted for compatibility: reductions are named by place.
            options: other options of the tape's own method, such as ``unconnected_gradients``.
        """
        computed = super().gradient(target, sources, output_gradients, **options)
        reduced = self._hvd.reduce(tf.nest.flatten(computed), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(computed, reduced)


def DistributedGradientTape(  # noqa: N802
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes a tape like the given one, whose ``gradient`` returns gradients that are reduced over all ranks.

    Args:
        gradtape: a ``tf.GradientTape``, before or after it has recorded; it does not change.
        device_dense: accepted for compatibility, like ``device_sparse``: operations run on the CPU.
        device_sparse: see ``device_dense``.
        compression: ``Compression.fp16``, or a class of your own, makes messages smaller.
        sparse_as_dense: tf.IndexedSlices are made dense first; otherwise the ranks' rows are gathered.
        op: Average, Sum, Adasum, …
        gradient_predivide_factor: averages divide by the factor before the sum and by size / factor after it.
        num_groups: the old name of ``groups``, as a number.
        groups: a number of groups, or lists of variables, whose gradients are reduced as one operation.
        process_set: the ranks that take part; other ranks get their own gradients.
        scale_local_gradients: gradients of local sources are divided by the number of ranks.

    Raises:
        ValueError: the object is not a tape, or was wrapped before, or the options contradict each other.

    Example::

        with tf.GradientTape() as tape:
            loss = loss_of(model(images), labels)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"DistributedGradientTape takes a tf.GradientTape, not {type(gradtape).__name__}")
    if isinstance(gradtape, _DistributedGradientTape):
        raise ValueError("DistributedGradientTape: this tape was wrapped before; wrap it once")
    options = GradientOptions(
        tensors,
        "DistributedGradientTape",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    tape = copy.copy(gradtape)
    kind = type(gradtape)
    tape.__class__ = type(kind.__name__, (_DistributedGradientTape, kind), {"__module__": __package__})
    tape._hvd = options
    return tape


def PartialDistributedGradientTape(  # noqa: N802
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes a ``DistributedGradientTape`` that does not reduce the gradients of some layers.

    ``local_layers`` is a layer of Keras or a list of them, which are built.
    """
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in variables_of_layers(local_layers):
        tape.register_local_source(getattr(variable, "value", variable))
        tape.register_local_source(variable)
    return tape
