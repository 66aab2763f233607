"""Compression of gradients for MXNet."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod import compression
from horovod.compression import Compressor as Compressor
from horovod.compression import NoneCompressor as NoneCompressor


class FP16Compressor(compression.FP16Compressor):
    """Sends floating-point arrays that are wider than that as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array in float16, and its own type."""
        if tensor.dtype not in (np.float32, np.float64):
            return tensor, None
        return tensor.astype("float16"), tensor.dtype


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
