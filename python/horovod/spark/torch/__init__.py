"""Trains models of PyTorch on DataFrames: TorchEstimator and the TorchModel that it returns."""

from horovod.spark.torch.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
