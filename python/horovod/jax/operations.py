"""The collectives for arrays and pytrees of them. A pytree is one call, even with arrays of several types."""

from __future__ import annotations

import operator
import sys
from typing import Any

import jax
import jax.numpy as jnp

from horovod import _core
from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, check_member, global_process_set
from horovod.framework.collectives import barrier as _wait_for_all
from horovod.framework.collectives import check_scatter_op
from horovod.framework.compression import Compression, Compressor, send_compressed
from horovod.framework.requests import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    REDUCESCATTER,
    factor_bits,
)
from horovod.jax.primitive import Spec, collective_p

_LIBRARIES = {"horovod", "jax", "optax"}


def _line_of_caller() -> str:
    """Returns the program's line of the call: equal on ranks of one program, however often each traces it."""
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def _convert(operation: _core.Operation, index: int, value: Any) -> Any:
    try:
        return jnp.asarray(value)
    except TypeError:
        kind = type(value).__name__ + (f" of type {value.dtype}" if hasattr(value, "dtype") else "")
        raise TypeError(f"{operation.name}: array {index} is a {kind}; JAX makes no array of it") from None


def _array(operation: _core.Operation, index: int, value: Any) -> Any:
    array = _convert(operation, index, value)
    if array.dtype.name not in _core.dtypes:
        raise ValueError(
            f"{operation.name}: array {index} holds elements of type {array.dtype}; this version takes "
            f"{' '.join(_core.dtypes)}"
        )
    if operation.shape in ("same_rows", "divided") and not array.ndim:
        raise ValueError(f"{operation.name}: array {index} has no dimensions; it must have rows")
    return array


def _collect(
    operation: _core.Operation, tree: Any, name: str | None, process_set: ProcessSet, **options: Any
) -> Any:
    """Binds the primitive on the arrays of a pytree."""
    number, _ = check_member(process_set), _core.placement()
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a str or None, not {type(name).__name__}")
    leaves, structure = jax.tree.flatten(tree)
    arrays = [_array(operation, i, leaf) for i, leaf in enumerate(leaves)]
    spec = Spec(
        operation=operation,
        name=_line_of_caller() if name is None else name,
        given=name is not None,
        ranks=tuple(process_set.ranks),
        process_set=number,
        grouped=len(arrays) > 1,
        **options,
    )
    if operation.result == "joined":
        spec = spec._replace(rows=tuple(array.shape[0] * len(spec.ranks) for array in arrays))
    outputs = collective_p.bind(*arrays, spec=spec) if arrays else []
    return jax.tree.unflatten(structure, outputs)


def _factors(prescale: float, postscale: float) -> dict[str, int]:
    return {"prescale_bits": factor_bits(prescale), "postscale_bits": factor_bits(postscale)}


def allreduce(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces an array, or all arrays of a pytree as one operation, over all ranks.

    Args:
        tensor: the same structure, shapes and types on all ranks, which the result also has.
        op: Average (integers truncate), Sum, Min, Max, Product or Adasum; the first two can be
            differentiated.
        name: equal on all ranks. None: the line of the call and its number in the compiled program.
        compression: ``Compression.fp16``, or a class of your own, makes messages smaller.
        prescale_factor: arrays are multiplied by it before the reduction.
        postscale_factor: results are multiplied by it.
        process_set: the ranks that take part.

    Raises:
        ValueError: an argument of this rank is invalid, or the program runs on several local devices.
        jax.errors.JaxRuntimeError: the ranks disagree, or one is lost; raised when the result is needed.
    """
    return _reduce(tensor, op, name, compression, (prescale_factor, postscale_factor), process_set, False)


def reduce_gradients(
    tensor: Any,
    op: int,
    name: str | None,
    compression: type[Compressor],
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> Any:
    """Does ``allreduce``, and reports a step of training whenever it runs."""
    return _reduce(tensor, op, name, compression, factors, process_set, True)


def _reduce(
    tensor: Any,
    op: int,
    name: str | None,
    compression: type[Compressor],
    factors: tuple[float, float],
    process_set: ProcessSet,
    step: bool,
) -> Any:
    leaves, structure = jax.tree.flatten(tensor)
    arrays = [_convert(ALLREDUCE, i, leaf) for i, leaf in enumerate(leaves)]
    how = {"reduction": operator.index(op), "step": step, **_factors(*factors)}
    outputs = send_compressed(
        compression, arrays, lambda small: _collect(ALLREDUCE, small, name, process_set, **how)
    )
    return jax.tree.unflatten(structure, outputs)


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Joins the ranks' arrays along the first dimension, which must be equal on all ranks.

    Shape ``[n, …]`` gives ``[n * size, …]``. This holds for each array of a pytree.
    """
    return _collect(ALLGATHER, tensor, name, process_set)


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the root's array or pytree; ``root_rank`` is a rank of the job, even in a process set."""
    if process_set.ranks and root_rank not in process_set.ranks:
        raise ValueError(f"broadcast: the root rank {root_rank} is not among the ranks {process_set.ranks}")
    return _collect(BROADCAST, tensor, name, process_set, root=int(root_rank))


def alltoall(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Gives every rank the same number of this rank's rows; returns the rows for this rank by sender.

    The first dimension must be divisible by the number of ranks.
    """
    leaves = jax.tree.leaves(tensor)
    if len(leaves) != 1:
        raise ValueError(f"alltoall takes one array, not a pytree of {len(leaves)}")
    array, ranks = leaves[0], len(process_set.ranks)
    if jnp.ndim(array) and ranks and jnp.shape(array)[0] % ranks:
        raise ValueError(
            f"alltoall: {jnp.shape(array)[0]} rows can't be divided evenly among {ranks} ranks; pad them"
        )
    return _collect(ALLTOALL, leaves, name, process_set)[0]


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sums or averages arrays over all ranks; every rank keeps its rows of the result.

    If the first dimension does not divide evenly, the first ranks get one row more.
    """
    factors = _factors(prescale_factor, postscale_factor)
    return _collect(REDUCESCATTER, tensor, name, process_set, reduction=check_scatter_op(op), **factors)


def barrier(tensor: Any = None, process_set: ProcessSet = global_process_set) -> Any:
    """Waits until every rank of the process set has called it.

    Inside ``jit`` only data dependencies order operations: pass an array or a pytree there, which it returns
    once all ranks have called it. Without an argument it waits at once.
    """
    if tensor is None:
        return _wait_for_all(process_set)
    return _collect(BARRIER, tensor, None, process_set)
