"""The wheel's operations for TensorFlow: they are run, or added to a graph."""

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
    """Returns the operations as Python functions, and whether their kernels are asynchronous."""
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
# AutoGraph would rewrite this package's Python for every function that is traced, without a benefit.
config.CONVERSION_RULES = (config.DoNotConvert("horovod"), *config.CONVERSION_RULES)


def invalid(text: str) -> Exception:
    """Returns TensorFlow's own error for a wrong argument."""
    return tf.errors.InvalidArgumentError(None, None, text)  # type: ignore[no-any-return]


def tensor_of(operation: str, value: Any) -> Any:
    """Returns the value as a dense tensor of a type that can be sent.

    Raises:
        tf.errors.InvalidArgumentError: the value is ragged or sparse, or its type can't be sent.
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
    """Returns the attributes of a reduction."""
    return {
        "reduce_op": op,
        "prescale_bits": factor_bits(prescale_factor),
        "postscale_bits": factor_bits(postscale_factor),
    }


def readable(name: str) -> str:
    """Replaces the characters that must not be in the name of a node."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _graph_name(operation: str, tensor: Any, name: str | None, ignore_name_scope: bool) -> str:
    """Makes a name that is unique in its graph, and equal on ranks that build the same graph."""
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
    """Makes a resource that no kernel reads. Operations that share one run in the order of the program.

    Without a token TensorFlow would run all operations with an effect in that order, or merge operations
    without one. If XLA compiles a function that calls a function which was traced before, TensorFlow refuses
    this node, and its name is the only part of Horovod in the error."""
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
    """Makes a token, or before TensorFlow 2.13 returns the function's one.

    Kernels block before 2.13, so operations of a function must run in one order on all ranks."""
    if asynchronous or not tf.inside_function():
        return _token(name)
    tokens = graph.get_collection_ref("horovod_token")
    if not tokens:
        tokens.append(_token("in_order"))
    return tokens[0]


def in_order(results: list[Any]) -> Any:
    """Returns a context in which an operation of a TensorFlow 1 graph follows these if kernels block."""
    return tf.control_dependencies([] if asynchronous else results[-1:])


def check_replicas(operation: str) -> None:
    """Refuses several replicas: a rank is one device, and every name would be submitted several times."""
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

    In a graph the name is made unique, and derived from the first input if it is None. Eager operations
    without a name are matched by their order.
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
    # The slash makes TensorFlow use the node's name unchanged.
    return function(
        token=_graph_token(graph, unique),
        process_set_id=number,
        tensor_name=unique,
        name=f"{unique}/",
        **arguments,
    )


def call_one(operation: str, tensor: Any, *where: Any, **arguments: Any) -> Any:
    """Does ``call`` for a tensor; ``where`` is name, scope and process set."""
    return call(operation, *where, tensor=tensor_of(operation.lower(), tensor), **arguments)


def call_group(operation: str, tensors: Sequence[Any], *where: Any, **arguments: Any) -> list[Any]:
    """Does ``call_one`` for all of the tensors or none."""
    if not tensors:
        return []
    dense = [tensor_of(operation.lower(), tensor) for tensor in tensors]
    outputs: list[Any] = call(f"Grouped{operation}", *where, tensors=dense, **arguments)
    return outputs


def size_of(process_set: ProcessSet) -> Any:
    """Returns the number of members; in a graph what reads it, as it may change in an elastic job.

    Raises:
        ValueError: Horovod is not initialized.
    """
    number, size = check_member(process_set), process_set.size() or _core.placement()[1]
    return size if tf.executing_eagerly() else functions.HorovodSize(process_set_id=number)
