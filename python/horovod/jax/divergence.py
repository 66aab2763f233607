"""Parameters of JAX for the comparison between ranks (:mod:`horovod.framework.divergence`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from horovod.framework.divergence import ParameterCheck, bytes_of


def compare_parameters(check: ParameterCheck, parameters: Iterable[tuple[str, Any]]) -> None:
    """Counts a step, and compares the parameters if it is their turn, also where a program is compiled.

    Whether parameters are compared at all is decided when a function is traced.
    """
    if not check.is_on() or not (pairs := list(parameters)):
        return
    names, arrays = zip(*pairs, strict=True)

    def compare(*values: Any) -> None:
        check.compare(zip(names, map(bytes_of, values), strict=True))

    if not any(isinstance(array, jax.core.Tracer) for array in arrays):
        if check.count():
            compare(*arrays)
        return

    def compare_in_turn(*values: Any) -> None:
        io_callback(compare, None, *values)

    due = io_callback(lambda: np.bool_(check.count()), jax.ShapeDtypeStruct((), np.bool_))
    jax.lax.cond(due, compare_in_turn, lambda *values: None, *arrays)


def named_leaves(params: Any) -> Iterator[tuple[str, Any]]:
    """Returns the arrays of a pytree with their paths, such as ``"['dense']['kernel']"``; no random keys."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        array = jax.numpy.asarray(leaf)
        if not jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
            yield jax.tree_util.keystr(path), array
