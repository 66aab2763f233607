"""TensorFlow's operations of the wheel, and how one is put into a graph or run."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import config
from tensorflow.python.ops import control_flow_util

from horovod import _core
from horovod.common.process_sets import NotMemberError, ProcessSet, check_member, global_process_set
from horovod.framework.requests import factor_bits


def _load() -> tuple[Any, bool]:
    """The operations as Python functions, and whether their kernels are asynchronous."""
    path = os.path.join(os.path.dirname(str(_core.__file__)), "libhorovod_tensorflow.so")
    functions = tf.load_op_library(path)
    bind = ctypes.CDLL(path).horovod_tensorflow_bind
    bind.restype = ctypes.c_char_p
    asynchronous = ctypes.c_int()
    trouble = bind(ctypes.c_void_p(_core.native_entry()), ctypes.byref(asynchronous))
    if trouble:
        raise ImportError(f"horovod.tensorflow can't be used: {trouble.decode()}")
    return functions, bool(asynchronous.value)


functions, asynchronous = _load()
# AutoGraph would rewrite this package's Python for every function that is traced, to no use.
config.CONVERSION_RULES = (config.DoNotConvert("horovod"), *config.CONVERSION_RULES)


def invalid(text: str) -> Exception:
    """TensorFlow's own error for an argument."""
    return tf.errors.InvalidArgumentError(None, None, text)  # type: ignore[no-any-return]


def tensor_of(operation: str, value: Any) -> Any:
    """The value as a dense tensor of a type that can be sent.

    Raises:
        tf.errors.InvalidArgumentError: it is ragged or sparse, or holds strings.
    """
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        raise invalid(f"{operation}: a {type(value).__name__} can't be sent; pass its parts")
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype.base_dtype.name not in _core.dtypes:
        raise invalid(
            f"{operation}: elements of type {tensor.dtype.name} can't be sent; this version takes "
            f"{' '.join(_core.dtypes)}"
        )
    return tensor


def reducing(op: int, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> dict[str, Any]:
    """The attributes that say how TensorFlow's operations reduce."""
    return {
        "reduce_op": op,
        "prescale_bits": factor_bits(prescale_factor),
        "postscale_bits": factor_bits(postscale_factor),
    }


def readable(name: str) -> str:
    """What may stand in the name of a node."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _graph_name(operation: str, tensor: Any, name: str | None, ignore_name_scope: bool) -> str:
    """Unique in its graph, and equal on ranks that build the same one."""
    if name is None:
        symbolic = tensor is not None and not hasattr(tensor, "numpy")
        name = f"Horovod{operation}_{readable(tensor.name)}" if symbolic else f"Horovod{operation}"
    name = re.sub(r"[^a-zA-Z0-9_./\\-]", "_", name.strip("/")) or operation
    if not re.match(r"[A-Za-z0-9.]", name):
        name = f"n{name}"
    graph = tf.compat.v1.get_default_graph()
    if ignore_name_scope:
        with graph.name_scope(""):
            return str(graph.unique_name(name))
    return str(graph.unique_name(name))


def _token(name: str) -> Any:
    """A resource that nothing reads. Operations that share one run in the order of the program; without any,
    TensorFlow would run all that have an effect so, or merge those that have none.

    Where XLA compiles a function that calls one that was traced before, TensorFlow refuses this node, and its
    name is all of Horovod that the error shows."""
    with tf.control_dependencies(None), tf.device("CPU:0"):
        return tf.raw_ops.VarHandleOp(
            dtype=tf.float32,
            shape=[],
            shared_name=f"horovod_{name}",
            container="",
            name="Horovod_needs_jit_compile_False",
        )


@functools.cache
def _eager_token() -> Any:
    return _token("eager")


def _graph_token(graph: Any, name: str) -> Any:
    """Before TensorFlow 2.13 kernels block: a function's operations share a token, so that no thread waits
    for one that another rank runs later."""
    if asynchronous or not tf.inside_function():
        return _token(name)
    tokens = graph.get_collection_ref("horovod_token")
    if not tokens:
        tokens.append(_token("in_order"))
    return tokens[0]


def in_order(results: list[Any]) -> Any:
    """A context for the next operation in a graph of TensorFlow 1: after these where kernels block."""
    return tf.control_dependencies([] if asynchronous else results[-1:])


def check_replicas(operation: str) -> None:
    """A rank is one device: on several every name would be submitted several times."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise ValueError(
            f"{operation}: this rank runs it on {replicas} replicas of a tf.distribute strategy, but a rank "
            "is one device: start a rank for each (horovodrun -np N), and use no strategy of several"
        )


def call(
    operation: str,
    name: str | None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    **arguments: Any,
) -> Any:
    """Runs an operation such as ``"GroupedAllreduce"``, or adds it to the graph; returns its outputs.

    In a graph the name is made unique there, and one is made of the first input's where there is none. Eager
    operations without one are matched by their order.
    """
    try:
        number = check_member(process_set)
    except NotMemberError as error:
        raise invalid(str(error)) from None
    check_replicas(operation.lower())
    function = getattr(functions, f"Horovod{operation}")
    if tf.executing_eagerly():
        given = {"unnamed": 1} if name is None else {"tensor_name": name}
        return function(token=_eager_token(), process_set_id=number, **given, **arguments)
    graph = tf.compat.v1.get_default_graph()
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        raise ValueError(
            f"{operation.lower()}: jit_compile=True compiles this function with XLA, which can't run "
            "Horovod's operations in TensorFlow; pass jit_compile=False, also to Keras's compile()"
        )
    first = arguments.get("tensor") if "tensors" not in arguments else arguments["tensors"][0]
    unique = _graph_name(operation, first, name, ignore_name_scope)
    # With the slash TensorFlow takes the node's name as it is.
    return function(
        token=_graph_token(graph, unique),
        process_set_id=number,
        tensor_name=unique,
        name=f"{unique}/",
        **arguments,
    )


def call_one(operation: str, tensor: Any, *where: Any, **arguments: Any) -> Any:
    """``call`` for a tensor; ``where`` is name, scope and process set."""
    return call(operation, *where, tensor=tensor_of(operation.lower(), tensor), **arguments)


def call_group(operation: str, tensors: Sequence[Any], *where: Any, **arguments: Any) -> list[Any]:
    """As ``call_one``, all of the tensors or none."""
    if not tensors:
        return []
    dense = [tensor_of(operation.lower(), tensor) for tensor in tensors]
    outputs: list[Any] = call(f"Grouped{operation}", *where, tensors=dense, **arguments)
    return outputs
