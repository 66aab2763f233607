"""Compression of what is sent. Users write their own with the same two methods."""

from __future__ import annotations

from typing import Any, Protocol

from horovod.framework.arrays import as_numpy


class Compressor(Protocol):
    """Turns a tensor into a smaller one and back; the context is whatever the way back needs."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and the context."""

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The received tensor in its first form."""


class NoneCompressor:
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor


class FP16Compressor:
    """Sends floating-point arrays that are wider than that as float16.

    JAX's, also while it traces, and MXNet's cast themselves, all others NumPy.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array in float16, and its own type."""
        import numpy as np

        # MXNet's arrays have NumPy's types as classes.
        casts = isinstance(getattr(tensor, "dtype", None), (np.dtype, type))
        array = tensor if casts else as_numpy(tensor)
        dtype = np.dtype(array.dtype)
        wider = dtype.kind == "f" and dtype.itemsize > 2
        return (array.astype("float16"), array.dtype) if wider else (array, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The array in its own type."""
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The compressors to choose from, for NumPy arrays."""

    none = NoneCompressor
    fp16 = FP16Compressor
