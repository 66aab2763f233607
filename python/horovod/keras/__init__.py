"""Horovod for Keras: ``import horovod.keras as hvd``.

The Keras is the one that ``import keras`` gives. Keras 3 may run on TensorFlow, JAX or PyTorch
(``KERAS_BACKEND``); Keras 2 is part of TensorFlow.
"""

from horovod import __version__ as __version__
from horovod._keras import backend as _backend
from horovod._keras.functions import Functions as _Functions
from horovod._keras.functions import broadcast_global_variables as broadcast_global_variables
from horovod._keras.functions import broadcast_variables as broadcast_variables
from horovod._keras.optimizer import DistributedOptimizer as DistributedOptimizer
from horovod._keras.optimizer import PartialDistributedOptimizer as PartialDistributedOptimizer
from horovod.common.basics import *  # noqa: F403
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.framework.objects import allgather_object as allgather_object
from horovod.framework.objects import broadcast_object as broadcast_object
from horovod.keras import callbacks as callbacks
from horovod.keras import elastic as elastic

_functions = _Functions(_backend.keras, _backend.framework, _backend.tensor_of)
# The compressors of the back end: those of horovod.tensorflow, horovod.jax or horovod.torch.
Compression = _backend.framework.Compression
allreduce, allgather = _functions.allreduce, _functions.allgather
broadcast, reducescatter = _functions.broadcast, _functions.reducescatter
load_model = _functions.load_model
