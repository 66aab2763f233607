"""Variables of TensorFlow for the comparison between ranks (:mod:`horovod.framework.divergence`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod.framework.divergence import ParameterCheck, bytes_of


def compare_parameters(check: ParameterCheck, parameters: Iterable[tuple[str, Any]]) -> Any:
    """Counts a step, and compares the variables if it is their turn.

    In a graph it adds an operation that does this after all operations on these variables, and returns it;
    whether they are compared at all is decided when the graph is made.
    """
    if not check.is_on():
        return None
    if tf.executing_eagerly():
        if check.count():
            check.compare((name, bytes_of(tf.convert_to_tensor(value))) for name, value in parameters)
        return None
    if not (pairs := list(parameters)):
        return tf.constant(False)
    names, variables = zip(*pairs, strict=True)

    def compare(*values: Any) -> bool:
        check.compare(zip(names, map(bytes_of, values), strict=True))
        return True

    def compare_in_turn() -> Any:
        return tf.py_function(compare, [tf.convert_to_tensor(each) for each in variables], tf.bool)

    due = tf.py_function(check.count, [], tf.bool)
    return tf.cond(due, compare_in_turn, lambda: tf.constant(False))


def compare_after(done: Any, check: ParameterCheck, parameters: Iterable[tuple[str, Any]]) -> Any:
    """Compares the variables after an optimizer has updated them; returns the outcome of its update.

    In a graph of TensorFlow 1 the outcome is the operation that a program runs: one that does both.
    """
    if not check.is_on():
        return done
    if tf.compat.v1.executing_eagerly_outside_functions():
        compare_parameters(check, parameters)
        return done
    with tf.control_dependencies([done]):
        return tf.group(done, compare_parameters(check, parameters))
