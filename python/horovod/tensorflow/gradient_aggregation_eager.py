"""The same as :mod:`horovod.tensorflow.gradient_aggregation` without the arguments that only graphs need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper


class LocalGradientAggregationHelperEager(LocalGradientAggregationHelper):
    """Sums up gradients in eager programs and in ``tf.function``."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        local_gradients_scaling_factor: float = 1.0,
    ) -> None:
        how = (allreduce_func, sparse_as_dense, average_aggregated_gradients)
        super().__init__(
            backward_passes_per_step, *how, local_gradients_scaling_factor=local_gradients_scaling_factor
        )
