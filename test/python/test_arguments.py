"""What a call makes of arguments that are not what they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod import _core
from horovod.framework.requests import ALLTOALL


class NoNumber:
    def __float__(self) -> float:
        raise RuntimeError("no single number")


@pytest.mark.parametrize("factor", ["prescale_factor", "postscale_factor"])
@pytest.mark.parametrize("value", [[1.0, 2.0], np.ones(2), "2", None, NoNumber()])
def test_factor_that_is_no_number(factor: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{factor} must be a number, not .*{type(value).__name__}"):
        hvd.allreduce(np.ones(3), **{factor: value})


def test_factor_of_one_element(kind: Any, size: int) -> None:
    result = kind.hvd.allreduce(kind.array([1.0]), op=hvd.Sum, prescale_factor=kind.array(2.0))
    np.testing.assert_allclose(kind.numpy(result), 2.0 * size)


@pytest.mark.parametrize("name", [7, 1.5, b"bytes", ["list"]])
def test_name_that_is_no_text(name: Any, kind: Any) -> None:
    """Also beside another mistake, and in the form that is written out."""
    with pytest.raises(TypeError, match=r"^name must be a str or None, not"):
        kind.hvd.allreduce(kind.array([1.0]), name=name)
    with pytest.raises(TypeError, match=r"^name must be a str or None, not"):
        kind.hvd.allreduce_async_(kind.array([1.0]), name=name)
    with pytest.raises(TypeError, match=r"^prescale_factor must be a number, not"):
        kind.hvd.allreduce_async_(kind.array([1.0]), name=name, prescale_factor="2")


def test_name_with_a_null_character(kind: Any) -> None:
    """It would end the name in the engine: names that differ only after it would be the same."""
    with pytest.raises(ValueError, match=r"'a\\x00b' contains a null character"):
        kind.hvd.broadcast_(kind.array([1.0]), 0, name="a\0b")


def test_splits_that_are_no_numbers(size: int) -> None:
    with pytest.raises(TypeError, match="str"):
        _core.run(_core.describe(ALLTOALL), None, (np.ones(3),), splits=["1"] * size)


def misaligned(dtype: str) -> Any:
    """2, 2, 2, at an odd address."""
    values = np.full(3, 2, dtype)
    room = np.zeros(values.nbytes + 1, np.uint8)
    room[1:] = values.view(np.uint8)
    array = room[1:].view(dtype)
    assert array.flags.c_contiguous and array.flags.aligned == (array.itemsize == 1)
    return array


@pytest.mark.parametrize("dtype", ["int8", "float16", "int32", "float64", "complex64"])
def test_misaligned_array(dtype: str, rank: int, size: int) -> None:
    result = hvd.allreduce(misaligned(dtype), op=hvd.Sum)
    np.testing.assert_allclose(result, 2 * size)
    np.testing.assert_allclose(hvd.allgather(misaligned(dtype)), np.full(3 * size, 2))
    array = misaligned(dtype)
    if dtype == "int8":
        np.testing.assert_allclose(hvd.broadcast_(array, 0), 2)
        return
    with pytest.raises(ValueError, match="is not aligned to the size of its elements; pass a copy"):
        hvd.broadcast_(array, 0)


def test_misaligned_tensor(size: int) -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd

    tensor = torch.frombuffer(bytearray(9), dtype=torch.float32, offset=1)
    np.testing.assert_allclose(hvd.allreduce(tensor), 0)
    with pytest.raises(ValueError, match="aligned"):
        hvd.allreduce_(tensor)
