"""TensorFlow's tensors for lists of gradients (:mod:`horovod.framework.gradient_list`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet
from horovod.framework.gradient_list import Tensors
from horovod.framework.reducer import Rules
from horovod.tensorflow.library import asynchronous, in_order, size_of
from horovod.tensorflow.mpi_ops import _allreduce, _grouped_allreduce
from horovod.tensorflow.reductions import gather_slices


class GraphTensors(Tensors[Any]):
    """Dense tensors and tf.IndexedSlices, eager and in graphs."""

    def is_sparse(self, gradient: Any) -> bool:
        return isinstance(gradient, tf.IndexedSlices)

    def dense(self, gradient: Any) -> Any:
        return tf.convert_to_tensor(gradient)

    def size_of(self, process_set: ProcessSet) -> Any:
        size = size_of(process_set)
        return size if isinstance(size, int) else tf.cast(size, tf.float64)

    def scale(self, gradient: Any, factor: Any) -> Any:
        if not self.is_sparse(gradient):
            return gradient * tf.cast(factor, gradient.dtype)
        values = gradient.values * tf.cast(factor, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, dense_shape=gradient.dense_shape)

    def reduce(
        self, groups: Sequence[Sequence[Any]], names: Sequence[str], rules: Rules
    ) -> Sequence[Sequence[Any]]:
        """Adds an operation for each group to a graph. If operations would block each other, all are one.

        The first one reports a step of training when it runs.
        """
        how = (rules.op, *rules.factors, True, rules.process_set)
        if asynchronous and not tf.executing_eagerly():
            return [
                _grouped_allreduce(group, name, *how, step=group is groups[0])
                if len(group) > 1
                else [_allreduce(group[0], name, *how, step=group is groups[0])]
                for group, name in zip(groups, names, strict=True)
            ]
        tensors = [tensor for group in groups for tensor in group]
        flat = iter(_grouped_allreduce(tensors, names[0], *how, step=True))
        return [[next(flat) for _ in group] for group in groups]

    def gather(self, gradients: Sequence[Any], names: Sequence[str], rules: Rules) -> Sequence[Any]:
        gathered: list[Any] = []
        for gradient, name in zip(gradients, names, strict=True):
            with in_order(gathered):
                gathered.append(gather_slices(gradient, name, rules.op, rules.process_set))
        return gathered


# For packages that reduce lists of gradients on any back end, such as horovod.keras.
tensors = GraphTensors()
