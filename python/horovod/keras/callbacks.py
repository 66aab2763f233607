"""Callbacks for ``fit`` of the Keras that ``import keras`` gives: :mod:`horovod._keras.callbacks`."""

from __future__ import annotations

from keras.callbacks import Callback, ModelCheckpoint

from horovod._keras import callbacks as shared


class BroadcastGlobalVariablesCallback(shared.BroadcastGlobalVariablesCallback, Callback):  # type: ignore[misc]
    """Gives the root's weights and optimizer state to all ranks when training starts."""


class MetricAverageCallback(shared.MetricAverageCallback, Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over all ranks."""


class LearningRateScheduleCallback(shared.LearningRateScheduleCallback, Callback):  # type: ignore[misc]
    """Multiplies the initial learning rate by a factor that depends on the epoch."""


class LearningRateWarmupCallback(shared.LearningRateWarmupCallback, Callback):  # type: ignore[misc]
    """Raises the learning rate batch by batch from that of one process to the initial one."""


class BestModelCheckpoint(shared.BestModelCheckpoint, ModelCheckpoint):  # type: ignore[misc]
    """Saves the best model so far into ``filepath``, an attribute that is set later."""
