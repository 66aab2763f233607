"""Training with averaged gradients, for optax and ``jax.value_and_grad``, from equal parameters on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

from horovod.common.basics import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.framework.compression import Compression, Compressor
from horovod.framework.divergence import ParameterCheck
from horovod.framework.grouping import split_factor
from horovod.jax.divergence import compare_parameters, named_leaves
from horovod.jax.operations import broadcast, reduce_gradients

_initializing = ContextVar("a DistributedOptimizer makes its state", default=False)


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    op: int = Average,
    compression: type[Compressor] = Compression.none,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    name: str | None = None,
) -> Any:
    """Makes an optax optimizer that reduces the gradients over all ranks, as one operation, before using
    them.

    State and parameters that are equal on all ranks at the start (``broadcast_parameters``) remain equal. For
    several backward passes a step wrap it into ``optax.MultiSteps``, which calls it, and so communicates and
    counts a step, in every pass.

    Args:
        optimizer: an optimizer of optax; wrap the whole chain, so that clipping uses the average.
        op: Average, Sum or Adasum.
        compression: as for ``allreduce``.
        gradient_predivide_factor: averages divide by the factor before the sum and by size / factor after it.
        process_set: as for ``allreduce``.
        name: as for ``allreduce``.

    Raises:
        ValueError: the object is not an optimizer of optax; or from ``init``: it or a part of it was wrapped
            before.
    """
    import optax

    if not hasattr(optimizer, "update"):
        raise ValueError(
            f"DistributedOptimizer takes an optimizer of optax, such as optax.adam(0.001), not {optimizer!r}"
        )
    inner = optax.with_extra_args_support(optimizer)
    factors = _factors(gradient_predivide_factor, op)

    def init(params: Any) -> Any:
        if _initializing.get():
            raise ValueError(
                "DistributedOptimizer: this optimizer, or a part of it, was wrapped before, so its gradients "
                "would be reduced twice; wrap the whole chain once"
            )
        token = _initializing.set(True)
        try:
            return inner.init(params)
        finally:
            _initializing.reset(token)

    check = ParameterCheck(f"{name or 'optax'}.parameters", process_set)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        if params is not None:
            compare_parameters(check, named_leaves(params))
        reduced = reduce_gradients(updates, op, name, compression, factors, process_set)
        return inner.update(reduced, state, params, **extra)

    return optax.GradientTransformationExtraArgs(init, update)


def _factors(gradient_predivide_factor: float, op: int) -> tuple[float, float]:
    return (1.0, 1.0) if gradient_predivide_factor == 1.0 else split_factor(gradient_predivide_factor, op)


def value_and_grad(
    fun: Callable[..., Any],
    *args: Any,
    op: int = Average,
    compression: type[Compressor] = Compression.none,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    name: str | None = None,
    **kwargs: Any,
) -> Callable[..., Any]:
    """Does ``jax.value_and_grad`` and reduces the gradients over all ranks as one operation, but not the
    value.

    Other arguments are those of ``jax.value_and_grad``; for the named ones see ``DistributedOptimizer``.
    """
    differentiate = jax.value_and_grad(fun, *args, **kwargs)
    factors = _factors(gradient_predivide_factor, op)

    @functools.wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        value, gradients = differentiate(*args, **kwargs)
        return value, reduce_gradients(gradients, op, name, compression, factors, process_set)

    return run


def broadcast_parameters(params: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """Returns the root's pytree of parameters, or state of an optimizer, on all ranks; one operation.

    The arrays are new, since JAX's can't be changed; keys of ``jax.random`` stay keys.
    """

    def is_key(leaf: Any) -> bool:
        return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)

    def restore(leaf: Any, data: Any) -> Any:
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf)) if is_key(leaf) else data

    data = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, params)
    return jax.tree.map(restore, params, broadcast(data, root_rank, name))
