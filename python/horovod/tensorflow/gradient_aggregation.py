"""Sums of the gradients of several passes, for optimizers of other libraries, under the names of Horovod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horovod.framework.grouping import check_passes
from horovod.tensorflow.accumulation import Accumulation


class LocalGradientAggregationHelper(Accumulation):
    """Sums up gradients, and reduces them in every last of several passes.

    Args:
        backward_passes_per_step: the number of passes.
        allreduce_func: reduces a list of gradients; its second argument is the list of their variables.
        sparse_as_dense: sparse gradients become dense; otherwise they are refused.
        average_aggregated_gradients: divides the sums by the number of passes.
        rank: accepted for compatibility; it has no meaning.
        optimizer_type: accepted for compatibility; it has no meaning.
        local_gradients_scaling_factor: the gradients of local variables are divided by it.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int = 0,
        optimizer_type: Any = None,
        local_gradients_scaling_factor: float = 1.0,
    ) -> None:
        super().__init__(check_passes(backward_passes_per_step), sparse_as_dense)
        self._allreduce, self._local_divisor = allreduce_func, local_gradients_scaling_factor
        self._divisor = backward_passes_per_step if average_aggregated_gradients else 1
        self._local: list[Any] = []

    def register_local_var(self, var: Any) -> None:
        """Leaves the gradient of a variable out of the reduction."""
        self._local.append(var)

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Returns the reduced sums in the last pass, and zeros before."""
        return list(self._add(grads, vars, self._reduce))

    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Calls the function after the last pass; its gradients and variables follow the optimizer."""
        return self.apply(list(args[0]), lambda _: apply_grads_closure(), None)

    def _reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        local = {id(variable) for variable in self._local}
        shared = [place for place, variable in enumerate(variables) if id(variable) not in local]
        result = [_divided(gradient, self._local_divisor) for gradient in gradients]
        reduced = self._allreduce(
            [gradients[place] for place in shared], [variables[place] for place in shared]
        )
        for place, gradient in zip(shared, reduced, strict=True):
            result[place] = gradient
        return [_divided(gradient, self._divisor) for gradient in result]


def _divided(gradient: Any, divisor: float) -> Any:
    return gradient if gradient is None or divisor == 1 else gradient / divisor
