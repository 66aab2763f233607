"""Names mean the same in every binding: None is no name, any text is one, and ranks whose operations under a
name differ all learn it at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import horovod


@pytest.fixture(autouse=True)
def _several_ranks(size: int) -> None:
    if size == 1:
        pytest.skip("one rank alone differs from none")


class NumPy:
    """The bindings have one face here: ``one``, ``group`` and ``gather`` wait, and return a number."""

    error: type[Exception] = horovod.HorovodInternalError

    def __init__(self) -> None:
        self.hvd, self.ones = self.load()

    def load(self) -> tuple[Any, Callable[[int], Any]]:
        return horovod, np.ones

    def number(self, array: Any) -> float:
        return float(np.asarray(array).sum())

    def one(self, name: str | None, length: int = 2) -> float:
        return self.number(self.hvd.allreduce(self.ones(length), op=self.hvd.Sum, name=name))

    def group(self, name: str | None, length: int = 2) -> float:
        arrays = [self.ones(length), self.ones(length)]
        return self.number(self.hvd.grouped_allreduce(arrays, op=self.hvd.Sum, name=name)[0])

    def gather(self, name: str | None) -> float:
        return self.number(self.hvd.allgather(self.ones(2), name=name))


class Torch(NumPy):
    def load(self) -> tuple[Any, Callable[[int], Any]]:
        return pytest.importorskip("horovod.torch"), pytest.importorskip("torch").ones


class TensorFlow(NumPy):
    def load(self) -> tuple[Any, Callable[[int], Any]]:
        tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
        self.error = tf.errors.FailedPreconditionError
        return pytest.importorskip("horovod.tensorflow"), lambda length: tf.ones([length])


class JAX(NumPy):
    def load(self) -> tuple[Any, Callable[[int], Any]]:
        jax = pytest.importorskip("jax", reason="JAX is not installed")
        self.error = jax.errors.JaxRuntimeError
        return pytest.importorskip("horovod.jax"), jax.numpy.ones

    def group(self, name: str | None, length: int = 2) -> float:
        arrays = [self.ones(length), self.ones(length)]
        return self.number(self.hvd.allreduce(arrays, op=self.hvd.Sum, name=name)[0])


class MXNet(NumPy):
    def load(self) -> tuple[Any, Callable[[int], Any]]:
        mx = pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)
        self.error = mx.base.MXNetError
        return pytest.importorskip("horovod.mxnet"), lambda length: mx.nd.ones((length,))

    def number(self, array: Any) -> float:
        return float(array.asnumpy().sum())


@pytest.fixture(params=[NumPy, Torch, TensorFlow, JAX, MXNet], ids=lambda binding: binding.__name__)
def binding(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.mark.parametrize("name", ["", " ", "noname.0", ".", "ä"])
def test_any_text_is_a_name(binding: Any, name: str, rank: int, size: int) -> None:
    """The error names what was given; without a name it has a number."""
    for reduce in (binding.one, binding.group):
        with pytest.raises(binding.error, match=f'allreduce "{name}": the ranks disagree on the shape'):
            reduce(name, length=2 + (rank == 0))
        with pytest.raises(binding.error, match=r'allreduce "\S*[.#]\d+": the ranks disagree on the shape'):
            reduce(None, length=2 + (rank == 0))
    assert binding.one(name) == binding.one(None) == 2 * size


@pytest.mark.parametrize("name", ["a", "", "weight.0"])
def test_a_group_is_another_operation(binding: Any, name: str, rank: int, size: int) -> None:
    for first, second in ((binding.one, binding.group), (binding.group, binding.one)):
        with pytest.raises(binding.error, match=r"ranks disagree on grouping: rank 0 has a (single|group)"):
            (second if rank else first)(name)
        assert binding.one(name) == binding.group(name) == 2 * size


def test_another_operation_of_that_name(binding: Any, rank: int, size: int) -> None:
    if isinstance(binding, MXNet):
        pytest.skip("its allgather waits for the engine itself, and raises what that raises")
    for _ in range(2):
        with pytest.raises(binding.error, match=r'"a": the ranks disagree on the operation: rank 0 has allr'):
            (binding.gather if rank else binding.one)("a")
        assert binding.one("a") == 2 * size


def test_unnamed_ones_that_differ(kind: Any, rank: int, size: int) -> None:
    """They are numbered together, so that no rank waits for a name that the others never use."""
    array = kind.array(np.ones(2))
    operations = (
        kind.hvd.allreduce,
        kind.hvd.allgather,
        lambda array: kind.hvd.grouped_allreduce([array])[0],
    )
    for other in operations[1:]:
        with pytest.raises(
            horovod.HorovodInternalError, match=r"the ranks disagree on (the operation|grouping)"
        ):
            (other if rank else operations[0])(array)
    assert kind.numpy(kind.hvd.allreduce(array, op=horovod.Sum)).tolist() == [size, size]


def test_a_name_like_the_engines_own(kind: Any, rank: int, size: int) -> None:
    """Submitted in another order on every rank, they never match."""
    for number in range(12):
        pairs = [(f"noname.{number}", 1.0), (None, 10.0), (f"noname.{number + 1}", 100.0)]
        handles = {}
        for i in range(3):
            name, value = pairs[(i + rank) % 3]
            handles[value] = kind.hvd.allreduce_async(kind.array([value]), op=horovod.Sum, name=name)
        for value, handle in handles.items():
            assert kind.numpy(kind.hvd.synchronize(handle)).tolist() == [size * value]


def test_sparse_beside_dense(rank: int, size: int) -> None:
    torch, hvd = pytest.importorskip("torch"), pytest.importorskip("horovod.torch")
    dense = torch.eye(3)
    for _ in range(2):
        with pytest.raises(horovod.HorovodInternalError, match=r'"g": the ranks disagree on the operation'):
            if rank:
                hvd.sparse_allreduce_async(dense.to_sparse(), "g", hvd.Sum)()
            else:
                hvd.allreduce(dense, name="g")
        assert hvd.sparse_allreduce_async(dense.to_sparse(), "g", hvd.Sum)().to_dense().sum() == 3 * size


def test_objects_under_an_empty_name(rank: int) -> None:
    assert horovod.broadcast_object(rank, root_rank=1, name="") == 1
    assert horovod.allgather_object(rank, name="")[1] == 1
