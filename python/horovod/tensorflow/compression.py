"""Compression of tensors for TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.framework.compression import Compressor as Compressor
from horovod.framework.compression import NoneCompressor as NoneCompressor


class FP16Compressor:
    """Sends float32 and float64 tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor in float16, and its own type."""
        if tensor.dtype not in (tf.float32, tf.float64):
            return tensor, None
        return tf.cast(tensor, tf.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor in its own type."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
