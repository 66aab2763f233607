"""Compression of what is sent. Users write their own with the same two methods."""

from __future__ import annotations

from typing import Any, Protocol


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
    """Sends floating-point NumPy arrays as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array in float16, and its own type."""
        return (tensor.astype("float16"), tensor.dtype) if tensor.dtype.kind == "f" else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The array in its own type."""
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The compressors to choose from, for NumPy arrays."""

    none = NoneCompressor
    fp16 = FP16Compressor
