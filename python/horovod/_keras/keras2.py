"""The members that DistributedOptimizer adds to the optimizers of Keras 2.

These optimizers have a method that aggregates gradients over the replicas of tf.distribute, before they are
clipped and, in mixed precision, checked for overflows. They are reduced in that method, so all ranks find the
same overflows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.basics import Min
from horovod.framework.gradient_list import GradientOptions
from horovod.tensorflow.accumulation import Accumulation
from horovod.tensorflow.divergence import compare_after
from horovod.tensorflow.lists import tensors as tensors
from horovod.tensorflow.mpi_ops import _allreduce

Variable = tf.Variable
# Names of registered classes; the module that holds them depends on the version.
saved_names = (sys.modules[tf.keras.utils.get_registered_name.__module__]._GLOBAL_CUSTOM_NAMES,)


class _DistributedOptimizer:
    """The members that DistributedOptimizer adds to the class of a user's optimizer."""

    _hvd: GradientOptions[Any]
    _hvd_accumulation: Accumulation
    _is_wrapped_by_loss_scale_optimizer = False  # set by the one that wraps it

    def register_local_var(self, variable: Any) -> None:
        """Leaves the gradient of a variable out of the reduction: every rank keeps its own."""
        self._hvd.local.append(variable)

    def aggregate_gradients(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        """Returns the pairs with the reduced gradients; zeros until the last pass of a step."""
        pairs = list(grads_and_vars)
        if self._hvd_accumulation.added(pairs):  # by _compute_gradients
            return pairs
        return self._hvd_accumulation.add(pairs, self._reduce)

    _aggregate_gradients = aggregate_gradients  # as legacy optimizers call it

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """Returns the reduced gradients of a loss with their variables.

        ``apply_gradients`` does not reduce them again. If a program changes them before, it passes
        ``skip_gradients_aggregation=True`` or ``experimental_aggregate_gradients=False``.
        """
        base: Any = super()
        if hasattr(base, "_compute_gradients"):  # a legacy optimizer
            pairs = base._compute_gradients(loss, var_list, grad_loss, tape)
            if self._is_wrapped_by_loss_scale_optimizer:
                return pairs  # type: ignore[no-any-return]  # scaled ones, which it unscales and then applies
        elif grad_loss is None:
            pairs = base.compute_gradients(loss, var_list, tape)
        else:
            raise ValueError("_compute_gradients: only legacy optimizers of Keras take a grad_loss")
        pairs = self.aggregate_gradients(pairs)
        self._hvd_accumulation.remember(pairs)
        return pairs

    @property
    def _agg_helper(self) -> Accumulation | None:
        """The object that sums up the gradients of several passes; None if there is one pass."""
        return self._hvd_accumulation if self._hvd_accumulation.passes > 1 else None

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **options: Any) -> Any:
        """Calls the optimizer's own method in the last pass of a step; earlier passes only count."""
        base = super().apply_gradients  # type: ignore[misc]

        def apply(pairs: Any, *args: Any, **options: Any) -> Any:
            pairs = list(pairs)
            shared = self._hvd.shared([variable for _, variable in pairs])
            return compare_after(
                base(pairs, *args, **options), self._hvd.check, ((each.name, each) for each in shared)
            )

        if self._hvd_accumulation.passes == 1:
            return apply(grads_and_vars, *args, **options)
        skip = options.pop("skip_gradients_aggregation", False)
        done = skip or not options.pop("experimental_aggregate_gradients", True)
        pairs = list(grads_and_vars) if done else self.aggregate_gradients(grads_and_vars)
        options["experimental_aggregate_gradients"] = False
        return self._hvd_accumulation.apply(pairs, lambda some: apply(some, *args, **options), None)

    def _reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        reduced = self._hvd.reduce(gradients, variables)
        if self._is_wrapped_by_loss_scale_optimizer:
            own = [place for place in self._hvd.places_of_local(variables) if reduced[place] is not None]
            if own and self._hvd.rules().member:
                factor = self._one_if_finite([reduced[place] for place in own])
                for place in own:
                    reduced[place] = tensors.scale(reduced[place], factor)
        return reduced

    def _one_if_finite(self, gradients: Sequence[Any]) -> Any:
        """Returns NaN if an unreduced gradient overflows on any rank, so that all ranks skip the step."""
        values = [each.values if tensors.is_sparse(each) else each for each in gradients]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(each)) for each in values])
        agreed = _allreduce(
            tf.cast(finite, tf.int32), f"{self._hvd.prefix}.finite", Min, process_set=self._hvd.process_set
        )
        return tf.where(agreed == 1, 1.0, float("nan"))


def prepare(optimizer: Any, options: GradientOptions[Any], passes: int, average: bool) -> dict[str, Any]:
    """Returns members of the new class: the public name, under which Keras saves it, is not inherited."""
    options.scale = 1.0 / passes if average else 1.0
    members: dict[str, Any] = {key: it for key, it in vars(type(optimizer)).items() if "_api_names" in key}
    return members | {"_hvd_accumulation": Accumulation(passes, sparse_as_dense=True)}
