"""What all frameworks share, by one body: values, a thousand in flight, process sets, bad input."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import horovod
from horovod.framework.arrays import CopiedArrays
from horovod.framework.collectives import Collectives

COUNT = 1000
on_several_ranks = pytest.mark.skipif(horovod.size() == 1, reason="one rank can't disagree with itself")


class NumPy:
    """A framework: how it makes, reads and compiles, and its exceptions."""

    package = "horovod"
    disagree: Any = horovod.HorovodInternalError  # the ranks' requests don't fit together
    refused: Any = ValueError  # this rank's request
    no_tensor: type[Exception] = ValueError  # strings

    def __init__(self) -> None:
        self.hvd: Any = importlib.import_module(self.package)

    def array(self, values: Any, dtype: str = "float32") -> Any:
        return np.array(values, dtype)

    def numpy(self, array: Any) -> Any:
        """Waits for it, which is where some frameworks raise."""
        return np.asarray(array)

    def forms(self) -> dict[str, Callable[[Any], Any]]:
        """The ways in which a function of arrays runs."""
        return {"eager": lambda function: function}

    def sums(self, numbers: Sequence[int]) -> list[float]:
        """Over the ranks, of an array for each number, all in flight at once, submitted in this order."""
        handles = [
            self.hvd.allreduce_async(self.array([i]), name=f"sum.{i}", op=horovod.Sum) for i in numbers
        ]
        return [float(self.hvd.synchronize(handle)[0]) for handle in handles]


class Box:
    """An array that the engine can't reach."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __getitem__(self, rows: Any) -> Box:
        return Box(self.values[rows])

    def __rmul__(self, factor: float) -> Box:
        return Box(self.values * factor)

    def __float__(self) -> float:
        return float(self.values)


class Boxes(CopiedArrays[Box]):
    def values(self, array: Box) -> Any:
        return array.values

    def array(self, values: Any, like: Box) -> Box:
        return Box(values)


class Copied(NumPy):
    """How a new framework begins."""

    no_tensor = AttributeError

    def __init__(self) -> None:
        own: Collectives[Box] = Collectives(Boxes())
        functions = {name: getattr(own, name, member) for name, member in vars(horovod).items()}
        self.hvd = SimpleNamespace(**functions)

    def array(self, values: Any, dtype: str = "float32") -> Any:
        return Box(super().array(values, dtype))

    def numpy(self, array: Any) -> Any:
        return array.values


class Torch(NumPy):
    package = "horovod.torch"
    no_tensor = TypeError

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        super().__init__()

    def array(self, values: Any, dtype: str = "float32") -> Any:
        return self.torch.tensor(values, dtype=getattr(self.torch, dtype))


class TensorFlow(NumPy):
    package = "horovod.tensorflow"

    def __init__(self) -> None:
        self.tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
        super().__init__()
        errors = self.tf.errors
        self.disagree, self.refused = errors.FailedPreconditionError, errors.InvalidArgumentError
        self.no_tensor = errors.InvalidArgumentError

    def array(self, values: Any, dtype: str = "float32") -> Any:
        return self.tf.constant(values, dtype)

    def forms(self) -> dict[str, Callable[[Any], Any]]:
        return {**super().forms(), "tf.function": self.tf.function}

    def sums(self, numbers: Sequence[int]) -> list[float]:
        library = importlib.import_module("horovod.tensorflow.library")
        if not library.asynchronous:
            pytest.skip("before TensorFlow 2.13 kernels block")

        @self.tf.function
        def all_of_them(x: Any) -> Any:
            scaled = self.tf.unstack(x * self.tf.constant(numbers, "float32"))  # fewer nodes to trace
            each = zip(numbers, scaled, strict=True)
            return self.tf.stack([self.hvd.allreduce(y, name=f"sum.{i}", op=horovod.Sum) for i, y in each])

        return all_of_them(self.tf.constant(1.0)).numpy().tolist()  # type: ignore[no-any-return]


class JAX(NumPy):
    package = "horovod.jax"

    def __init__(self) -> None:
        self.jax = pytest.importorskip("jax", "0.6", reason="JAX 0.6 is not installed")
        super().__init__()
        # A small program that has run before runs in the calling thread, and its errors are ValueErrors.
        self.disagree = self.refused = (self.jax.errors.JaxRuntimeError, ValueError)
        self.no_tensor = TypeError

    def array(self, values: Any, dtype: str = "float32") -> Any:
        return self.jax.numpy.asarray(values, dtype)

    def forms(self) -> dict[str, Callable[[Any], Any]]:
        return {**super().forms(), "jit": self.jax.jit}

    def sums(self, numbers: Sequence[int]) -> list[float]:
        """By one program on all ranks, as JAX demands; XLA runs it in an order of its own on each."""

        @self.jax.jit
        def all_of_them(arrays: Any) -> Any:
            return [self.hvd.allreduce(x, op=horovod.Sum) for x in arrays]

        one = self.array(1.0)
        sums = dict(enumerate(all_of_them([one * i for i in range(len(numbers))])))
        return [float(sums[i]) for i in numbers]


class MXNet(NumPy):
    package = "horovod.mxnet"

    def __init__(self) -> None:
        self.mx = pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)
        super().__init__()
        self.disagree, self.refused = self.mx.base.MXNetError, (self.mx.base.MXNetError, ValueError)

    def array(self, values: Any, dtype: str = "float32") -> Any:
        return self.mx.np.array(values, dtype)

    def numpy(self, array: Any) -> Any:
        return array.asnumpy()

    def sums(self, numbers: Sequence[int]) -> list[float]:
        made = [self.hvd.allreduce(self.array([i]), name=f"sum.{i}", op=horovod.Sum) for i in numbers]
        return [float(each.asnumpy()[0]) for each in made]


COMPILED = [pytest.param(kind, marks=pytest.mark.two_or_three) for kind in (TensorFlow, JAX)]


@pytest.fixture(params=[NumPy, Copied, Torch, *COMPILED, MXNet], ids=lambda kind: kind.__name__)
def framework(request: pytest.FixtureRequest) -> Any:
    return request.param()


def own(rank: int, rows: int) -> Any:
    return np.arange(2 * rows, dtype=np.float32).reshape(rows, 2) + 10 * rank


def test_values(framework: Any, rank: int, size: int) -> None:
    hvd, everything = framework.hvd, np.stack([own(r, size) for r in range(size)])
    expected: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "average": (hvd.allreduce, everything.mean(0)),
        "sum": (lambda x: hvd.allreduce(x, op=horovod.Sum, name="sum"), everything.sum(0)),
        "min": (lambda x: hvd.allreduce(x, op=horovod.Min), everything.min(0)),
        "max": (lambda x: hvd.allreduce(x, op=horovod.Max), everything.max(0)),
        "product": (lambda x: hvd.allreduce(x, op=horovod.Product), everything.prod(0)),
        "factors": (
            lambda x: hvd.allreduce(x, op=horovod.Sum, prescale_factor=0.5, postscale_factor=3.0),
            everything.sum(0) * 1.5,
        ),
        "allgather": (hvd.allgather, np.concatenate(everything)),
        "broadcast": (lambda x: hvd.broadcast(x, size - 1, name="root"), everything[size - 1]),
        "reducescatter": (
            lambda x: hvd.reducescatter(x, op=horovod.Sum),
            everything.sum(0)[rank : rank + 1],
        ),
        "alltoall": (hvd.alltoall, everything[:, rank]),
        "group": (lambda x: hvd.grouped_allreduce([x, 2 * x])[1], 2 * everything.mean(0)),
    }
    for form, wrap in framework.forms().items():
        for name, (function, value) in expected.items():
            result = framework.numpy(wrap(function)(framework.array(own(rank, size))))
            np.testing.assert_allclose(result, value, rtol=1e-6, err_msg=f"{name}, {form}")


# Before and after the reduction; what float32 can't hold, too.
FACTORS = [(0.0, 1.0), (1.0, 0.0), (-0.0, 1.0), (1.0, -0.0), (0.0, 3.0), (math.inf, 1.0), (1.0, -math.inf)]
FACTORS += [(math.nan, 1.0), (1.0, math.nan), (1e-310, 1.0), (1.0, 1e-310), (1e300, 1.0), (1.0, 1e-42)]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_factors_do_what_they_say(framework: Any, rank: int, size: int, dtype: str) -> None:
    """As IEEE 754 has it: zeros of the right sign, and NaNs of zeros times infinity."""
    hvd, x = framework.hvd, np.array([[0.0, 1.0, -2.0, 3e-5, math.inf, 4.0]] * size, dtype)
    functions: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
        "allreduce": lambda y, how: hvd.allreduce(y, **how),
        "group": lambda y, how: hvd.grouped_allreduce([y, y], **how)[1],
        "reducescatter": lambda y, how: hvd.reducescatter(y, **how)[0],
    }
    cases = list(itertools.product(FACTORS, functions))

    def all_of_them(y: Any) -> list[Any]:
        """In one program: compiling one for each case takes most of the time."""
        return [
            functions[what](y, {"op": horovod.Sum, "prescale_factor": before, "postscale_factor": after})
            for (before, after), what in cases
        ]

    for form, wrap in framework.forms().items():
        results = wrap(all_of_them)(framework.array(x, dtype))
        for ((before, after), what), array in zip(cases, results, strict=True):
            with np.errstate(all="ignore"):
                scaled = (x[0].astype("float64") * before).astype(dtype)
                expected = ((scaled * size).astype("float64") * after).astype(dtype)
            result, case = framework.numpy(array).reshape(-1, 6)[0], f"{what}, {before} and {after}, {form}"
            np.testing.assert_allclose(result, expected, rtol=1e-3, err_msg=case)
            numbers = ~np.isnan(expected)
            assert (np.signbit(result) == np.signbit(expected))[numbers].all(), (case, result)


def test_the_old_average_warns_at_the_line_of_the_program(framework: Any, size: int) -> None:
    """There it is shown; elsewhere Python hides a DeprecationWarning."""
    hvd, x = framework.hvd, framework.array([1.0])
    if framework.package == "horovod.jax":
        pytest.skip("horovod.jax has no average")
    for function, tensors in ((hvd.allreduce, x), (hvd.grouped_allreduce, [x])):
        with pytest.warns(DeprecationWarning, match="pass op=") as caught:
            (total,) = framework.numpy(function(tensors, average=False)[0]).ravel()
        assert (total, caught[0].filename) == (size, __file__)


def test_a_thousand_in_flight_in_another_order_on_every_rank(framework: Any, rank: int, size: int) -> None:
    order = [int(i) for i in np.random.default_rng(rank).permutation(COUNT)]
    assert framework.sums(order) == [i * size for i in order]


@on_several_ranks
def test_a_process_set(framework: Any, rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    hvd, last = framework.hvd, framework.hvd.add_process_set([size - 1])
    x = framework.array([rank])
    if rank == size - 1:
        assert framework.numpy(hvd.allreduce(x, op=horovod.Sum, process_set=last)).tolist() == [rank]
    else:
        with pytest.raises(framework.refused, match="not a member"):
            hvd.allreduce(x, process_set=last)
    assert hvd.remove_process_set(last)


@on_several_ranks
def test_ranks_that_disagree(framework: Any, rank: int, size: int) -> None:
    """One error on every rank, which says who has what; the job goes on, and the name is free again."""
    hvd, array, other = framework.hvd, framework.array, rank == size - 1
    x = array(np.ones(4))
    cases: dict[str, Callable[[Any], Any]] = {
        "shape": lambda y: hvd.allreduce(y[: 3 + other], name="differ"),
        "type": lambda y: hvd.allreduce(array(np.ones(4), ["float32", "int32"][other]), name="differ"),
        "reduction": lambda y: hvd.allreduce(y, op=[horovod.Sum, horovod.Max][other], name="differ"),
        "factor": lambda y: hvd.allreduce(y, prescale_factor=1.0 + other, name="differ"),
        "root": lambda y: hvd.broadcast(y, rank, name="differ"),
    }
    for form, wrap in framework.forms().items():
        for what, function in cases.items():
            with pytest.raises(framework.disagree, match=rf"(?s)differ.*disagree on .*{what}.*: ranks? 0"):
                framework.numpy(wrap(function)(x))
            assert framework.numpy(hvd.allreduce(x, name="differ")).tolist() == [1] * 4, (form, what)


def test_what_no_rank_can_send(framework: Any, size: int) -> None:
    hvd, x = framework.hvd, framework.array([1.0])
    scalar = framework.array(1.0)
    for function in (hvd.allgather, hvd.reducescatter, hvd.alltoall):
        with pytest.raises(framework.refused, match="dimensions"):
            framework.numpy(function(scalar))
    with pytest.raises(framework.no_tensor):
        hvd.allreduce(np.array(["text"]))
    with pytest.raises(framework.refused, match="99"):
        framework.numpy(hvd.broadcast(x, 99))
    if framework.package != "horovod.jax":  # it takes none
        with pytest.raises(framework.refused, match="0 splits for"):
            framework.numpy(hvd.alltoall(x, splits=np.array([], "int64"))[0])
    with pytest.raises(ValueError, match="op=Average and op=Sum only"):
        hvd.reducescatter(x, op=horovod.Max)
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(x, process_set=horovod.ProcessSet([0]))
    assert framework.numpy(hvd.allreduce(x)).tolist() == [1]
