"""Compression of tensors before they are sent. Users write their own classes with the same two methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from horovod.framework.arrays import as_numpy

A = TypeVar("A")


class Compressor(Protocol):
    """Turns a tensor into a smaller one and back; the context is any value that the way back needs."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send, and the context."""

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the received tensor in its original form."""


class NoneCompressor:
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor itself."""
        return tensor


def send_compressed(
    compression: type[Compressor], tensors: Sequence[A], send: Callable[[list[A]], Sequence[A]]
) -> list[A]:
    """Compresses tensors, calls ``send`` with them, and decompresses its results, one for each."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = send([small for small, _ in pairs])
    return [compression.decompress(r, context) for r, (_, context) in zip(results, pairs, strict=True)]


class FP16Compressor:
    """Sends wider floating-point arrays as float16.

    Arrays of JAX, also while it traces, and of MXNet have ``astype``; NumPy casts all others.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the array in float16, and its own type."""
        import numpy as np

        # MXNet's arrays have NumPy's types as classes.
        casts = isinstance(getattr(tensor, "dtype", None), (np.dtype, type))
        array = tensor if casts else as_numpy(tensor)
        dtype = np.dtype(array.dtype)
        wider = dtype.kind == "f" and dtype.itemsize > 2
        return (array.astype("float16"), array.dtype) if wider else (array, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the array in its own type."""
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The compressors to choose from, for NumPy arrays."""

    none = NoneCompressor
    fp16 = FP16Compressor
