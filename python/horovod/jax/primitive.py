"""All collectives as one JAX primitive: its types, its lowering to XLA, its batching and its derivatives.

It has no JAX effect, which would cost 300 µs a call and forbid ``jax.checkpoint``. Only XLA is informed that
the call has a side effect, so that it neither merges nor removes calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects.func import FuncOp

from horovod import _core
from horovod.common import epochs
from horovod.common.basics import Adasum, Average, Sum
from horovod.common.process_sets import registered
from horovod.framework.collectives import own_rows
from horovod.framework.requests import (
    ALLGATHER,
    ALLREDUCE,
    BARRIER,
    BROADCAST,
    REDUCESCATTER,
    factor_bits,
    factor_of,
)
from horovod.jax.errors import is_of_program


class Spec(NamedTuple):
    """The parameters of one call, equal on all ranks.

    The code that is generated from them must also be equal: XLA may run one call at a time, in an order that
    depends on constants in the program.
    """

    operation: _core.Operation
    name: str
    given: bool  # the name is the user's; otherwise the call's number in its program is appended
    ranks: tuple[int, ...]  # the members of the process set
    process_set: int = 0
    reduction: int = Sum
    prescale_bits: int = factor_bits(1.0)
    postscale_bits: int = factor_bits(1.0)
    root: int = 0
    grouped: bool = False
    rows: tuple[int, ...] = ()  # rows of each result of an allgather
    step: bool = False  # it reports a step of training, under its name

    @property
    def prescale(self) -> float:
        return factor_of(self.prescale_bits)

    @property
    def postscale(self) -> float:
        return factor_of(self.postscale_bits)

    def follower(self, operation: _core.Operation, suffix: str = "gradient", **changes: Any) -> Spec:
        """Returns a collective of the same ranks for a derivative of this one."""
        return self._replace(operation=operation, name=f"{self.name}.{suffix}", step=False, **changes)


collective_p = Primitive("horovod")
collective_p.multiple_results = True


@functools.cache
def _compiled(spec: Spec) -> Callable[..., Any]:
    compiled: Callable[..., Any] = jax.jit(functools.partial(collective_p.bind, spec=spec))
    return compiled


def _run_eagerly(*arrays: Any, spec: Spec) -> Any:
    try:
        with jax.disable_jit(False):  # without a compiled program there is no call of the engine
            return _compiled(spec)(*arrays)
    except ValueError as error:  # the status of a program that has run before and now ran in this thread
        if not is_of_program(error):
            raise
        raise jax.errors.JaxRuntimeError(str(error)) from None


class _Traces:
    """Makes JAX trace functions anew that depend on the ranks of a job, once an elastic job has others."""

    def __init__(self) -> None:
        self._ranks: Any = None  # on which a function depends; None: there is none
        epochs.resettable.add(self)

    def depend_on_ranks(self) -> None:
        """Notes that a function is traced of which this is true."""
        self._ranks = _placement()

    def begin_epoch(self) -> None:
        if self._ranks not in (None, _placement()):
            self._ranks = None
            jax.clear_caches()


def _placement() -> Any:
    return _core.placement()[:2], [(number, each.ranks) for number, each in registered()]


traces = _Traces()


def _types(*arrays: Any, spec: Spec) -> list[Any]:
    if spec.process_set or spec.operation.result in ("joined", "part"):
        traces.depend_on_ranks()
    mesh = jax.sharding.get_abstract_mesh()
    _check_devices(mesh.size if mesh.manual_axes else 1)  # also here: before derivatives in shard_map

    def shape(index: int, array: Any) -> tuple[int, ...]:
        if spec.operation.result == "joined":
            return (spec.rows[index], *array.shape[1:])
        if spec.operation.result == "part":
            return (own_rows(array.shape[0], spec.ranks), *array.shape[1:])
        return tuple(array.shape)

    return [jax.core.ShapedArray(shape(i, array), array.dtype) for i, array in enumerate(arrays)]


collective_p.def_impl(_run_eagerly)
collective_p.def_abstract_eval(_types)


# ---- lowering ------------------------------------------------------------------------------------------


def _check_devices(count: int) -> None:
    """Refuses several devices: a rank is one device, and every name would be submitted several times."""
    if count > 1:
        raise ValueError(
            f"horovod.jax: rank {_core.placement()[0]} runs this program on {count} local devices, but a "
            "rank is one device: start a rank for each (horovodrun -np N), and call Horovod outside shard_map"
        )


def _devices_of(context: Any) -> int:
    axes = context.module_context.axis_context
    if getattr(axes, "mesh", None) is not None:
        return int(axes.mesh.size)
    # Older versions have axis_env, for pmap.
    return int(axes.num_devices if hasattr(axes, "num_devices") else axes.axis_env.nreps)


def _reuses_memory(operation: _core.Operation, operand: Any) -> bool:
    """Returns true if the result may overwrite the operand.

    XLA copies an operand first if it is needed later, so it would copy every argument that was not donated.
    """
    if operation.result != "same":
        return operation is BARRIER
    function = operand.owner.owner if isinstance(operand.owner, ir.Block) else None
    if not isinstance(function, FuncOp) or cast(Any, function.name).value != "main":
        return True
    attributes = cast(Any, function.arg_attrs)[ir.BlockArgument(operand).arg_number]
    return "jax.buffer_donor" in attributes or "tf.aliasing_output" in attributes


def _name(context: Any, spec: Spec) -> str:
    """Returns a name; its number counts calls in the program, so it does not depend on other traces."""
    return spec.name if spec.given else f"{spec.name}#{context.module_context.new_channel()}"


def _fields(spec: Spec) -> list[tuple[str, Any]]:
    """Returns the fields of a request except operation and name."""
    fields = ("reduction", "prescale", "postscale", "root", "process_set", "grouped")
    return [*((field, getattr(spec, field)) for field in fields), ("generated", not spec.given)]


def _lower(context: Any, *operands: Any, spec: Spec) -> Any:
    _check_devices(_devices_of(context))
    aliases = {i: i for i, operand in enumerate(operands) if _reuses_memory(spec.operation, operand)}
    rule = jax.ffi.ffi_lowering("horovod", has_side_effect=True, operand_output_aliases=aliases)
    return rule(
        context,
        *operands,
        name=_name(context, spec),
        operation=np.int64(spec.operation.number),
        step=np.int64(spec.step),
        **{key: np.float64(it) if isinstance(it, float) else np.int64(it) for key, it in _fields(spec)},
    )


def _run_on_host(*arrays: Any, spec: Spec) -> list[Any]:
    request = _core.describe(spec.operation, **dict(_fields(spec)))
    inputs = [np.asarray(array, order="C") for array in arrays]
    if spec.operation is BARRIER:
        _core.run(request, spec.name, [])
        return inputs
    outputs = [np.empty(result.shape, result.dtype) for result in _types(*inputs, spec=spec)]
    _core.run(request, spec.name, inputs, outputs=outputs)
    if spec.step:
        _core.optimizer_step(spec.name)
    return outputs


def _lower_to_callback(context: Any, *operands: Any, spec: Spec) -> Any:
    """Lowers to a callback for devices without a handler of ours: through the host, one call at a time."""
    _check_devices(_devices_of(context))
    run = functools.partial(_run_on_host, spec=spec._replace(name=_name(context, spec)))
    rule = mlir.lower_fun(lambda *arrays: io_callback(run, context.avals_out, *arrays), multiple_results=True)
    return rule(context, *operands)


jax.ffi.register_ffi_target("horovod", _core.xla_handler(), platform="cpu", api_version=1)
try:  # newer versions would lower equal calls once, with one name
    mlir.register_lowering(collective_p, _lower, platform="cpu", cacheable=False)
    mlir.register_lowering(collective_p, _lower_to_callback, cacheable=False)
except TypeError:
    mlir.register_lowering(collective_p, _lower, platform="cpu")
    mlir.register_lowering(collective_p, _lower_to_callback)


# ---- vmap ----------------------------------------------------------------------------------------------


def _batch(arrays: Sequence[Any], axes: Sequence[int | None], *, spec: Spec) -> tuple[Any, list[int | None]]:
    if spec.reduction == Adasum and spec.operation is ALLREDUCE:
        raise NotImplementedError("vmap of allreduce with op=Adasum: it depends on the array as a whole")
    if spec.operation.result in ("same", "nothing"):  # elements do not depend on each other
        return collective_p.bind(*arrays, spec=spec), list(axes)
    moved = [
        array if axis is None else jnp.moveaxis(array, axis, 1)
        for array, axis in zip(arrays, axes, strict=True)
    ]  # as the first dimension is divided or joined
    return collective_p.bind(*moved, spec=spec), [None if axis is None else 1 for axis in axes]


batching.primitive_batchers[collective_p] = _batch


# ---- derivatives ---------------------------------------------------------------------------------------


def _differentiate(primals: Sequence[Any], tangents: Sequence[Any], *, spec: Spec) -> tuple[Any, list[Any]]:
    """Runs the same collective on the tangents that are not zero, the same ones on all ranks."""
    if spec.operation is ALLREDUCE and spec.reduction not in (Sum, Average):
        raise NotImplementedError("only allreduce with op=Sum or op=Average has a derivative under JAX")
    outputs = collective_p.bind(*primals, spec=spec)
    derivatives: list[Any] = [ad.Zero(jax.typeof(output).to_tangent_aval()) for output in outputs]
    chosen = [i for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
    if chosen:
        some = _of_some(spec.follower(spec.operation, "tangent"), chosen)
        for i, tangent in zip(
            chosen, collective_p.bind(*(tangents[i] for i in chosen), spec=some), strict=True
        ):
            derivatives[i] = tangent
    return outputs, derivatives


def _of_some(spec: Spec, chosen: list[int]) -> Spec:
    return spec._replace(rows=tuple(spec.rows[i] for i in chosen)) if spec.rows else spec


def _transpose(cotangents: Sequence[Any], *arguments: Any, spec: Spec) -> list[Any]:
    """Computes the gradient of the sum of all ranks' losses, as JAX's own collectives do."""
    answers: list[Any] = [ad.Zero(argument.aval.to_tangent_aval()) for argument in arguments]
    chosen = [i for i, cotangent in enumerate(cotangents) if type(cotangent) is not ad.Zero]
    if chosen:
        given = [cotangents[i] for i in chosen]
        extents = [arguments[i].aval.shape for i in chosen]
        for i, answer in zip(chosen, _pull_back(given, extents, _of_some(spec, chosen)), strict=True):
            answers[i] = answer
    return answers


def _pull_back(given: list[Any], shapes: list[tuple[int, ...]], spec: Spec) -> Sequence[Any]:
    if spec.operation is BROADCAST:  # the sum at the root, zeros elsewhere, by one program for both
        before = spec.ranks.index(spec.root)
        ends = (before, len(spec.ranks) - 1 - before)
        padded = [jnp.pad(array[None], [ends] + [(0, 0)] * array.ndim) for array in given]
        return [part[0] for part in collective_p.bind(*padded, spec=spec.follower(REDUCESCATTER))]
    if spec.operation is ALLGATHER:
        follower = spec.follower(REDUCESCATTER, rows=())
        return collective_p.bind(*given, spec=follower)  # type: ignore[no-any-return]
    if spec.operation is REDUCESCATTER:
        factor = spec.prescale * spec.postscale / (len(spec.ranks) if spec.reduction == Average else 1)
        rows = tuple(shape[0] for shape in shapes)
        joined = collective_p.bind(*given, spec=spec.follower(ALLGATHER, rows=rows))
        return [array * jnp.asarray(factor, array.dtype) for array in joined]
    return collective_p.bind(*given, spec=spec.follower(spec.operation))  # type: ignore[no-any-return]


ad.primitive_jvps[collective_p] = _differentiate
ad.primitive_transposes[collective_p] = _transpose
