"""Elastic training with the Keras that ``import keras`` gives, see docs/elastic.md."""

from __future__ import annotations

import importlib

from keras.callbacks import Callback

from horovod._keras import backend
from horovod._keras import elastic as shared
from horovod._keras.state import KerasState as KerasState
from horovod.common.leaving import leave as leave

# The decorator of the back end, such as horovod.tensorflow.elastic.run.
run = importlib.import_module(f"horovod.{backend.BACKEND}.elastic").run


class CommitStateCallback(shared.CommitStateCallback, Callback):  # type: ignore[misc]
    """Commits the state after every n-th batch and after every epoch."""


class UpdateBatchStateCallback(shared.UpdateBatchStateCallback, Callback):  # type: ignore[misc]
    """Sets ``state.batch`` to the batches of this epoch that are done; ends an interrupted epoch in time."""


class UpdateEpochStateCallback(shared.UpdateEpochStateCallback, Callback):  # type: ignore[misc]
    """Sets ``state.epoch`` to the number of epochs that are done."""
