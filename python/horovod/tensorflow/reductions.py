"""Reductions of gradients: dense tensors and tf.IndexedSlices, with optional compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.basics import Adasum, Average, ProcessSet, Sum, global_process_set
from horovod.common.util import reduction_of
from horovod.framework.compression import Compressor, NoneCompressor, send_compressed
from horovod.tensorflow.library import size_of, tensor_of
from horovod.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    grouped_allgather,
)


def _is_sparse(tensor: Any) -> bool:
    return isinstance(tensor, tf.IndexedSlices)


def gather_slices(slices: Any, name: str | None, op: int, process_set: ProcessSet) -> Any:
    """Sums or averages sparse gradients: returns the rows of all ranks, and their numbers."""
    values, indices = grouped_allgather([slices.values, slices.indices], name, process_set=process_set)
    if op == Average:
        values = values / tf.cast(size_of(process_set), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _check_sparse(op: int, prescale_factor: float, postscale_factor: float) -> None:
    if op == Adasum:
        raise NotImplementedError("op=Adasum takes no tf.IndexedSlices: pass sparse_as_dense=True")
    if op not in (Average, Sum):
        raise NotImplementedError("tf.IndexedSlices can be reduced by op=Average and op=Sum only")
    if (prescale_factor, postscale_factor) != (1.0, 1.0):
        raise NotImplementedError("tf.IndexedSlices take no prescale_factor and no postscale_factor")


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over all ranks, into a new tensor of the same shape and type.

    Args:
        tensor: the same shape and type on all ranks. The result of tf.IndexedSlices has all ranks' rows;
            ``op`` must be Average or Sum.
        average: the old form of ``op=Average`` (True) or ``op=Sum`` (False).
        device_dense: accepted for compatibility, like ``device_sparse``: operations run on the CPU.
        device_sparse: see ``device_dense``.
        compression: ``Compression.fp16``, or a class of your own, makes messages smaller.
        op: Average (the default; integers truncate), Sum, Min, Max, Product or Adasum.
        prescale_factor: the tensor is multiplied by it before the reduction.
        postscale_factor: the result is multiplied by it.
        name: equal on all ranks. None: in a graph it is derived from the tensor's, and eager operations are
            matched by order.
        process_set: the ranks that take part.
        ignore_name_scope: in a graph, leave the name scope out of the name.

    Raises:
        ValueError: an argument of this rank is invalid; nothing was sent.
        tf.errors.InvalidArgumentError: the tensor can't be sent, or Horovod is not initialized.
        tf.errors.FailedPreconditionError: the ranks disagree, or the name is in flight already.
        tf.errors.UnknownError: a rank is lost, or has left.
    """
    op = reduction_of(average, op)
    if _is_sparse(tensor):
        _check_sparse(op, prescale_factor, postscale_factor)
        return gather_slices(tensor, name, op, process_set)
    small, context = compression.compress(tensor_of("allreduce", tensor))
    factors = (prescale_factor, postscale_factor)
    reduced = _allreduce(small, name, op, *factors, ignore_name_scope, process_set)
    return compression.decompress(reduced, context)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Does ``allreduce`` of several tensors: all dense ones as one operation. Results keep their places."""
    op = reduction_of(average, op)
    results = list(tensors)
    dense = [place for place, tensor in enumerate(tensors) if not _is_sparse(tensor)]
    factors = (prescale_factor, postscale_factor)
    how = (name, op, *factors, ignore_name_scope, process_set)
    given = [tensor_of("allreduce", tensors[place]) for place in dense]
    reduced = send_compressed(compression, given, lambda small: _grouped_allreduce(small, *how))
    for place, tensor in zip(dense, reduced, strict=True):
        results[place] = tensor
    for place, tensor in enumerate(tensors):
        if _is_sparse(tensor):
            _check_sparse(op, *factors)
            own_name = None if name is None else f"{name}.{place}"
            results[place] = gather_slices(tensor, own_name, op, process_set)
    return results


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = NoneCompressor,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Sums or averages a tensor over all ranks; every rank keeps its rows of the result.

    The first dimension is divided among the ranks; if it does not divide evenly, the first ranks get one row
    more.

    Raises:
        ValueError: ``op`` is neither Average nor Sum (also a NotImplementedError).
    """
    factors = (prescale_factor, postscale_factor)
    small, context = compression.compress(tensor_of("reducescatter", tensor))
    reduced = _reducescatter(small, name, op, ignore_name_scope, process_set, *factors)
    return compression.decompress(reduced, context)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = NoneCompressor,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """Does ``reducescatter`` of several tensors as one operation."""
    how = (name, op, False, process_set, prescale_factor, postscale_factor)
    given = [tensor_of("reducescatter", tensor) for tensor in tensors]
    return send_compressed(compression, given, lambda small: _grouped_reducescatter(small, *how))
