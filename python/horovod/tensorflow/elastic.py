"""Elastic training with TensorFlow 2, TensorFlow 1 and tf.keras, see docs/elastic.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from horovod._keras.state import KerasState
from horovod.common.basics import rank
from horovod.common.elastic import failure_of_job, own_failure, reset, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.common.leaving import leave as leave
from horovod.framework.objects import broadcast_object
from horovod.framework.variables_state import VariablesState
from horovod.tensorflow.accumulation import PASSES

T = TypeVar("T")


def failure_of(error: Exception) -> HorovodInternalError | None:
    """Returns the failure of the job behind an error of TensorFlow, which has only its text."""
    return failure_of_job() if isinstance(error, tf.errors.OpError) else own_failure(error)


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Makes a training function elastic; a decorator.

    The function's first argument is a state, such as ``hvd.elastic.TensorFlowKerasState(model, epoch=0)``. It
    continues from that state's latest commit when ranks were lost or added, in the same process. See
    docs/elastic.md.
    """
    return run_fn(func, reset, failure_of)


class TensorFlowKerasState(KerasState):
    """The state of training with a model of tf.keras, or of Keras on TensorFlow: weights, optimizer, values.

    Args:
        model: a model that has been built.
        optimizer: its optimizer, also a ``DistributedOptimizer``; None: that of ``compile``, if there is one.
        backend: accepted for compatibility.
        kwargs: further values by name, such as ``epoch=0``; ``state.epoch`` reads and sets them.

    Raises:
        ValueError: the model has not been built.

    Example::

        state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, epoch=0)
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        self.backend = backend
        super().__init__(model, optimizer, **kwargs)


class TensorFlowState(VariablesState):
    """The state of training as variables of TensorFlow and any other values.

    Args:
        variables: eager ones, the same on all ranks in the same order; with a session those of its graph, by
            default all global ones.
        session: the ``tf.compat.v1.Session`` in which variables of a graph live, or a ``MonitoredSession``,
            whose hooks see the steps alone; None: they are eager, or the default session has them.
        kwargs: further values by name, such as ``step=0``; ``state.step`` reads and sets them.

    Raises:
        ValueError: eager variables, or the session of those of a graph, are missing.

    Example::

        state = hvd.elastic.TensorFlowState(model.variables + optimizer.variables, step=0)
        state = hvd.elastic.TensorFlowState(session=session, step=0)  # TensorFlow 1
    """

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        self.session = session
        if variables is None:
            if tf.executing_eagerly():
                raise ValueError(
                    "TensorFlowState needs variables if TensorFlow runs eagerly, such as "
                    "model.variables + optimizer.variables"
                )
            variables = tf.compat.v1.global_variables()
        self.variables = [*variables]
        super().__init__(broadcast_object, rank, **kwargs)

    def _variables(self) -> Sequence[Any]:
        return self.variables

    def _in_session(self) -> Any:
        session = self.session or tf.compat.v1.get_default_session()
        if session is None:
            raise ValueError("TensorFlowState: variables of a graph live in a session: pass session=…")
        if not hasattr(session, "run_step_fn"):
            return session
        try:
            return session.run_step_fn(lambda step_context: step_context.session)
        except AttributeError:
            raise ValueError(
                "TensorFlowState: its session is closed: open a MonitoredSession around the function of "
                "hvd.elastic.run, not inside, as it closes at the first error"
            ) from None

    def _read(self, variables: Sequence[Any]) -> list[Any]:
        if tf.executing_eagerly():
            return [variable.numpy() for variable in variables]
        return self._in_session().run([*variables]) if variables else []

    def _assign(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        for variable, value in zip(variables, values, strict=True):
            if tf.executing_eagerly():
                variable.assign(value)
            else:  # the operation that has initialized it, as a finished graph takes no new one
                start = variable.initializer
                self._in_session().run(start, {start.inputs[1]: value})

    def reset(self) -> None:
        """Forgets the passes of a step that optimizers of TensorFlow 1 have begun."""
        if not tf.executing_eagerly():
            session = self._in_session()
            session.run([each.initializer for each in session.graph.get_collection(PASSES)])
        super().reset()
