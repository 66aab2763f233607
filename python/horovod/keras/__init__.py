"""Horovod for Keras 3 on TensorFlow, JAX or PyTorch: ``import horovod.keras as hvd``.

Everything works on the back end that Keras has been set to (``KERAS_BACKEND``).
"""

from horovod import __version__ as __version__
from horovod.common.basics import *  # noqa: F403
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.keras import callbacks as callbacks
from horovod.keras.backend import Compression as Compression
from horovod.keras.operations import allgather as allgather
from horovod.keras.operations import allreduce as allreduce
from horovod.keras.operations import broadcast as broadcast
from horovod.keras.operations import broadcast_global_variables as broadcast_global_variables
from horovod.keras.operations import broadcast_variables as broadcast_variables
from horovod.keras.operations import reducescatter as reducescatter
from horovod.keras.optimizer import DistributedOptimizer as DistributedOptimizer
from horovod.keras.optimizer import PartialDistributedOptimizer as PartialDistributedOptimizer
from horovod.keras.optimizer import load_model as load_model
from horovod.objects import allgather_object as allgather_object
from horovod.objects import broadcast_object as broadcast_object
