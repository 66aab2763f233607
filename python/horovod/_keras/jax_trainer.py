"""Raises the errors of collectives in Keras's training on JAX.

JAX keeps the error of a step in the arrays that the step returns. Keras reads only the values that it logs,
suppresses the exceptions that this raises, and continues with weights that have no value. So the class of all
models on JAX is changed: every step first checks the arrays of the step before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

Check = Callable[[Any, bool], None]  # raises the error in arrays; if True, it waits for them first

_FUNCTIONS = ("train_function", "test_function", "predict_function")  # of `fit`, and of single batches


def _checked(step: Callable[..., Any], check: Check) -> Callable[..., Any]:
    @functools.wraps(step)
    def run(state: Any, *arguments: Any) -> Any:
        check(state, False)
        return step(state, *arguments)

    return run


def _check_steps(kind: Any, name: str, check: Check) -> None:
    """Makes the function that ``make_<name>`` sets check the arrays before every step."""
    make = getattr(kind, f"make_{name}")

    @functools.wraps(make)
    def make_checked(self: Any, *arguments: Any, **options: Any) -> Any:
        before = getattr(self, name, None)
        made = make(self, *arguments, **options)
        if getattr(self, name) is not before:
            setattr(self, name, _checked(getattr(self, name), check))
        return made

    setattr(kind, f"make_{name}", make_checked)


def _check_last_step(kind: Any, check: Check) -> None:
    """Checks the last step after Keras has copied the state to its variables and before it logs values."""
    synchronize = kind.jax_state_sync

    @functools.wraps(synchronize)
    def jax_state_sync(self: Any) -> None:
        pending = None if self._jax_state_synced else getattr(self, "_jax_state", None)
        synchronize(self)
        check(pending, True)

    kind.jax_state_sync = jax_state_sync


def install(check: Check) -> None:
    """Changes the class from which all models inherit their training."""
    trainer = next(kind for kind in keras.Model.__mro__ if "jax_state_sync" in vars(kind))
    for name in _FUNCTIONS:
        _check_steps(trainer, name, check)
    _check_last_step(trainer, check)
