"""Trains models of Keras on DataFrames: KerasEstimator and the KerasModel that it returns."""

from horovod.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
