"""Compression of gradients for PyTorch."""

from __future__ import annotations

import torch

from horovod.framework.compression import Compressor as Compressor
from horovod.framework.compression import NoneCompressor as NoneCompressor


class FP16Compressor:
    """Sends float32 and float64 tensors as float16."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Returns the tensor in float16, and its own type."""
        if tensor.dtype not in (torch.float32, torch.float64):
            return tensor, None
        return tensor.to(torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        """Returns the tensor in its own type."""
        return tensor if ctx is None else tensor.to(ctx)


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
