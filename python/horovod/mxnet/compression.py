"""Compression of gradients for MXNet: as for NumPy, whose types MXNet's arrays have."""

from horovod.framework.compression import Compression as Compression
from horovod.framework.compression import Compressor as Compressor
from horovod.framework.compression import FP16Compressor as FP16Compressor
from horovod.framework.compression import NoneCompressor as NoneCompressor
