"""What MetricAverageCallback averages: whatever metrics of Keras and callbacks of others return."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

from horovod._keras.metrics import averaged

Pair = collections.namedtuple("Pair", "first second")


def check(found: Any, expected: Any) -> None:
    """Equal in value and type."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_numbers_become_floats(rank: int, size: int) -> None:
    mean = (size - 1) / 2
    kinds = [float, int, np.float16, np.float32, np.int64, np.array, lambda x: np.array(x, "i1")]
    for kind in kinds:
        check(averaged({"m": kind(rank)})["m"], mean)
    check(averaged({"m": rank == 0})["m"], 1 / size)
    check(averaged({"m": complex(rank, 1)})["m"], complex(mean, 1))
    check(averaged({"m": np.int64(2**60)})["m"], 2.0**60)
    assert np.isnan(averaged({"m": np.nan})["m"])


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1,), (0,), (2, 0, 3), (1, 1)])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "c16"])
def test_arrays_keep_shape_and_type(shape: tuple[int, ...], kind: str, rank: int, size: int) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    found = averaged({"a": array + rank, "b": array.T})
    check(found["a"], (array + (size - 1) / 2).astype(kind))
    check(found["b"], array.T)


def test_other_arrays_become_those_of_floats(rank: int, size: int) -> None:
    check(averaged({"m": np.array([rank, 2])})["m"], np.array([(size - 1) / 2, 2.0]))
    check(averaged({"m": np.array([rank == 0, True])})["m"], np.array([1 / size, 1.0]))
    check(averaged({"m": np.full(2, 60000, "f2")})["m"], np.full(2, 60000, "f2"))


def test_nested_metrics(rank: int, size: int) -> None:
    mean = (size - 1) / 2
    metrics = {"r": {"b": [rank, {"x": 1.0}], 1: (rank, "text")}, "r.b": 5, "p": Pair(rank, None), "e": {}}
    found = averaged(metrics)
    assert found == {
        "r": {"b": [mean, {"x": 1.0}], 1: (mean, "text")},
        "r.b": 5.0,
        "p": (mean, None),
        "e": {},
    }
    assert isinstance(found["p"], Pair)
    assert list(found) == list(metrics)


def test_what_is_no_number_stays(rank: int) -> None:
    own = object()
    metrics = {"n": None, "t": f"rank {rank}", "b": b"x", "o": own, "s": np.array(["x"]), "m": 1}
    assert averaged(metrics) == metrics | {"m": 1.0}
    assert averaged({}) == {}


def test_tensors(rank: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.full((2,), float(rank)))
    check(averaged({"m": parameter})["m"], np.full(2, (size - 1) / 2, "f4"))
    check(
        averaged({"m": torch.tensor([rank, 1.0], dtype=torch.bfloat16)})["m"],
        np.array([(size - 1) / 2, 1], "f4"),
    )
    check(averaged({"m": torch.tensor(rank)})["m"], (size - 1) / 2)


@pytest.mark.parametrize(
    ("first", "others", "text"),
    [
        ({"loss": 1, "f1": 2}, {"loss": 1, "lr": 2}, "f1 of shape () and lr of shape ()"),
        ({"f1": np.zeros(3)}, {"f1": np.zeros(2)}, "f1 of shape (2,) and f1 of shape (3,)"),
        ({"f1": None}, {"f1": 0.5}, "f1 of shape ()"),
        ({"r": {"a": 1}}, {"r": {"b": 1}}, "r.a of shape () and r.b of shape ()"),
        ({}, {"f1": 0.5}, "f1 of shape ()"),
    ],
)
def test_ranks_with_other_metrics(first: Any, others: Any, text: str, rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("several ranks show it")
    with pytest.raises(ValueError) as caught:
        averaged(others if rank else first)
    assert str(caught.value).endswith(f"only one of the ranks 0 and 1 has {text}")
    check(averaged({"m": rank})["m"], (size - 1) / 2)


class Odd:
    """As a tensor that can't be read."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("unreadable")


def test_a_tensor_that_cannot_be_read() -> None:
    with pytest.raises(ValueError, match=r"can't average m\.x, a Odd: unreadable"):
        averaged({"m": {"x": Odd()}})
