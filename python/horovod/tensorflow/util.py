"""Functions that other libraries import from here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod.common.util import _cache as _cache

_executing_eagerly = tf.executing_eagerly
_make_subgraph = tf.function


def vars_to_refs(variables: Iterable[Any]) -> Any:
    """Returns references to variables, which can be hashed."""
    return tuple(variable.ref() for variable in variables)


def refs_to_vars(references: Iterable[Any]) -> list[Any]:
    """Returns the variables of references."""
    return [reference.deref() for reference in references]
