"""Elastic training with ``tf.keras``, see docs/elastic.md."""

from __future__ import annotations

from typing import Any

from tensorflow.keras.callbacks import Callback

from horovod._keras import elastic as shared
from horovod.common.leaving import leave as leave
from horovod.tensorflow.elastic import TensorFlowKerasState
from horovod.tensorflow.elastic import run as run


class KerasState(TensorFlowKerasState):
    """The state of training with a model of tf.keras: weights, optimizer, and any other values by name.

    Args:
        model: a model that has been built.
        optimizer: its optimizer; None: that of ``compile``, if there is one.
        kwargs: further values by name, such as ``epoch=0``; ``state.epoch`` reads and sets them.

    Raises:
        ValueError: the model has not been built.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class CommitStateCallback(shared.CommitStateCallback, Callback):  # type: ignore[misc]
    """Commits the state after every n-th batch and after every epoch."""


class UpdateBatchStateCallback(shared.UpdateBatchStateCallback, Callback):  # type: ignore[misc]
    """Sets ``state.batch`` to the batches of this epoch that are done; ends an interrupted epoch in time."""


class UpdateEpochStateCallback(shared.UpdateEpochStateCallback, Callback):  # type: ignore[misc]
    """Sets ``state.epoch`` to the number of epochs that are done."""
