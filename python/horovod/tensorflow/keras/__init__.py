"""Horovod for ``tf.keras``, of Keras 2 or 3: ``import horovod.tensorflow.keras as hvd``."""

import tensorflow as _tf

from horovod import __version__ as __version__
from horovod import tensorflow as _framework
from horovod._keras.functions import Functions as _Functions
from horovod._keras.functions import broadcast_global_variables as broadcast_global_variables
from horovod._keras.functions import broadcast_variables as broadcast_variables
from horovod._keras.optimizer import DistributedOptimizer as DistributedOptimizer
from horovod._keras.optimizer import PartialDistributedOptimizer as PartialDistributedOptimizer
from horovod.common.basics import *  # noqa: F403
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.framework.objects import allgather_object as allgather_object
from horovod.framework.objects import broadcast_object as broadcast_object
from horovod.tensorflow.compression import Compression as Compression
from horovod.tensorflow.keras import callbacks as callbacks
from horovod.tensorflow.keras import elastic as elastic

_BACKEND = _tf.keras.backend.backend()
if _BACKEND != "tensorflow":
    raise ImportError(f"horovod.tensorflow.keras: Keras runs on {_BACKEND} here; import horovod.keras")

_functions = _Functions(_tf.keras, _framework, _tf.convert_to_tensor)
allreduce, allgather = _functions.allreduce, _functions.allgather
broadcast, reducescatter = _functions.broadcast, _functions.reducescatter
load_model = _functions.load_model
