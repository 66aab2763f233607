"""Batch normalization over the batches of all ranks, as a layer of Keras 2 and 3."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from horovod.common.basics import ProcessSet, Sum, global_process_set
from horovod.tensorflow.mpi_ops import _allreduce

_MOMENTS = inspect.signature(tf.keras.layers.BatchNormalization._moments).parameters
_KERAS_3 = "keep_dims" not in _MOMENTS


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """``tf.keras.layers.BatchNormalization`` with the mean and variance of the ranks' batches together.

    While training, every forward pass computes two small sums over the ranks, and every backward pass two
    more, so all ranks must run the layer equally often. Batches may differ in size. In inference it is the
    ordinary layer, and sends nothing.

    Args:
        fused: must be false.
        process_set: the ranks that normalize together.
        kwargs: as for the layer's own.

    Raises:
        ValueError: ``fused=True``, or ``renorm``.
    """

    def __init__(
        self, fused: bool = False, process_set: ProcessSet = global_process_set, **kwargs: Any
    ) -> None:
        if fused:
            raise ValueError("SyncBatchNormalization does not support fused=True: it asks the other ranks")
        if kwargs.get("renorm"):
            raise ValueError("SyncBatchNormalization does not support renorm=True")
        if not _KERAS_3:
            kwargs["fused"] = False
        super().__init__(**kwargs)
        self._hvd_set = process_set

    def _moments(self, inputs: Any, *options: Any, **named: Any) -> Any:
        """Keras 3 passes (mask), Keras 2 (axes, keep_dims, mask)."""
        mask = options[0] if _KERAS_3 and options else named.get("mask")
        if mask is not None:
            raise ValueError("SyncBatchNormalization takes no mask")
        if _KERAS_3:
            return self._joint_moments(inputs, self._reduction_axes, False)
        keep_dims = options[1] if len(options) > 1 else named["keep_dims"]
        return self._joint_moments(inputs, options[0], keep_dims)

    def _joint_moments(self, inputs: Any, axes: Any, keep_dims: bool) -> tuple[Any, Any]:
        precise = inputs.dtype if inputs.dtype in (tf.float32, tf.float64) else tf.float32
        x = tf.cast(inputs, precise)
        local = tf.reduce_sum(x, axes)
        count = tf.cast(tf.size(x) // tf.maximum(tf.size(local), 1), precise)
        sums = self._over_ranks(tf.concat([tf.reshape(local, [-1]), count[None]], 0), "sums")
        mean = tf.reshape(sums[:-1] / sums[-1], tf.shape(local))
        channels = tf.shape(tf.reduce_sum(x, axes, keepdims=True))
        wide = tf.reshape(mean, channels)
        squares = tf.reduce_sum(tf.math.squared_difference(x, wide), axes)
        variance = self._over_ranks(squares, "squares") / sums[-1]
        if keep_dims:
            mean, variance = wide, tf.reshape(variance, channels)
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)

    def _over_ranks(self, values: Any, what: str) -> Any:
        """Sums over the ranks. The layer's name is no help: in it Keras counts the layers of this rank."""
        name = f"sync_batch_norm.{what}"
        return _allreduce(values, name, Sum, ignore_name_scope=True, process_set=self._hvd_set)
