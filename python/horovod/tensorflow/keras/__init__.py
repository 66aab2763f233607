"""Horovod for Keras on TensorFlow: :mod:`horovod.keras` by its other name."""

import tensorflow as _tf

_VERSION = getattr(_tf.keras, "__version__", "2")
if _VERSION.startswith("2"):
    raise ImportError(
        f"horovod.tensorflow.keras needs Keras 3, and tf.keras is Keras {_VERSION}: use TensorFlow 2.16 or "
        "newer without TF_USE_LEGACY_KERAS, or train with DistributedGradientTape of horovod.tensorflow"
    )

from horovod.keras import *  # noqa: F403, E402
from horovod.keras import __version__ as __version__  # noqa: E402
from horovod.keras.backend import BACKEND as _BACKEND  # noqa: E402

if _BACKEND != "tensorflow":
    raise ImportError(f"horovod.tensorflow.keras: Keras runs on {_BACKEND} here; import horovod.keras")
