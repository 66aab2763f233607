"""Horovod for Keras on TensorFlow: :mod:`horovod.keras` by its other name."""

from horovod.keras import *  # noqa: F403
from horovod.keras import __version__ as __version__
from horovod.keras.backend import BACKEND as _BACKEND

if _BACKEND != "tensorflow":
    raise ImportError(f"horovod.tensorflow.keras: Keras runs on {_BACKEND} here; import horovod.keras")
