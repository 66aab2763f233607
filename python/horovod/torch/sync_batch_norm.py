"""Batch normalization over the batches of all ranks, on any device."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from horovod.common.basics import Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.mpi_ops import allreduce


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """``BatchNorm1d/2d/3d`` with the mean and variance of the ranks' batches together.

    While training, every forward pass computes two small sums over the ranks, and every backward pass two
    more, so all ranks must run the layer equally often. Batches may differ in size, and be empty. In
    evaluation it is the ordinary layer, and sends nothing.

    Args:
        num_features: C of an input of shape ``[N, C, …]``.
        eps: added to the variance.
        momentum: the share of the new batch in the running statistics; None: the average of all batches.
        affine: whether to learn a weight and a bias.
        track_running_stats: whether to keep running statistics for evaluation.
        process_set: the ranks that normalize together.

    Raises:
        ValueError: an input has fewer than two dimensions, or all ranks have one value per channel together.

    Example::

        model = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), hvd.SyncBatchNorm(8), torch.nn.ReLU())
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"SyncBatchNorm takes inputs of shape [N, C, …], not of {input.dim()} dimensions"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalizes ``[N, C, …]``; the result has the same shape and type."""
        self._check_input_dim(input)
        if not self.training:
            local = self.running_mean is None
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, local, 0.0, self.eps
            )
        return self._normalize(input)

    def _normalize(self, input: torch.Tensor) -> torch.Tensor:
        precise = torch.float64 if input.dtype is torch.float64 else torch.float32
        x = input.to(precise)
        over = [0, *range(2, x.dim())]
        channels = [1, -1] + [1] * (x.dim() - 2)
        count = x.new_tensor([x.numel() / x.shape[1]])
        sums = self._over_ranks(torch.cat([x.sum(over), count]), "sums")
        total = sums[-1].item()
        if total <= 1:
            raise ValueError(f"SyncBatchNorm needs more than one value per channel to train, not {total:g}")
        mean = sums[:-1] / total
        variance = self._over_ranks((x - mean.view(channels)).square().sum(over), "squares") / total
        self._track(mean.detach(), variance.detach() * (total / (total - 1)))
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight.to(precise)
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias.to(precise)
        return torch.addcmul(shift.view(channels), x, scale.view(channels)).to(input.dtype)

    def _over_ranks(self, values: torch.Tensor, what: str) -> torch.Tensor:
        return allreduce(values, name=f"sync_batch_norm.{what}", op=Sum, process_set=self.process_set)

    def _track(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)
