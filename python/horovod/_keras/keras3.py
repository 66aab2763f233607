"""The members that DistributedOptimizer adds to the optimizers of Keras 3.

On every back end Keras's training calls the optimizer's ``apply``, which reduces the gradients first.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import keras
from keras import ops
from keras.src import api_export
from keras.src.saving import object_registration

from horovod import _core
from horovod._keras.backend import compare_parameters, framework
from horovod._keras.backend import tensors as tensors
from horovod.common import epochs
from horovod.common.basics import Min
from horovod.framework.gradient_list import GradientOptions

Variable = keras.Variable
saved_names = (api_export.REGISTERED_OBJS_TO_NAMES, object_registration.GLOBAL_CUSTOM_NAMES)


class _DistributedOptimizer:
    """The members that DistributedOptimizer adds to the class of a user's optimizer."""

    _hvd: GradientOptions[Any]

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Calls the optimizer's own method with the reduced gradients."""
        this: Any = self
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            if not this.built:
                this.build(trainable_variables)
        if this.built:  # otherwise Keras's own error says what is missing
            variables = trainable_variables or this._trainable_variables
            grads = self._reduce(grads, variables) if len(grads) == len(variables) else grads
        super().apply(grads, trainable_variables)  # type: ignore[misc]
        if this.built and self._hvd.check.is_on():
            shared = self._hvd.shared(trainable_variables or this._trainable_variables)
            compare_parameters(self._hvd.check, ((variable.path, variable.value) for variable in shared))

    def __reduce__(self) -> Any:
        """Copies and pickles are plain optimizers of the user's class."""
        restore, arguments = cast(tuple[Any, Any], super().__reduce__())
        plain = next(kind for kind in type(self).__mro__ if not issubclass(kind, _DistributedOptimizer))
        return getattr(plain, restore.__name__), arguments

    def register_local_var(self, variable: Any) -> None:
        """Leaves the gradient of a variable out of the reduction: every rank keeps its own."""
        self._hvd.local.append(variable)

    def _reduce(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Returns the reduced gradients; in earlier passes, which only add up, the gradients of this rank."""
        this: Any = self
        passes = this.gradient_accumulation_steps
        if not passes:
            return self._hvd.reduce(gradients, variables)
        places = [place for place, gradient in enumerate(gradients) if gradient is not None]
        present = [
            tensors.dense(gradients[i]) if tensors.is_sparse(gradients[i]) else gradients[i] for i in places
        ]
        sums = [this._accumulated_gradients[this._get_variable_index(variables[place])] for place in places]
        last = ops.equal(
            (this._iterations + 1) % passes, 0
        )  # `_iterations` counts passes, `iterations` steps

        def reduce_sums() -> list[Any]:
            own: list[Any] = [None] * len(gradients)
            for place, total, gradient in zip(places, sums, present, strict=True):
                own[place] = ops.add(total, gradient)
            reduced = self._hvd.reduce(own, variables)
            return [reduced[place] for place in places]

        outcome = list(gradients)
        for place, gradient in zip(places, ops.cond(last, reduce_sums, lambda: present), strict=True):
            outcome[place] = gradient
        for total in sums:  # Keras will add them to the reduced gradients, which contain them already
            total.assign(ops.where(last, ops.zeros(total.shape, total.dtype), total.value))
        return outcome

    def _agree(self, finite: Any) -> Any:
        """Returns whether the value is true on all ranks."""
        options = self._hvd
        if not options.rules().member:
            return finite
        number, name = ops.cast(finite, "int32"), f"{options.prefix}.finite"
        agreed = framework.allreduce(number, op=Min, name=name, process_set=options.process_set)
        return ops.cast(agreed, "bool")


def _let_all_ranks_check(kind: Any) -> None:
    """Makes all ranks skip a step if the gradients of one rank are not finite.

    ``compile`` puts a LossScaleOptimizer around ours, which decides whether to call it at all. Keras offers
    no way to take part in that decision, so its class is changed, for our optimizers only.
    """
    check = kind.check_finite

    @functools.wraps(check)
    def check_finite(self: Any, grads: Any) -> Any:
        finite, inner = check(self, grads), self.inner_optimizer
        return inner._agree(finite) if isinstance(inner, _DistributedOptimizer) else finite

    kind.check_finite = check_finite


_let_all_ranks_check(keras.optimizers.LossScaleOptimizer)


class _Steps:
    """Says in each job that `apply` will report steps; a LossScaleOptimizer leaves it out in some."""

    def begin_epoch(self) -> None:
        _core.expect_steps()


_steps = _Steps()


def prepare(optimizer: Any, options: GradientOptions[Any], passes: int, average: bool) -> dict[str, Any]:
    """Lets Keras average the gradients of several passes, and returns members of the new class: none."""
    options.scale = 1.0 if average else float(passes)
    if passes > 1:
        if optimizer.built or optimizer.gradient_accumulation_steps:
            raise ValueError(
                "backward_passes_per_step needs an optimizer that is not built yet and has no "
                "gradient_accumulation_steps of its own"
            )
        optimizer.gradient_accumulation_steps = passes
    options.check.passes = optimizer.gradient_accumulation_steps or 1
    epochs.resettable.add(_steps)
    if _core.is_initialized():  # otherwise when it has joined the running job
        _steps.begin_epoch()
    return {}
