"""The gradient of every collective, which is another one; in graphs and on tapes, any number of times."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common import process_sets
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet
from horovod.framework.requests import factor_of
from horovod.tensorflow.library import call, functions, reducing, size_of


def _set_of(op: Any) -> ProcessSet:
    return process_sets._registered[op.get_attr("process_set_id")]


def _follow(op: Any, operation: str, suffix: str = "gradient", **arguments: Any) -> Any:
    """Runs a collective of the same ranks; its name contains that of the operation."""
    name = None if op.get_attr("unnamed") else f"{op.get_attr('tensor_name').decode()}.{suffix}"
    return call(operation, name, True, _set_of(op), **arguments)


def _group(op: Any) -> str:
    return "Grouped" if "Grouped" in op.type else ""


def _inputs(op: Any) -> list[Any]:
    """Returns the inputs of the operation without its token."""
    return list(op.inputs)[:-1]


def _dense(op: Any, gradients: tuple[Any, ...]) -> dict[str, Any]:
    tensors = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return {"tensors": tensors} if _group(op) else {"tensor": tensors[0]}


def _listed(op: Any, outputs: Any) -> list[Any]:
    return list(outputs) if _group(op) else [outputs]


def _averaged(op: Any, gradients: tuple[Any, ...]) -> list[Any]:
    averaged = _follow(op, f"{_group(op)}Allreduce", **_dense(op, gradients), **reducing(Average))
    return _listed(op, averaged)


def _of_allreduce(op: Any, *gradients: Any) -> list[Any]:
    """Reduces the gradients in the same way."""
    attributes = {name: op.get_attr(name) for name in ("reduce_op", "prescale_bits", "postscale_bits")}
    reduced = _follow(op, f"{_group(op)}Allreduce", **_dense(op, gradients), **attributes)
    return [*_listed(op, reduced), None]


def _of_broadcast(op: Any, gradient: Any) -> list[Any]:
    """Returns the averaged gradient at the root, zeros on other ranks."""
    (reduced,) = _averaged(op, (gradient,))
    is_root = tf.equal(
        functions.HorovodRank(), op.get_attr("root_rank")
    )  # which a traced function reads anew
    return [tf.where(is_root, reduced, tf.zeros_like(reduced)), None]


def _of_allgather(op: Any, *gradients: Any) -> list[Any]:
    """Returns this rank's rows of the averaged gradients."""
    averaged = _averaged(op, gradients)
    counts = [tf.shape(tensor, tf.int64)[0] for tensor in _inputs(op)]
    own = tf.cast(functions.HorovodRank(), tf.int64)  # which a traced function reads anew
    everything = _follow(op, "Allgather", "rows", tensor=tf.stack([own, *counts])[None])
    before = tf.reduce_sum(tf.where(everything[:, :1] < own, everything[:, 1:], 0), 0)
    rows = [
        gradient[before[i] : before[i] + count]
        for i, (gradient, count) in enumerate(zip(averaged, counts, strict=True))
    ]
    shaped = [tf.ensure_shape(part, tensor.shape) for part, tensor in zip(rows, _inputs(op), strict=True)]
    return [*shaped, None]


def _of_reducescatter(op: Any, *gradients: Any) -> list[Any]:
    """Joins all ranks' gradients and multiplies them by the factors, and by the size for a sum."""
    factor = factor_of(op.get_attr("prescale_bits")) * factor_of(op.get_attr("postscale_bits"))
    if op.get_attr("reduce_op") == Sum:
        factor = factor * tf.cast(size_of(_set_of(op)), tf.float64)
    joined = _listed(op, _follow(op, f"{_group(op)}Allgather", **_dense(op, gradients)))
    return [*(gradient * tf.cast(factor, gradient.dtype) for gradient in joined), None]


def of_alltoall(op: Any, gradient: Any, _: Any) -> list[Any]:
    """Returns rows to the ranks that sent them; the gradient of rows that were not sent is zero."""
    received = op.outputs[1]
    sent = {"splits": received, "splits_given": True}
    returned, _ = _follow(op, "Alltoall", tensor=tf.convert_to_tensor(gradient), **sent)
    tensor = op.inputs[0]
    missing = tf.shape(tensor)[0] - tf.shape(returned)[0]
    padded = tf.pad(returned, [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1))
    return [tf.ensure_shape(padded, tensor.shape), None, None]


for _kind in ("", "Grouped"):
    tf.RegisterGradient(f"Horovod{_kind}Allreduce")(_of_allreduce)
    tf.RegisterGradient(f"Horovod{_kind}Allgather")(_of_allgather)
    tf.RegisterGradient(f"Horovod{_kind}Reducescatter")(_of_reducescatter)
tf.RegisterGradient("HorovodBroadcast")(_of_broadcast)
tf.RegisterGradient("HorovodAlltoall")(of_alltoall)
for _name in ("Join", "Rank", "LocalRank", "LocalSize", "Size", "ProcessSetIncluded"):
    tf.no_gradient(f"Horovod{_name}")
