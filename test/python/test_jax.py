"""horovod.jax: as JAX's own collectives on virtual devices, and as one process that has all data."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import horovod

if horovod.size() > 3:
    pytest.skip("three virtual devices stand for the ranks", allow_module_level=True)
# Level 0 saves a quarter of the processor time; what it leaves out is in XLA's own code.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_force_host_platform_device_count=3 --xla_backend_optimization_level=0"
)
jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import horovod.jax as hvd  # noqa: E402
from horovod import _core  # noqa: E402
from horovod.jax import primitive  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
ROWS = 6  # divisible by 1, 2 and 3
on_two_ranks = pytest.mark.skipif(horovod.size() != 2, reason="two ranks show it")
two_or_three = pytest.mark.two_or_three


@pytest.fixture(autouse=True, scope="module")
def _wide_types() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


# ---- beside lax ----------------------------------------------------------------------------------------


class Ours:
    sum = staticmethod(partial(hvd.allreduce, op=hvd.Sum))
    mean = staticmethod(hvd.allreduce)
    gather = staticmethod(hvd.allgather)
    scatter = staticmethod(partial(hvd.reducescatter, op=hvd.Sum))
    exchange = staticmethod(hvd.alltoall)
    root = staticmethod(partial(hvd.broadcast, root_rank=0))


class Lax:
    sum = staticmethod(partial(lax.psum, axis_name="ranks"))
    mean = staticmethod(partial(lax.pmean, axis_name="ranks"))
    gather = staticmethod(partial(lax.all_gather, axis_name="ranks", tiled=True))
    scatter = staticmethod(partial(lax.psum_scatter, axis_name="ranks", tiled=True))
    exchange = staticmethod(
        partial(lax.all_to_all, axis_name="ranks", split_axis=0, concat_axis=0, tiled=True)
    )

    @staticmethod
    def root(x: Any) -> Any:
        return lax.psum(jnp.where(lax.axis_index("ranks") == 0, x, 0), "ranks")


def loss_of_a_rank(ops: Any, x: Any) -> Any:
    """Each collective's argument and result go through something that is not linear."""
    weights = jnp.arange(1.0, 1 + ROWS)
    total = jnp.sum(jnp.sin(ops.sum(x**2)) * weights)
    total += jnp.sum(ops.mean(jnp.cos(x)) ** 3)
    total += jnp.sum(jnp.tanh(ops.gather(x * x[0])))
    total += jnp.sum(ops.scatter(x**3) ** 2)
    total += jnp.sum(jnp.exp(ops.exchange(jnp.sin(x))) * weights)
    return total + jnp.sum(ops.root(x**2) ** 2 * x)


def of_all_ranks(size: int, outer: Callable[[Any], Any], x: Any) -> Any:
    mesh = jax.sharding.Mesh(jax.devices()[:size], ("ranks",))
    spec = jax.sharding.PartitionSpec("ranks")
    losses = jax.shard_map(
        lambda part: loss_of_a_rank(Lax, part)[None], mesh=mesh, in_specs=spec, out_specs=spec
    )
    return jax.jit(outer(lambda values: jnp.sum(losses(values))))(x)


@pytest.mark.parametrize("order", [pytest.param(1, marks=two_or_three), pytest.param(2, marks=on_two_ranks)])
def test_derivatives_are_those_of_lax(rank: int, size: int, order: int) -> None:
    """Of the sum of all ranks' losses, by a rank's own part; the second ones along a direction."""
    everything = jnp.linspace(0.1, 1.3, ROWS * size)
    own = everything[rank * ROWS : (rank + 1) * ROWS]

    def outer(loss: Callable[[Any], Any]) -> Callable[[Any], Any]:
        gradient = jax.grad(loss)
        return gradient if order == 1 else jax.grad(lambda x: jnp.sum(gradient(x) * jnp.cos(x)))

    expected = of_all_ranks(size, outer, everything)[rank * ROWS : (rank + 1) * ROWS]
    actual = jax.jit(outer(lambda x: loss_of_a_rank(Ours, x)))(own)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


@on_two_ranks
def test_values_and_forward_derivatives_are_those_of_lax(rank: int, size: int) -> None:
    everything = jnp.linspace(0.1, 1.3, ROWS * size)
    own = everything[rank * ROWS : (rank + 1) * ROWS]
    value, derivative = jax.jit(lambda x: jax.jvp(partial(loss_of_a_rank, Ours), (x,), (jnp.sin(x),)))(own)
    losses = of_all_ranks(size, lambda loss: lambda x: jax.jvp(loss, (x,), (jnp.sin(x),)), everything)
    np.testing.assert_allclose(hvd.allreduce(jnp.stack([value, derivative]), op=hvd.Sum), losses, rtol=1e-9)


# ---- values --------------------------------------------------------------------------------------------


@two_or_three
def test_a_tree_of_all_types_in_one_call(rank: int, size: int) -> None:
    tree = {name: jnp.asarray(np.array([rank + 1, 2]), name) for name in _core.dtypes}
    jaxpr = jax.make_jaxpr(partial(hvd.allreduce, op=hvd.Max))(tree["float32"])
    assert len(jaxpr.eqns) == 1
    reduced = jax.jit(partial(hvd.allreduce, op=hvd.Sum))(tree)
    for name, array in reduced.items():
        expected = [True, True] if name == "bool" else [size * (size + 1) / 2, 2 * size]
        assert array.dtype.name == name
        assert np.asarray(array).astype(complex).real.tolist() == expected, name


@two_or_three
def test_shapes_eagerly(rank: int, size: int) -> None:
    assert hvd.allreduce(3.5) == 3.5
    assert hvd.allreduce(jnp.ones((0, 3))).shape == (0, 3)
    assert hvd.allreduce([]) == []
    assert hvd.allreduce({"a": None, "b": np.ones(2)})["a"] is None
    pair = hvd.allgather((jnp.full((1, 2), rank), jnp.full(2, rank, "int8")))
    assert pair[0].tolist() == [[r, r] for r in range(size)]
    assert pair[1].tolist() == [r for r in range(size) for _ in range(2)]
    assert hvd.broadcast(jnp.full(3, rank), root_rank=size - 1).tolist() == [size - 1] * 3
    assert hvd.alltoall(jnp.arange(size)).tolist() == [rank] * size
    rows = hvd.reducescatter(jnp.ones(4), op=hvd.Sum, prescale_factor=2)
    assert rows.tolist() == [2.0 * size] * (4 // size + (rank < 4 % size))
    halves = hvd.allreduce(jnp.full(2, rank), op=hvd.Min, compression=hvd.Compression.fp16)
    assert halves.tolist() == [0, 0]


@two_or_three
def test_uneven_reducescatter_has_a_gradient(rank: int, size: int) -> None:
    gradient = jax.grad(lambda x: jnp.sum(hvd.reducescatter(x) * (rank + 1.0)))(jnp.ones(4))
    owners = [r for r in range(size) for _ in range(4 // size + (r < 4 % size))]
    np.testing.assert_allclose(gradient, [(owner + 1) / size for owner in owners])


# ---- transformations -----------------------------------------------------------------------------------


@on_two_ranks
def test_vmap(rank: int, size: int) -> None:
    x = np.arange(2.0 * 3 * ROWS).reshape(2, 3, ROWS) + rank
    for function in (hvd.allreduce, hvd.alltoall):
        whole = jax.jit(jax.vmap(jax.vmap(function), in_axes=1, out_axes=1))(x)
        single = [[function(x[i, j]) for j in range(3)] for i in range(2)]
        np.testing.assert_allclose(whole, np.array(single))
    both = jax.vmap(lambda a, b: hvd.allreduce([a, b], op=hvd.Sum), in_axes=(0, None))(x, x[0, 0])
    np.testing.assert_allclose(both[1][1], x[0, 0] * size + size * (size - 1) / 2 - rank * size)
    with pytest.raises(NotImplementedError, match="Adasum"):
        jax.vmap(partial(hvd.allreduce, op=hvd.Adasum))(x)


@on_two_ranks
def test_scan_cond_and_checkpoint(rank: int, size: int) -> None:
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        mean = lax.cond(x > 0, hvd.allreduce, lambda v: v * 2, carry)
        return mean, mean

    def loss(x: Any) -> Any:
        return jnp.sum(lax.scan(jax.checkpoint(step), x, jnp.array([1.0, -1.0, 1.0]))[0] + x**2)

    value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.full(3, rank + 1.0))
    np.testing.assert_allclose(gradient, np.full(3, 2 + 2 * (rank + 1.0)))
    assert value == pytest.approx(3 * (size + 1) + 3 * (rank + 1.0) ** 2)


@on_two_ranks
def test_with_jit_disabled(rank: int, size: int) -> None:
    """The program runs line by line; only the calls of the engine are compiled."""
    x = jnp.arange(3.0) + rank
    total = np.arange(3.0) * size + sum(range(size))

    def reduce(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum)

    def body(before: Any, x: Any) -> tuple[Any, Any]:
        return before + reduce(x), None

    with jax.disable_jit():
        np.testing.assert_allclose(reduce(x), total)
        np.testing.assert_allclose(jax.jit(reduce)(x), total)
        gradient = jax.grad(lambda x: jnp.sum(reduce(x) ** 2))(x)
        np.testing.assert_allclose(gradient, 2 * total * size)
        np.testing.assert_allclose(lax.scan(body, jnp.zeros(3), jnp.stack([x, x]))[0], 2 * total)


@on_two_ranks
def test_donated_arguments(rank: int, size: int) -> None:
    step = jax.jit(lambda w, x: (w + hvd.allreduce(x), hvd.allreduce(w)), donate_argnums=(0, 1))
    total, old = jnp.zeros(1000), None
    for i in range(3):
        total, old = step(total, np.full(1000, rank + i, float))
    assert total[0] == 3 * (size - 1) / 2 + 3
    assert old is not None and old[0] == 2 * (size - 1) / 2 + 1


@on_two_ranks
def test_results_take_the_memory_of_what_is_not_kept(rank: int, size: int) -> None:
    """In one call: a kept and a donated argument, a value, one that is needed later, and a constant."""

    def program(kept: Any, given: Any) -> Any:
        made, again = kept + 1, kept * 2
        tree = [kept, given, made, again, again, jnp.ones(3)]
        return hvd.allreduce(tree, op=hvd.Sum), hvd.broadcast(jnp.cos(made), 0), again

    jitted = jax.jit(program, donate_argnums=1)
    kept, given = jnp.full(3, rank + 1.0), jnp.full(3, 10 * (rank + 1.0))
    places = re.findall(r"operand_index = (\d)", jitted.lower(kept, given).as_text())
    assert places == ["1", "2", "3", "4", "5", "0"]
    place = given.unsafe_buffer_pointer()
    sums, shared, again = jitted(kept, given)
    assert [array[2] for array in sums] == [3, 30, 5, 6, 6, 2]
    assert shared[0] == pytest.approx(np.cos(2)) and again[0] == 2 * (rank + 1) and kept[0] == rank + 1
    assert given.is_deleted() and place in [array.unsafe_buffer_pointer() for array in sums]


@on_two_ranks
def test_where_there_is_no_handler(rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other devices than CPUs take the way through Python; one after the other, since calls wait there."""

    def loss(x: Any) -> Any:
        for function in (partial(hvd.allreduce, prescale_factor=2), hvd.alltoall, Ours.root, hvd.barrier):
            x = jnp.sin(function(x))
        x, half = hvd.allreduce([x, x[0].astype("bfloat16")], op=hvd.Sum)
        return jnp.sum(hvd.reducescatter(hvd.allgather(x) ** 2) * half)

    def run() -> Any:
        primitive._compiled.cache_clear()
        jax.clear_caches()
        values = jax.jit(jax.vmap(jax.value_and_grad(loss)))(
            jnp.linspace(0, 1, 3 * ROWS).reshape(3, ROWS) + rank
        )
        with pytest.raises(jax.errors.JaxRuntimeError, match="the ranks disagree on the shape"):
            hvd.allreduce(jnp.ones(2 + rank)).block_until_ready()
        return values

    expected = run()
    lowerings = importlib.import_module("jax._src.interpreters.mlir")._platform_specific_lowerings
    with monkeypatch.context() as patch:
        patch.delitem(lowerings["cpu"], primitive.collective_p)
        assert "python_cpu_callback" in jax.jit(hvd.allreduce).lower(1.0).as_text()
        jax.tree.map(np.testing.assert_array_equal, run(), expected)
    run()


@on_two_ranks
def test_many_at_once_in_any_order(rank: int, size: int) -> None:
    """XLA runs them in an order of its own on each rank."""

    @jax.jit
    def many(arrays: list[Any]) -> list[Any]:
        return [hvd.allreduce(jnp.tanh(a @ a), op=hvd.Sum) for a in arrays]

    arrays = [np.full((20, 20), 0.001 * (i + rank)) for i in range(60)]
    for _ in range(3):
        sums = many(arrays)
    for i, array in enumerate(sums):
        expected = sum(np.tanh(20 * (0.001 * (i + r)) ** 2) for r in range(size))
        assert array[0, 0] == pytest.approx(expected)


@on_two_ranks
def test_a_retrace_on_one_rank_shifts_nothing(rank: int, size: int) -> None:
    @jax.jit
    def both(x: Any) -> Any:
        return hvd.allreduce(x) + 10 * hvd.allreduce(x * x)

    if rank == size - 1:
        for length in (3, 4):
            both.lower(jnp.ones(length)).compile()
    assert both(jnp.full(2, 2.0)).tolist() == [42, 42]


def names_of(function: Callable[[Any], Any]) -> list[str]:
    return re.findall(r' name = "([^"]*)"', jax.jit(function).lower(1.0).as_text())


@on_two_ranks
def test_names_come_from_the_place_in_the_program() -> None:
    given, *others = sorted(
        names_of(lambda x: hvd.allreduce(hvd.allreduce(x)) + hvd.allreduce(x, name="mine"))
    )
    places = [name.rpartition("#")[0] for name in others]
    assert len(set(others)) == 2 and places[0] == places[1] and places[0].startswith("test_jax.py:")
    assert given == "mine"


@on_two_ranks
def test_an_inlined_program_has_a_name_for_each_call() -> None:
    inner = jax.jit(hvd.allreduce, inline=True)
    assert len(set(names_of(lambda x: inner(x) + inner(2 * x)))) == 2


@on_two_ranks
def test_threads_run_programs_of_their_own(rank: int, size: int) -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name=f"thread {number}"))
        for i in range(30):
            if program(jnp.full(10, i + number))[0] != (i + number) * size:
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong and not any(thread.is_alive() for thread in threads)


@on_two_ranks
def test_barrier_in_a_program(rank: int) -> None:
    assert jax.jit(hvd.barrier)([jnp.arange(3), rank])[0].tolist() == [0, 1, 2]
    assert jax.grad(lambda x: hvd.barrier(x) ** 2)(3.0) == 6
    assert hvd.barrier() is None


# ---- training ------------------------------------------------------------------------------------------

DATA = np.linspace(-1, 1, 12 * 4).reshape(12, 4)
TARGET = np.sin(DATA.sum(1))


def prediction_error(params: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ params["w"] + params["b"].astype(x.dtype))
    return jnp.mean((hidden @ params["v"] - y) ** 2)


def first_params() -> Any:
    return {
        "w": jnp.linspace(-1, 1, 12).reshape(4, 3),
        "b": jnp.zeros(3, "float32"),
        "v": jnp.linspace(1, 2, 3),
    }


def shard(array: Any) -> Any:
    return array[hvd.rank() :: hvd.size()]


@two_or_three
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_count_steps(compiled: bool, counted_steps: Any) -> None:
    step = hvd.value_and_grad(prediction_error)
    step = jax.jit(step) if compiled else step

    def train() -> None:
        for _ in range(4):
            jax.block_until_ready(step(first_params(), shard(DATA), shard(TARGET)))

    assert counted_steps(train) == 4


@two_or_three
@pytest.mark.parametrize("passes", [1, 2])
def test_optimizers_count_steps(passes: int, counted_steps: Any) -> None:
    optax = pytest.importorskip("optax", reason="optax is not installed")
    optimizer, params = hvd.DistributedOptimizer(optax.adam(0.1)), first_params()

    @jax.jit
    def update(number: Any, state: Any) -> Any:
        """Uses the gradients of the last of several passes."""
        used = number % passes == passes - 1
        return lax.cond(used, lambda: optimizer.update(params, state, params)[1], lambda: state)

    def train() -> None:
        state = optimizer.init(params)
        for number in range(8):
            state = jax.block_until_ready(update(number, state))

    assert counted_steps(train) == 8 // passes


@on_two_ranks
@pytest.mark.parametrize(
    ("name", "every"), [("adam", 1), ("adam", 2), ("lamb", 1), ("noisy_sgd", 1), ("rmsprop", 1), ("sgd", 1)]
)
def test_optimizer_equals_one_process(name: str, every: int) -> None:
    optax = pytest.importorskip("optax", reason="optax is not installed")

    def train(optimizer: Any, x: Any, y: Any) -> Any:
        if every > 1:
            optimizer = optax.MultiSteps(optimizer, every)
        params = first_params()
        state = optimizer.init(params)

        @jax.jit
        def step(params: Any, state: Any) -> Any:
            updates, state = optimizer.update(jax.grad(prediction_error)(params, x, y), state, params)
            return optax.apply_updates(params, updates), state

        for _ in range(4):
            params, state = step(params, state)
        return params

    chain = optax.chain(optax.clip_by_global_norm(0.1), getattr(optax, name)(0.1))
    alone = train(chain, DATA, TARGET)
    together = train(hvd.DistributedOptimizer(chain), shard(DATA), shard(TARGET))
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=1e-5, err_msg=name)


@on_two_ranks
def test_value_and_grad_equals_one_process() -> None:
    _, expected = jax.value_and_grad(prediction_error)(first_params(), DATA, TARGET)
    options = {"gradient_predivide_factor": 2.0}
    value, actual = jax.jit(hvd.value_and_grad(prediction_error, **options))(
        first_params(), shard(DATA), shard(TARGET)
    )
    assert value == pytest.approx(prediction_error(first_params(), shard(DATA), shard(TARGET)))
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-6)


@two_or_three
def test_broadcast_parameters(rank: int, size: int) -> None:
    tree = {"w": jnp.full((2, 2), rank, "bfloat16"), "step": rank, "key": jax.random.key(rank)}
    same = hvd.broadcast_parameters(tree, root_rank=size - 1)
    assert same["w"].tolist() == [[size - 1] * 2] * 2
    assert same["step"] == size - 1
    assert jax.random.bits(same["key"]) == jax.random.bits(jax.random.key(size - 1))


# ---- bad input -----------------------------------------------------------------------------------------


def test_mismatch_is_an_error_on_every_rank(rank: int, size: int) -> None:
    if size > 1:
        with pytest.raises(
            jax.errors.JaxRuntimeError, match='FAILED_PRECONDITION: allreduce "shape": the ranks disagree'
        ):
            jax.jit(partial(hvd.allreduce, name="shape"))(jnp.ones(2 + rank)).block_until_ready()
        text = r"output 0 has shape \[\d\], but its result has \[\d\]"
        with pytest.raises(jax.errors.JaxRuntimeError, match=text):
            hvd.allgather(jnp.ones(1 + (rank == 0))).block_until_ready()
    assert hvd.allreduce(1.0) == 1


@on_two_ranks
def test_a_name_twice_in_flight(rank: int) -> None:
    """Rank 1 comes when rank 0 has the error."""
    program, sums = jax.jit(partial(hvd.allreduce, name="twice")), []
    hvd.allreduce(1.0)
    if rank == 0:
        before = hvd.metrics()[0]["allreduce"]["submitted"]
        thread = threading.Thread(target=lambda: sums.append(program(jnp.ones(2)).tolist()))
        thread.start()
        deadline = time.monotonic() + 60
        while hvd.metrics()[0]["allreduce"]["submitted"] == before:
            assert time.monotonic() < deadline, "the first program does not run"
            time.sleep(0.001)
        text = r"FAILED_PRECONDITION: allreduce\.twice is in flight on rank 0"
        with pytest.raises(jax.errors.JaxRuntimeError, match=text):
            jax.jit(lambda x: hvd.allreduce(2 * x, name="twice"))(jnp.ones(2)).block_until_ready()
        hvd.barrier()
        thread.join(60)
    else:
        hvd.barrier()
        sums.append(program(jnp.ones(2)).tolist())
    assert sums == [[1, 1]]


@on_two_ranks
def test_mistakes_of_this_rank(size: int) -> None:
    x = jnp.ones(3)
    with pytest.raises(ValueError, match="allgather: array 0 has no dimensions"):
        hvd.allgather(1.0)
    for value, kind in (("text", "str"), (np.array(["a"]), "ndarray of type <U1"), (object(), "object")):
        with pytest.raises(TypeError, match=f"allreduce: array 1 is a {kind}; JAX makes no array of it"):
            hvd.allreduce([x, value])
    with pytest.raises(TypeError, match="broadcast: array 0 is a ShapeDtypeStruct of type float32"):
        hvd.broadcast_parameters(jax.eval_shape(lambda: x.astype("float32")))
    with pytest.raises(TypeError, match="name must be a str or None, not int"):
        hvd.allreduce(x, name=7)
    with pytest.raises(TypeError, match="integer"):
        hvd.allreduce(x, op="sum")
    with pytest.raises(ValueError, match="alltoall takes one array, not a pytree of 2"):
        hvd.alltoall([x, x])
    with pytest.raises(ValueError, match="elements of type float8_e5m2; this version takes uint8"):
        hvd.allreduce(x.astype("float8_e5m2"))
    with pytest.raises(NotImplementedError, match="op=Sum or op=Average"):
        jax.grad(lambda v: jnp.sum(hvd.allreduce(v, op=hvd.Max)))(x)
    with pytest.raises(ValueError, match="gradient_predivide_factor needs op=Average"):
        hvd.value_and_grad(jnp.sum, op=hvd.Sum, gradient_predivide_factor=2.0)(x)
    if size > 1:
        with pytest.raises(ValueError, match="can't be divided evenly"):
            hvd.alltoall(jnp.ones(ROWS + 1))
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(x, process_set=hvd.ProcessSet([0]))


@on_two_ranks
def test_an_optimizer_wrapped_twice() -> None:
    optax = pytest.importorskip("optax", reason="optax is not installed")
    inside = hvd.DistributedOptimizer(optax.sgd(0.1))
    for twice in (inside, optax.chain(optax.clip(1.0), inside), optax.MultiSteps(inside, 2)):
        with pytest.raises(ValueError, match="wrap the whole chain once"):
            hvd.DistributedOptimizer(twice).init(jnp.ones(2))
    inside.init(jnp.ones(2))
    for wrong in ("sgd", optax.sgd):
        with pytest.raises(ValueError, match=r"takes an optimizer of optax, such as optax\.adam"):
            hvd.DistributedOptimizer(wrong)


@on_two_ranks
def test_several_local_devices_are_refused() -> None:
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("local",))
    spec = jax.sharding.PartitionSpec("local")
    program = jax.shard_map(hvd.allreduce, mesh=mesh, in_specs=spec, out_specs=spec)
    sharded = jax.device_put(jnp.ones(4), jax.sharding.NamedSharding(mesh, spec))
    for run in (
        lambda x: jax.jit(program)(x),
        program,
        jax.grad(lambda x: program(x).sum()),
        lambda x: jax.pmap(hvd.allreduce)(x.reshape(2, 2)),
        lambda _: jax.jit(hvd.allreduce)(sharded),
        lambda _: hvd.allreduce(sharded),
    ):
        with pytest.raises(ValueError, match="on 2 local devices, but a rank is one device"):
            run(jnp.ones(4))
    assert hvd.allreduce(jnp.ones(4)).tolist() == [1] * 4


PROGRAM = """
import jax, jax.numpy as jnp, horovod.jax as hvd
program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
try:
    program(jnp.ones(2))
except ValueError as error:
    print(error)
for _ in range(3):
    hvd.init()
    print(program(jnp.ones(2))[0])
    hvd.shutdown()
try:
    program(jnp.ones(2)).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print(error)
"""


@on_two_ranks
def test_without_init_and_in_several_lives() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HOROVOD")}
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 5, done.stdout + done.stderr
    assert lines[0] == "Horovod has not been initialized; use hvd.init()."
    assert lines[1:4] == ["1.0"] * 3
    assert lines[4].startswith("INVALID_ARGUMENT: Horovod has not been initialized; use hvd.init().")


# ---- the interface to XLA ------------------------------------------------------------------------------

PAIRS = {
    "extension": ("Extension_Base", "kind:type next"),
    "version": ("Api_Version", "major:major_version minor:minor_version"),
    "metadata": ("Metadata", "version:api_version traits"),
    "metadata_extension": ("Metadata_Extension", "metadata"),
    "buffer": ("Buffer", "type:dtype data rank dims"),
    "text": ("ByteSpan", "start:ptr length:len"),
    "scalar": ("Scalar", "type:dtype value"),
    "buffers": ("Args", "count:size kinds:types buffers:args"),
    "attributes": ("Attrs", "count:size kinds:types names values:attrs"),
    "error_args": ("Error_Create_Args", "message code:errc"),
    "future_args": ("Future_Create_Args", "future"),
    "future_error_args": ("Future_SetError_Args", "future error"),
    "api": (
        "Api",
        "version:api_version error_create:XLA_FFI_Error_Create future_create:XLA_FFI_Future_Create "
        "future_set_available:XLA_FFI_Future_SetAvailable future_set_error:XLA_FFI_Future_SetError",
    ),
    "frame": ("CallFrame", "api stage inputs:args outputs:rets attributes:attrs future"),
}


@on_two_ranks
def test_layouts_are_those_of_the_header_of_xla(rank: int, tmp_path: Path) -> None:
    lines = [f'_Static_assert(XLA_FFI_DataType_{t} == XLA_{t}, "{t}");' for t in ("S64", "F64")]
    for ours, (theirs, fields) in PAIRS.items():
        for field in fields.split():
            own, _, other = field.partition(":")
            lines.append(
                f"_Static_assert(offsetof(struct xla_{ours}, {own}) == offsetof(XLA_FFI_{theirs}, "
                f'{other or own}), "{ours}.{own}");'
            )
    path = tmp_path / "layout.c"
    path.write_text('#include "xla/ffi/api/c_api.h"\n#include "native/xla.h"\n' + "\n".join(lines))
    words = ["cc", "-fsyntax-only", f"-I{jax.ffi.include_dir()}", f"-I{ROOT / 'src'}", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
