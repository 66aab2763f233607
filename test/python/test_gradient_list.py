"""Lists of gradients over the ranks: what TensorFlow's tapes and Keras share, here with NumPy's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import horovod as hvd
from horovod.common.process_sets import is_member
from horovod.framework.compression import NoneCompressor
from horovod.framework.gradient_list import EagerTensors, GradientList
from horovod.framework.reducer import Rules

NAMES = [f"list.{i}" for i in range(6)]
ROWS = 5


class Slices(NamedTuple):
    """A sparse gradient."""

    values: Any
    indices: Any


class Arrays(EagerTensors[Any]):
    """NumPy's arrays and slices of them; notes what is reduced together, and what is gathered."""

    def __init__(self) -> None:
        super().__init__(hvd._collectives)
        self.reduced: list[tuple[str, int]] = []
        self.gathered: list[str] = []

    def is_sparse(self, gradient: Any) -> bool:
        return isinstance(gradient, Slices)

    def dense(self, gradient: Any) -> Any:
        whole = np.zeros((ROWS, *gradient.values.shape[1:]), gradient.values.dtype)
        np.add.at(whole, gradient.indices, gradient.values)
        return whole

    def scale(self, gradient: Any, factor: float) -> Any:
        if isinstance(gradient, Slices):
            return gradient._replace(values=gradient.values * factor)
        return super().scale(gradient, factor)

    def reduce(self, groups: Any, names: Sequence[str], rules: Rules) -> Any:
        self.reduced += [(name, len(group)) for group, name in zip(groups, names, strict=True)]
        return super().reduce(groups, names, rules)

    def gather(self, gradients: Sequence[Any], names: Sequence[str], rules: Rules) -> Any:
        self.gathered += names
        size = rules.process_set.size() if rules.op == hvd.Average else 1
        return [
            Slices(hvd.allgather(g.values, f"{name}.values") / size, hvd.allgather(g.indices, f"{name}.rows"))
            for g, name in zip(gradients, names, strict=True)
        ]


RULES = Rules(hvd.Average, (1.0, 1.0), NoneCompressor, hvd.global_process_set, True)


def own(place: int, rank: int) -> Any:
    """Shapes differ by place, and one type; None at one place."""
    if place == 2:
        return None
    dtype = "float64" if place == 1 else "float32"
    return (np.arange(place + 1.0) + 10 * rank + place).astype(dtype)


def lists(rank: int) -> list[Any]:
    return [own(place, rank) for place in range(len(NAMES))]


def mean(size: int, place: int) -> Any:
    return np.mean([own(place, rank) for rank in range(size)], axis=0)


def check(outcome: list[Any], rank: int, size: int, factor: float = 1.0, local: tuple[int, ...] = ()) -> None:
    assert len(outcome) == len(NAMES) and outcome[2] is None
    for place in (0, 1, 3, 4, 5):
        wanted = own(place, rank) / size if place in local else mean(size, place)
        np.testing.assert_allclose(outcome[place], factor * wanted, rtol=1e-3)
        assert outcome[place].dtype == own(place, rank).dtype


@pytest.mark.parametrize(
    ("groups", "together"),
    [
        (None, {0: 1, 1: 1, 3: 1, 4: 1, 5: 1}),
        (2, {0: 3, 4: 2}),
        (1, {0: 5}),
        (99, {0: 1, 1: 1, 3: 1, 4: 1, 5: 1}),
        ([[3, 0], [2], [4, 5]], {3: 2, 4: 2, 1: 1}),
    ],
)
def test_groups(groups: Any, together: dict[int, int], rank: int, size: int) -> None:
    arrays = Arrays()
    check(GradientList(arrays, NAMES, RULES, groups)(lists(rank)), rank, size)
    assert arrays.reduced == [(NAMES[place], count) for place, count in together.items()]


def test_the_given_list_and_its_arrays_stay_as_they_are(rank: int) -> None:
    given = lists(rank)
    kept = list(given)
    GradientList(Arrays(), NAMES, RULES)(given)
    assert all(one is other for one, other in zip(given, kept, strict=True))
    for place in (0, 1, 3, 4, 5):
        np.testing.assert_array_equal(given[place], own(place, rank))


def test_factors(rank: int, size: int) -> None:
    halved = replace(RULES, factors=(0.5, 2.0))  # of gradient_predivide_factor=2
    check(GradientList(Arrays(), NAMES, halved)(lists(rank)), rank, size)
    check(GradientList(Arrays(), NAMES, replace(RULES, op=hvd.Sum))(lists(rank)), rank, size, size)
    passes = GradientList(Arrays(), NAMES, RULES, local=[3], scale=0.25)
    check(passes(lists(rank)), rank, size, 0.25, (3,))


def test_compression(rank: int, size: int) -> None:
    sent = []

    class Halves(hvd.Compression.fp16):
        @staticmethod
        def compress(tensor: Any) -> Any:
            sent.append(tensor.dtype)
            return hvd.Compression.fp16.compress(tensor)

    check(GradientList(Arrays(), NAMES, replace(RULES, compression=Halves), 1)(lists(rank)), rank, size)
    assert sorted(map(str, sent)) == ["float32"] * 4 + ["float64"]


def test_local_parameters(rank: int, size: int) -> None:
    arrays = Arrays()
    check(GradientList(arrays, NAMES, RULES, [[0, 1, 3]], local=[1, 4])(lists(rank)), rank, size, 1, (1, 4))
    assert arrays.reduced == [("list.0", 2), ("list.5", 1)]
    unscaled = GradientList(arrays, NAMES, RULES, local=[1], scale_local=False)(lists(rank))
    np.testing.assert_array_equal(unscaled[1], own(1, rank))


def slices(rank: int) -> Slices:
    return Slices(np.full((rank + 1, 2), rank + 1.0), np.arange(rank + 1) % ROWS)


def whole(size: int) -> Any:
    return sum(Arrays().dense(slices(rank)) for rank in range(size)) / size


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_sparse_gradients(scale: float, rank: int, size: int) -> None:
    arrays = Arrays()
    together = GradientList(arrays, NAMES[:3], RULES, 1, scale=scale)
    first, second, third = together([slices(rank), own(1, rank), None])
    assert third is None and isinstance(first, Slices) and len(first.indices) == size * (size + 1) // 2
    np.testing.assert_allclose(arrays.dense(first), scale * whole(size), rtol=1e-6)
    np.testing.assert_allclose(second, scale * mean(size, 1), rtol=1e-6)
    assert arrays.gathered == ["list.0"] and arrays.reduced == [("list.1", 1)]


def test_sparse_gradients_as_dense(rank: int, size: int) -> None:
    arrays = Arrays()
    dense = GradientList(arrays, NAMES[:2], replace(RULES, sparse_as_dense=True), 1)
    first, second = dense([slices(rank), own(1, rank)])
    np.testing.assert_allclose(first, whole(size), rtol=1e-6)
    np.testing.assert_allclose(second, mean(size, 1), rtol=1e-6)
    assert arrays.reduced == [("list.0", 2)] and not arrays.gathered


def test_sparse_gradients_of_local_parameters(rank: int, size: int) -> None:
    (local,) = GradientList(Arrays(), NAMES[:1], RULES, local=[0])([slices(rank)])
    assert isinstance(local, Slices)
    np.testing.assert_allclose(local.values, slices(rank).values / size)


def test_a_process_set(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    first = hvd.add_process_set([0]) if size > 1 else hvd.global_process_set
    arrays = Arrays()
    rules = replace(RULES, process_set=first, member=is_member(first))
    outcome = GradientList(arrays, NAMES, rules, local=[4], scale=0.5)(lists(rank))
    for place in (0, 1, 3, 4, 5):
        np.testing.assert_allclose(outcome[place], 0.5 * own(place, rank))
    assert bool(arrays.reduced) == (rank == 0)
    if size > 1:
        hvd.remove_process_set(first)


def test_nothing_to_reduce() -> None:
    for groups in (None, 2):
        assert GradientList(Arrays(), NAMES[:2], RULES, groups)([None, None]) == [None, None]
    assert GradientList(Arrays(), [], RULES)([]) == []


def test_another_number_of_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match="1 gradients were given for 6 parameters"):
        GradientList(Arrays(), NAMES, RULES)([None])


def test_ranks_that_disagree(rank: int, size: int) -> None:
    if size < 2:
        pytest.skip("several ranks show it")
    together = GradientList(Arrays(), NAMES[:2], RULES)
    with pytest.raises(hvd.HorovodInternalError, match=r"list\.0"):
        together([np.zeros(rank + 1), np.zeros(3)])
    outcome = together([np.zeros(1), np.ones(3)])  # nothing is in flight any more
    np.testing.assert_array_equal(outcome[1], np.ones(3))
