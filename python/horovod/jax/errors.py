"""Errors of programs that JAX has run: it keeps them in the arrays that the program returns."""

from __future__ import annotations

import re
from typing import Any

import jax

_WRAPPED = re.compile(r"^(INTERNAL: )?(Error dispatching computation: )+")  # once for each later program


def check(arrays: Any, wait: bool) -> None:
    """Raises the error of a failed program. Programs in progress are skipped, or awaited if ``wait``.

    Raises:
        jax.errors.JaxRuntimeError: a program has failed; the text is that of the first one.
    """
    ended = [
        array
        for array in jax.tree.leaves(arrays)
        if isinstance(array, jax.Array) and not array.is_deleted() and (wait or array.is_ready())
    ]
    try:
        jax.block_until_ready(ended)
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        raise jax.errors.JaxRuntimeError(_WRAPPED.sub("", str(error))) from None


def is_of_program(error: BaseException) -> bool:
    """Returns true for the error of a program that JAX has run; some versions raise it as a ValueError."""
    raised = isinstance(error, ValueError) and re.match("[A-Z_]+: ", str(error))
    return isinstance(error, jax.errors.JaxRuntimeError) or bool(raised)
