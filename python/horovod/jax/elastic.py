"""Elastic training with JAX, see docs/elastic.md."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import elastic
from horovod.common.basics import rank
from horovod.common.elastic import ObjectState, failure_of_job, own_failure, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.common.exchange import pickler
from horovod.common.leaving import leave as leave
from horovod.framework.objects import broadcast_object
from horovod.framework.variables_state import bytes_of, check_equal, text_of
from horovod.jax.errors import check, is_of_program

T = TypeVar("T")


def failure_of(error: Exception) -> HorovodInternalError | None:
    """Returns the failure of the job behind an error of a program that JAX has run."""
    return failure_of_job() if is_of_program(error) else own_failure(error)


def _reset() -> None:
    """Waits for programs in progress, which would take part in the next epoch otherwise; then joins it."""
    for array in jax.live_arrays():
        with contextlib.suppress(Exception):  # they fail as the job has
            array.block_until_ready()
    elastic.reset()


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Makes a training function elastic; a decorator.

    The function's first argument is a state, such as ``hvd.elastic.JaxState(params=params, epoch=0)``. It
    continues from that state's latest commit when ranks were lost or added, in the same process, with the
    functions that are compiled already. See docs/elastic.md.
    """
    return run_fn(func, _reset, failure_of)


class _Array(NamedTuple):
    """Takes the place of an array in a description."""

    text: str  # what must be equal in all processes
    shape: tuple[int, ...]
    dtype: str
    key: str  # the kind of a key of random numbers, whose numbers these are; "": it is none
    numpy: bool  # it is an array of NumPy

    def made_of(self, numbers: Any) -> Any:
        """Returns the array that has these numbers."""
        if self.numpy:
            return numbers
        array = jnp.asarray(numbers)
        return jax.random.wrap_key_data(array, impl=self.key) if self.key else array


def _is_description(leaf: Any) -> bool:
    return isinstance(leaf, _Array)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "OSUMm")


def _numbers(array: Any) -> Any:
    """Returns a copy of an array in memory that can be written."""
    return np.array(jax.random.key_data(array) if _is_key(array) else array, order="C")


def _places(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


class JaxState(ObjectState):
    """The state of training as pytrees: parameters, the optimizer's state, numbers and any other values.

    Arrays can't be changed, so a commit keeps references to them and copies nothing. Only if a program
    donates an array to a function (``donate_argnums``) are copies kept. Leaves that are no arrays of JAX are
    copied.

    Args:
        pytrees: pytrees by name. ``state.name`` reads them, and assigning to it replaces them.

    Example::

        state = hvd.elastic.JaxState(params=params, opt_state=optimizer.init(params), epoch=0)
        state.params, state.opt_state, loss = step(state.params, state.opt_state, batch)
        state.commit()
    """

    def __init__(self, **pytrees: Any) -> None:
        super().__init__(broadcast_object, rank, **pytrees)
        self._handed: dict[str, jax.Array] = {}  # arrays that were the program's at the latest commit
        self._lasting: set[str] = set()  # places of those of which one was replaced and not donated
        self._donated: set[str] = set()
        self._keep()

    def _trees(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._saved_state}

    def _keep(self) -> None:
        trees = self._trees()
        check(trees, True)  # the failure of a program, before anything is replaced
        kept = dict(zip(_places(self._saved_state), jax.tree.leaves(self._saved_state), strict=True))
        handed: dict[str, jax.Array] = {}

        def keep(path: Any, leaf: Any) -> Any:
            if not isinstance(leaf, jax.Array):
                return copy.deepcopy(leaf)
            place = jax.tree_util.keystr(path)
            handed[place] = leaf
            before = self._handed.get(place)
            if before is leaf:
                return kept[place]
            if before is not None:
                (self._donated if before.is_deleted() else self._lasting).add(place)
            return leaf if place in self._lasting and place not in self._donated else leaf.copy()

        self._saved_state = jax.tree_util.tree_map_with_path(keep, trees)
        self._handed = handed

    def save(self) -> None:
        """Keeps the present values; waits until the programs that compute them have ended."""
        self._keep()
        self._commit.version += 1

    def restore(self) -> None:
        """Sets the attributes to what ``save`` kept."""
        handed: dict[str, jax.Array] = {}

        def hand(path: Any, leaf: Any) -> Any:
            if not isinstance(leaf, jax.Array):
                return copy.deepcopy(leaf)
            place = jax.tree_util.keystr(path)
            if leaf.is_deleted():
                raise RuntimeError(
                    f"JaxState: {place} was donated to a function after it had been committed, and was not "
                    "before: donate it in all steps, or in none"
                )
            handed[place] = leaf if place in self._lasting and place not in self._donated else leaf.copy()
            return handed[place]

        for name, tree in jax.tree_util.tree_map_with_path(hand, self._saved_state).items():
            setattr(self, name, tree)
        self._handed = handed

    def _describe(self) -> tuple[Any, list[Any]]:
        memory: list[Any] = []

        def describe(leaf: Any) -> Any:
            if not _is_array(leaf):
                return leaf
            memory.append(_numbers(leaf))
            key = str(jax.random.key_impl(leaf)) if _is_key(leaf) else ""
            return _Array(
                text_of(leaf), memory[-1].shape, memory[-1].dtype.name, key, isinstance(leaf, np.ndarray)
            )

        described = jax.tree.map(describe, self._saved_state)
        leaves = jax.tree.leaves(described, is_leaf=_is_description)
        try:
            tree = pickler().dumps(described)
        except Exception:  # functions, which a process with the same places has itself
            tree = b""
        return (_places(self._saved_state), leaves, tree), [*map(bytes_of, memory)]

    def _make_room(self, description: Any) -> list[Any]:
        places, leaves, tree = description
        own = dict(zip(_places(self._saved_state), jax.tree.leaves(self._saved_state), strict=True))
        check_equal(
            {place: text_of(leaf) for place, leaf in own.items() if _is_array(leaf)},
            {place: leaf.text for place, leaf in zip(places, leaves, strict=True) if _is_description(leaf)},
        )
        if places == [*own]:
            self._structure = jax.tree.structure(self._saved_state)
        elif tree:
            self._structure = jax.tree.structure(pickle.loads(tree), is_leaf=_is_description)
        else:
            raise ValueError(f"rank {rank()}: a state with functions in it can't be sent: {places}")
        self._received = [
            (leaf, np.empty(leaf.shape, jnp.dtype(leaf.dtype)) if _is_description(leaf) else leaf)
            for leaf in leaves
        ]
        return [bytes_of(array) for leaf, array in self._received if _is_description(leaf)]

    def _fill(self) -> None:
        leaves = [leaf.made_of(value) if _is_description(leaf) else value for leaf, value in self._received]
        self._saved_state = jax.tree.unflatten(self._structure, leaves)
        del self._structure, self._received
        super()._fill()
