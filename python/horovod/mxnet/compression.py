"""Compression of gradients for MXNet: the same as for NumPy, as MXNet's arrays have NumPy's types."""

from horovod.framework.compression import Compression as Compression
from horovod.framework.compression import Compressor as Compressor
from horovod.framework.compression import FP16Compressor as FP16Compressor
from horovod.framework.compression import NoneCompressor as NoneCompressor
