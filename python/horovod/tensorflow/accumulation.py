"""Gradients of several passes, summed up in variables of this rank before they are reduced."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import epochs

Reduce = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]  # of gradients and their variables

PASSES = "horovod_passes"  # the collection of a graph that has the variables of all sums


def _zeros(shape: Any, dtype: Any) -> Any:
    return tf.compat.v1.Variable(
        tf.zeros(shape, dtype),
        trainable=False,
        use_resource=True,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES, PASSES],
    )


class Accumulation:
    """The sums of an optimizer's gradients: in a graph of TensorFlow 1, in tf.function or eager.

    The sums are local variables: neither broadcast nor saved.

    Args:
        passes: the number of passes in a step; if it is one, there are no sums.
        sparse_as_dense: sparse gradients are made dense, otherwise refused.
    """

    def __init__(self, passes: int, sparse_as_dense: bool) -> None:
        self.passes, self.sparse_as_dense = passes, sparse_as_dense
        self.sums: list[Any] | None = None
        self._count: Any = None
        epochs.resettable.add(self)
        self._outcome: list[weakref.ref[Any]] = []

    @property
    def variables(self) -> list[Any]:
        """The variables that hold the sums and the count; none before the first pass."""
        return [variable for variable in (self._count, *(self.sums or ())) if variable is not None]

    def begin_epoch(self) -> None:
        """Forgets the passes of a step that ranks of an elastic job have begun without those that join.

        Those in a graph of TensorFlow 1 are forgotten by the state that knows its session."""
        if tf.executing_eagerly():
            for variable in self.variables:
                variable.assign(tf.zeros_like(variable))

    @property
    def counter(self) -> Any:
        """The variable that counts the passes since the last step."""
        if self._count is None:
            with tf.init_scope():
                self._count = _zeros([], tf.int32)
        return self._count

    @property
    def locally_aggregated_grads(self) -> dict[int, Any]:
        """The variables that hold the sums, by the places of their gradients."""
        return {place: total for place, total in enumerate(self.sums or []) if total is not None}

    def remember(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Marks these gradients as added and reduced for ``added``."""
        self._outcome = [weakref.ref(gradient) for gradient, _ in pairs if gradient is not None]

    def added(self, pairs: Sequence[tuple[Any, Any]]) -> bool:
        """Returns true for the gradients that were remembered last."""
        gradients = [gradient for gradient, _ in pairs if gradient is not None]
        known = [reference() for reference in self._outcome]
        return bool(known) and [*map(id, gradients)] == [*map(id, known)]

    def _make(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        with tf.init_scope():
            self.sums = [
                None if gradient is None else _zeros(variable.shape, variable.dtype.base_dtype)
                for gradient, variable in zip(gradients, variables, strict=True)
            ]

    def add(self, grads_and_vars: Any, reduce: Reduce) -> list[tuple[Any, Any]]:
        """Adds a pass; returns the reduced sums in the last pass of a step, otherwise zeros, in pairs."""
        pairs = list(grads_and_vars)
        gradients, variables = [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        return list(zip(self._add(gradients, variables, reduce), variables, strict=True))

    def _add(self, gradients: Sequence[Any], variables: Sequence[Any], reduce: Reduce) -> Sequence[Any]:
        if self.passes == 1:
            return reduce(gradients, variables)
        if self.sparse_as_dense:
            gradients = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
        if any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
            raise ValueError(
                "backward_passes_per_step takes no tf.IndexedSlices unless sparse_as_dense=True is passed"
            )
        if self.sums is None:
            self._make(gradients, variables)
        assert self.sums is not None
        places = [place for place, gradient in enumerate(gradients) if gradient is not None]
        totals = [self.sums[place] for place in places]
        added = [total.assign_add(gradients[place]) for total, place in zip(totals, places, strict=True)]
        count = self.counter.assign_add(1)

        def step() -> list[Any]:
            result = list(gradients)
            for place, total in zip(places, added, strict=True):
                result[place] = tf.convert_to_tensor(total)
            reduced = reduce(result, variables)
            dense = [tf.convert_to_tensor(reduced[place]) for place in places]
            with tf.control_dependencies(dense):
                cleared = [total.assign(tf.zeros_like(total)) for total in totals]
                cleared.append(self.counter.assign(0))
            with tf.control_dependencies(cleared):
                return [tf.identity(tensor) for tensor in dense]

        def wait() -> list[Any]:
            return [tf.zeros_like(gradients[place]) for place in places]

        outcome = list(gradients)
        for place, tensor in zip(places, tf.cond(tf.equal(count, self.passes), step, wait), strict=True):
            outcome[place] = tensor
        return outcome

    def apply(self, pairs: Sequence[Any], apply: Callable[[Sequence[Any]], Any], global_step: Any) -> Any:
        """Calls ``apply`` after the last pass of a step; other passes only increment ``global_step``."""
        if self.passes == 1:
            return apply(pairs)
        present = [gradient for gradient, _ in pairs if gradient is not None]

        def use() -> Any:
            done = apply(pairs)
            return tf.no_op() if done is None else tf.group(done)

        def skip() -> Any:
            return tf.no_op() if global_step is None else tf.group(global_step.assign_add(1))

        with tf.control_dependencies(present):
            over = tf.equal(self.counter.read_value(), 0)
        return tf.cond(over, use, skip)
