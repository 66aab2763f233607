"""Equal variables and objects on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import epochs
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.framework import objects
from horovod.tensorflow.mpi_ops import broadcast_


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Gives the root's values of these variables to all ranks.

    Args:
        variables: variables of TensorFlow or Keras, the same ones on all ranks in the same order.
        root_rank: the rank that has them.
        process_set: the ranks that take part.
        inplace: accepted for compatibility.

    Returns:
        In a graph of TensorFlow 1 the operation that does so; otherwise None, and it is done.
    """
    assigned = broadcast_(variables, root_rank, "broadcast_variables", process_set)
    outside = tf.executing_eagerly() or tf.inside_function()
    return None if outside else tf.group(*assigned)


def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the operation that gives the root's global variables to all ranks; in graphs of TensorFlow 1.

    Raises:
        RuntimeError: TensorFlow runs eagerly, where there are no global variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() needs a graph of TensorFlow 1: eager programs call "
            "hvd.broadcast_variables(model.variables, root_rank)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Gives the root's global variables to all ranks once the session has made or restored them.

    A process that joins a running elastic job gets them from its state instead.

    Args:
        root_rank: the rank that has them.
        device: accepted for compatibility.

    Example::

        hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.compat.v1.train.StopAtStepHook(20000 // hvd.size())]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train)
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self._broadcast: Any = None

    def begin(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        if self._broadcast is None or self._broadcast.graph is not graph:
            self._broadcast = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        if not epochs.is_planned():
            session.run(self._broadcast)


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's picklable object on every rank of the process set; no session is needed."""
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns ``broadcast_object`` as a function of the object alone."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's picklable object, in rank order; no session is needed."""
    return objects.allgather_object(obj, name, process_set)
