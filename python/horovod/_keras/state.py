"""The state of elastic training with Keras 2 or 3, on any back end: weights, optimizer and other values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._keras.variables import build_optimizer, variables_of_optimizer
from horovod.common.basics import rank
from horovod.framework.objects import broadcast_object
from horovod.framework.variables_state import VariablesState, copy_into


class KerasState(VariablesState):
    """Keeps the weights of a model and all variables of its optimizer, which is built if it is not yet.

    Generators of random numbers and metrics stay those of this process; ``restore`` sets them back.

    Args:
        model: a model that has been built.
        optimizer: its optimizer; None: that of ``compile``, if there is one.
        kwargs: further values by name.

    Raises:
        ValueError: the model has not been built.
    """

    _steps_per_epoch: (
        int  # batches of an epoch in `fit`, as UpdateBatchStateCallback has seen them; 0: unknown
    )

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        self._own_kept: list[Any] = []
        super().__init__(broadcast_object, rank, _steps_per_epoch=0, **kwargs)

    def _outermost(self) -> Any:
        """Returns the optimizer with what ``compile`` has put around it, such as a LossScaleOptimizer."""
        outer = getattr(self.model, "optimizer", None)
        return outer if getattr(outer, "inner_optimizer", None) is self.optimizer else self.optimizer

    def _variables(self) -> Sequence[Any]:
        optimizer = self._outermost()
        if optimizer is None:
            return [*self.model.weights]
        build_optimizer(optimizer, self.model.trainable_variables)
        return [*self.model.weights, *variables_of_optimizer(optimizer)]

    def _own(self) -> list[Any]:
        """Returns the variables that are not the same on all ranks."""
        weights = {id(variable) for variable in self.model.weights}
        metrics = getattr(self.model, "metrics_variables", [])
        own = {id(each): each for each in [*self.model.variables, *metrics]}
        return [variable for key, variable in own.items() if key not in weights]

    def _read(self, variables: Sequence[Any]) -> list[Any]:
        return [np.asarray(variable.numpy()) for variable in variables]

    def _assign(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    def _keep(self) -> None:
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # within `fit` the values are elsewhere
        own = self._read(self._own())
        super()._keep()
        before = [*self._own_kept, *[None] * (len(own) - len(self._own_kept))]
        self._own_kept = [copy_into(*pair) for pair in zip(before, own, strict=False)]

    def restore(self) -> None:
        """Goes back to what was copied."""
        if hasattr(self.model, "jax_state_sync"):
            self.model._jax_state_synced = True  # `fit` goes on with the variables, not with its own copy
        super().restore()
        self._assign(self._own()[: len(self._own_kept)], self._own_kept)

    def _describe(self) -> tuple[Any, list[Any]]:
        description, memory = super()._describe()
        options = self._options()
        return (description, options and options.prefix), memory

    def _make_room(self, description: Any) -> list[Any]:
        rest, prefix = description
        options = self._options()
        if prefix and options:  # the number in it counts the optimizers that a process has used
            options.prefix = prefix
        return super()._make_room(rest)

    def _options(self) -> Any:
        """Returns the options of the DistributedOptimizer; None: there is none."""
        return getattr(getattr(self._outermost(), "inner_optimizer", self._outermost()), "_hvd", None)
