"""The state of JAX for elastic jobs: references, donated arrays, and what a rank that joins receives."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

import horovod.jax as hvd  # noqa: E402
from horovod.common import epochs  # noqa: E402

pytestmark = pytest.mark.two_or_three


def joins(state: Any, holds: bool) -> None:
    """Synchronizes as if this process had just joined with a commit, or without one."""
    state._commit.holds, state._joins = holds, True
    state.sync()
    state._joins = False


def test_a_commit_keeps_references() -> None:
    params = {"w": jnp.ones(3), "frozen": jnp.zeros(2)}
    state = hvd.elastic.JaxState(params=params, step=0)
    for step in range(1, 4):
        state.params = {**state.params, "w": state.params["w"] + 1}
        state.step = step
        state.commit()
    assert state._saved_state["params"]["w"] is state.params["w"]
    kept = state.params
    state.params, state.step = {**kept, "w": jnp.zeros(3)}, 9
    state.restore()
    assert state.params["w"] is kept["w"] and state.step == 3


@pytest.mark.parametrize("every", [1, 3])
def test_arrays_that_are_donated_are_copied(every: int) -> None:
    """From the first commit on."""

    @functools.partial(jax.jit, donate_argnums=0)
    def step(params: Any) -> Any:
        return jax.tree.map(lambda array: array + 1, params)

    state = hvd.elastic.JaxState(params=[jnp.zeros(4), jnp.zeros((2, 2))], step=0)
    for commit in range(1, 4):
        before = state.step
        for _ in range(every):
            state.params = step(state.params)
            state.step += 1
        state.restore()
        assert state.step == before and all((each == before).all() for each in state.params)
        for _ in range(every):
            state.params = step(state.params)
            state.step += 1
        state.commit()
        assert state.step == commit * every
    state.params = step(state.params)
    state.restore()
    state.params = step(state.params)
    state.restore()
    assert (state.params[0] == 3 * every).all()


def test_a_failed_program_is_not_committed() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("on purpose")

    state = hvd.elastic.JaxState(x=jnp.zeros(2))
    shape = jax.ShapeDtypeStruct((2,), jnp.float32)
    failed = jax.jit(lambda x: jax.pure_callback(fail, shape, x))
    with pytest.raises(Exception, match="on purpose"):
        state.x = failed(state.x)
        state.commit()
    state.restore()
    assert (state.x == 0).all()


def test_a_rank_that_joins_receives_all(rank: int) -> None:
    def trees(value: int) -> dict[str, Any]:
        return {
            "params": {"w": jnp.full((2, 3), value + 0.5), "b": (jnp.full(4, value, jnp.bfloat16), None)},
            "empty": jnp.zeros((0, 3)),
            "key": jax.random.key(value),
            "host": np.full(3, value),
            "losses": [float(value)] * (3 if value == 0 else 0),
            "name": f"rank {value}",
            "step": value,
        }

    state = hvd.elastic.JaxState(**trees(rank))
    joins(state, holds=rank == 0)
    expected = trees(0)
    assert (state.name, state.step, state.losses) == ("rank 0", 0, [0.0] * 3)
    assert (jax.random.key_data(state.key) == jax.random.key_data(expected["key"])).all()
    for name in ("params", "empty", "host"):
        found, wanted = getattr(state, name), expected[name]
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert type(one) is type(other) and one.dtype == other.dtype and (one == other).all()
    state.params = {**state.params, "w": jnp.zeros((2, 3))}
    state.restore()
    assert (state.params["w"] == 0.5).all()


def test_functions_in_a_pytree_stay(rank: int) -> None:
    """They are part of the structure, and can't be sent."""

    @jax.tree_util.register_pytree_node_class
    class Model:
        def __init__(self, apply: Any, w: Any) -> None:
            self.apply, self.w = apply, w

        def tree_flatten(self) -> Any:
            return (self.w,), self.apply

        @classmethod
        def tree_unflatten(cls, apply: Any, children: Any) -> Any:
            return cls(apply, *children)

        def __reduce__(self) -> Any:
            raise TypeError("not to be sent")

    own = Model(lambda x: x + rank, jnp.full(2, float(rank)))
    state = hvd.elastic.JaxState(model=own)
    joins(state, holds=rank == 0)
    assert (state.model.w == 0).all() and state.model.apply is own.apply


def test_other_arrays_are_refused() -> None:
    state = hvd.elastic.JaxState(params={"w": jnp.zeros(2)})
    other = hvd.elastic.JaxState(params={"w": jnp.zeros(3), "b": jnp.zeros(1)})
    with pytest.raises(ValueError, match=r"\['params'\]\['w'\] is an array \[2\] .* and an array \[3\]"):
        state._make_room(other._describe()[0])


def test_only_functions_that_depend_on_the_ranks_are_compiled_again(rank: int) -> None:
    traced = []

    @jax.jit
    def reduced(x: Any) -> Any:
        traced.append("reduced")
        return hvd.allreduce(x, name="reduced")

    @jax.jit
    def gathered(x: Any) -> Any:
        traced.append("gathered")
        return hvd.allgather(x, name="gathered")

    def run(*functions: Any) -> None:
        hvd.shutdown()
        hvd.init(comm=[rank])
        for each in epochs.resettable:
            each.begin_epoch()
        for function in functions:
            assert function(jnp.ones((2, 1))).shape == (2, 1)

    reduced(jnp.ones((2, 1)))
    several = hvd.size() > 1
    try:
        run(reduced)
        hvd.shutdown()
        hvd.init()
        gathered(jnp.ones((2, 1)))
        traced.clear()
        run(gathered)
        assert traced == ["gathered"] * several
        run(gathered)
        assert traced == ["gathered"] * several
    finally:
        hvd.shutdown()
        hvd.init()
