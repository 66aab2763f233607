"""Compression of gradients for MXNet: as for NumPy, whose types MXNet's arrays have."""

from horovod.compression import Compression as Compression
from horovod.compression import Compressor as Compressor
from horovod.compression import FP16Compressor as FP16Compressor
from horovod.compression import NoneCompressor as NoneCompressor
