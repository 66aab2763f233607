"""Plain `hvd` on other frameworks' arrays: real ones where installed, and stand-ins for what they offer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import horovod as hvd


class Converted:
    """A stand-in for what NumPy reads by `__array__`: a variable, or bfloat16 of any framework."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.array, dtype)


class Exported:
    """A stand-in for what NumPy reads by DLPack only."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def stand_in(kind: Any) -> Any:
    return lambda values, dtype: kind(np.array(values, dtype))


def of_jax() -> Any:
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    return lambda values, dtype: jnp.asarray(np.array(values, dtype))


def of_tensorflow() -> Any:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    return lambda values, dtype: tensorflow.constant(np.array(values, dtype))


def of_torch() -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return lambda values, dtype: torch.tensor(values, dtype=getattr(torch, dtype))


FRAMEWORKS = {
    "converted": lambda: stand_in(Converted),
    "exported": lambda: stand_in(Exported),
    "jax": of_jax,
    "tensorflow": of_tensorflow,
    "torch": of_torch,
}


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make(framework: str) -> Any:
    return FRAMEWORKS[framework]()


@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "bfloat16", "float32"])
def test_operations(framework: str, make: Any, dtype: str, rank: int, size: int) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 without it")
        if framework in ("exported", "torch"):
            pytest.skip("NumPy's DLPack and PyTorch's `__array__` have no bfloat16")
    array = make([[1, 0], [rank, 1]], dtype)
    own = np.array([[1, 0], [rank, 1]], dtype).astype(float)
    everybody = [np.array([[1, 0], [each, 1]], dtype).astype(float) for each in range(size)]
    for result, expected in (
        (hvd.allreduce(array, op=hvd.Max), np.maximum.reduce(everybody)),
        (hvd.grouped_allreduce([array, array], op=hvd.Min)[1], np.minimum.reduce(everybody)),
        (hvd.synchronize(hvd.allgather_async(array)), np.concatenate(everybody)),
        (hvd.broadcast(array, size - 1), everybody[-1]),
        (hvd.alltoall(array, splits=[0] * (size - 1) + [2])[0], [*everybody] if rank == size - 1 else []),
    ):
        assert type(result) is np.ndarray and result.dtype == dtype
        np.testing.assert_array_equal(result.astype(float), np.reshape(expected, result.shape))
    np.testing.assert_array_equal(np.asarray(as_plain(array), float), own)


def as_plain(array: Any) -> Any:
    return array.array if isinstance(array, Exported) else array


@pytest.mark.parametrize("dtype", ["int32", "float16", "float32", "float64"])
def test_compression(make: Any, dtype: str, size: int) -> None:
    result = hvd.allreduce(make([1, 1.5], dtype), compression=hvd.Compression.fp16, op=hvd.Sum)
    assert result.dtype == dtype or dtype == "float64"  # which JAX does not have unless asked to
    np.testing.assert_array_equal(result, np.array([1, 1.5], dtype) * size)


def test_a_scalar(make: Any, size: int) -> None:
    result = hvd.allreduce(make(2, "float32"), op=hvd.Sum)
    assert result.shape == () and result == 2 * size


def test_splits(make: Any, size: int) -> None:
    if make.__closure__ and make.__closure__[0].cell_contents in (Converted, Exported):
        pytest.skip("splits are what has tolist(), or a sequence")
    rows, received = hvd.alltoall(np.ones(size), splits=make([1] * size, "int32"))
    assert (rows.shape, received.tolist()) == ((size,), [1] * size)


def test_bfloat16_of_numpy(rank: int, size: int) -> None:
    """NumPy's own kind runs in all tests of collectives; here what is refused."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 without it")
    array = np.ones((2, 3), ml_dtypes.bfloat16)
    with pytest.raises(ValueError, match=r"allreduce: tensor 0 \(ndarray\) can't be reached as dense memory"):
        hvd.allreduce_(array.T)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="is read-only"):
        hvd.allreduce_(array)
    with pytest.raises(ValueError, match=r"allreduce: tensor 0 \(ndarray\)"):
        hvd.allreduce(np.ones(2, ml_dtypes.int4))
    with pytest.raises(ValueError, match="elements of type '2x'"):
        hvd.allreduce(np.ones(2, "V2"))


# -- what has no values ------------------------------------------------------------------------------


def symbolic(module: str) -> Any:
    """A stand-in for a tensor of a function that the framework traces."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a symbolic tensor has no values.\nMore lines.")

    return type("Symbol", (), {"__module__": module, "__array__": refuse, "__dlpack__": refuse})()


ASKED = {
    "allreduce": lambda tensor: hvd.allreduce(tensor),
    "compressed": lambda tensor: hvd.allreduce(tensor, compression=hvd.Compression.fp16),
    "allgather_async": lambda tensor: hvd.allgather_async(tensor),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_the_package_for_what_has_no_values(ask: Any) -> None:
    for framework in ("tensorflow", "keras", "mxnet", "jax"):
        with pytest.raises(ValueError, match=f"tensor has no values; .*horovod.{framework}") as error:
            ask(symbolic(f"{framework}.some.module"))
        assert "More lines" not in str(error.value)
    with pytest.raises(ValueError, match=r"^Symbol can't be read as a NumPy array: a symbolic .* no values$"):
        ask(symbolic("other"))


def test_differentiated_by_torch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(ValueError, match=r"requires grad.*; `import horovod\.torch as hvd` takes it"):
        hvd.allreduce(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_traced_by_jax(ask: Any) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with pytest.raises(ValueError, match=r"Tracer can't be read as a NumPy array: .*horovod\.jax"):
        jax.jit(ask)(jax.numpy.ones(2))
    with pytest.raises(ValueError, match=r"horovod\.jax"):
        jax.grad(lambda x: ask(x).sum())(jax.numpy.ones(2))


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_traced_by_tensorflow(ask: Any) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    with pytest.raises(ValueError, match=r"Tensor can't be read as a NumPy array: .*horovod\.tensorflow"):
        tensorflow.function(ask, autograph=False)(tensorflow.ones(2))


def test_variables_of_tensorflow(size: int) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    variable = tensorflow.Variable([1.0, 2.0])
    np.testing.assert_array_equal(hvd.allreduce(variable, op=hvd.Sum), [size, 2.0 * size])
    for ask in (hvd.allreduce, hvd.allreduce_, hvd.allgather):
        with pytest.raises(ValueError, match=r"tensor 0 \(.*elements of type"):
            ask(tensorflow.constant(["text"]))


@pytest.mark.parametrize("name", ["jax", "tensorflow"])
def test_immutable_arrays(name: str) -> None:
    """Also of bfloat16, for which the buffer protocol says less."""
    make = FRAMEWORKS[name]()
    for dtype in ("float32", "bfloat16"):
        array = make([1, 2], dtype)
        with pytest.raises(ValueError, match=r"allreduce: tensor 0 .* is read-only"):
            hvd.allreduce_(array)
        np.testing.assert_array_equal(np.asarray(array).astype(float), [1, 2])


def test_an_array_of_the_host_is_asked_once(rank: int, size: int) -> None:
    """Only one on a device is asked again, with a stream."""

    class Counted:
        def __init__(self) -> None:
            self.array = np.ones(3, np.float32)
            self.calls: list[dict[str, Any]] = []

        def __dlpack__(self, **keywords: Any) -> Any:
            self.calls.append(keywords)
            return self.array.__dlpack__(**keywords)

    counted = Counted()
    hvd.allreduce_(counted, op=hvd.Sum, name="counted")
    assert list(counted.array) == [size] * 3
    assert all("stream" not in keywords for keywords in counted.calls)
    assert sum("max_version" in keywords for keywords in counted.calls) == 1
