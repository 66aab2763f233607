"""The callbacks of :mod:`horovod.keras.callbacks`."""

from horovod.keras.callbacks import BestModelCheckpoint as BestModelCheckpoint
from horovod.keras.callbacks import BroadcastGlobalVariablesCallback as BroadcastGlobalVariablesCallback
from horovod.keras.callbacks import LearningRateScheduleCallback as LearningRateScheduleCallback
from horovod.keras.callbacks import LearningRateWarmupCallback as LearningRateWarmupCallback
from horovod.keras.callbacks import MetricAverageCallback as MetricAverageCallback
