"""Every collective for every kind of array; the values are checked against sums done by hand."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import horovod as basics
from horovod import _core
from horovod.framework.requests import ALLGATHER

SHAPES = [(), (1,), (17,), (3, 5), (0,), (2, 0, 3), (70_001,)]


def values(shape: tuple[int, ...], rank: int, dtype: str = "float32") -> Any:
    numbers = (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 7 + rank * 3) % 5 + 1
    if dtype == "bool":
        return numbers > 2
    return numbers - 1j * (numbers % 3) if dtype.startswith("complex") else numbers


def all_values(shape: tuple[int, ...], size: int, dtype: str = "float32") -> Any:
    return np.stack([values(shape, rank, dtype) for rank in range(size)])


REDUCTIONS = {
    basics.Sum: lambda parts: parts.sum(0),
    basics.Average: lambda parts: parts.mean(0),
    basics.Min: lambda parts: parts.min(0),
    basics.Max: lambda parts: parts.max(0),
    basics.Product: lambda parts: parts.prod(0),
}


def is_impossible(dtype: str, op: int) -> bool:
    return op in {"bool": [basics.Average], "comp": [basics.Min, basics.Max]}.get(dtype[:4], [])


def check(kind: Any, result: Any, expected: Any, dtype: str) -> None:
    if dtype.startswith(("int", "uint")):
        expected = np.trunc(expected)
    if dtype == "bool":
        expected = np.asarray(expected, bool)
    tolerance = max(2.5 * kind.step(dtype), 1e-6) if "float" in dtype else 1e-6
    np.testing.assert_allclose(kind.numpy(result), expected, rtol=tolerance)


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_allreduce(kind: Any, shape: tuple[int, ...], op: int, rank: int, size: int) -> None:
    for dtype in kind.dtypes:
        tensor = kind.array(values(shape, rank, dtype), dtype)
        if is_impossible(dtype, op):
            with pytest.raises(ValueError, match=f"allreduce: there is no .* of {dtype}; what it has: "):
                kind.hvd.allreduce(tensor, op=op)
            continue
        result = kind.hvd.allreduce(tensor, op=op)
        assert result.dtype == tensor.dtype and tuple(result.shape) == shape
        check(kind, result, REDUCTIONS[op](all_values(shape, size, dtype)), dtype)
        check(kind, tensor, values(shape, rank, dtype), dtype)


def test_every_type_in_place(kind: Any, rank: int, size: int) -> None:
    tensors = {dtype: kind.array(values((9,), rank, dtype), dtype) for dtype in kind.dtypes}
    for dtype, tensor in tensors.items():
        assert kind.hvd.allreduce_(tensor, op=basics.Sum) is tensor
        check(kind, tensor, all_values((9,), size, dtype).sum(0), dtype)


def test_factors_of_types(kind: Any, rank: int, size: int) -> None:
    for dtype in kind.dtypes:
        tensor = kind.array(values((9,), rank, dtype), dtype)
        if dtype == "bool":
            with pytest.raises(ValueError, match="bool can't be multiplied by a factor"):
                kind.hvd.allreduce(tensor, op=basics.Sum, prescale_factor=2.0)
            continue
        result = kind.hvd.allreduce(tensor, op=basics.Sum, prescale_factor=4.0, postscale_factor=0.5)
        check(kind, result, all_values((9,), size, dtype).sum(0) * 2, dtype)


def test_allreduce_in_place(kind: Any, rank: int, size: int) -> None:
    tensor = kind.array(values((5, 4), rank))
    assert kind.hvd.allreduce_(tensor, name="in place", op=basics.Sum) is tensor
    check(kind, tensor, all_values((5, 4), size).sum(0), "float32")


def test_default_is_average(kind: Any, rank: int, size: int) -> None:
    result = kind.hvd.allreduce(kind.array([float(rank)]))
    check(kind, result, [(size - 1) / 2], "float32")


def test_old_spelling_of_average(kind: Any, rank: int, size: int) -> None:
    with pytest.warns(DeprecationWarning):
        result = kind.hvd.allreduce(kind.array([float(rank)]), average=False)
    check(kind, result, [size * (size - 1) / 2], "float32")
    with pytest.raises(ValueError, match="op"):
        kind.hvd.allreduce(kind.array([1.0]), average=True, op=basics.Sum)


def test_factors(kind: Any, rank: int, size: int) -> None:
    tensor = kind.array([rank + 1.0])
    result = kind.hvd.allreduce(tensor, op=basics.Sum, prescale_factor=0.5, postscale_factor=4.0)
    check(kind, result, [size * (size + 1)], "float32")


def test_async(kind: Any, rank: int, size: int) -> None:
    order = range(30) if rank % 2 else reversed(range(30))
    handles = {
        i: kind.hvd.allreduce_async(kind.array([float(i)]), name=f"a{i}", op=basics.Sum) for i in order
    }
    for i, handle in handles.items():
        check(kind, kind.hvd.synchronize(handle), [i * size], "float32")
        assert kind.hvd.poll(handle)
    assert kind.hvd.synchronize("no handle") is None


@pytest.mark.parametrize("in_place", [False, True])
def test_grouped_allreduce(kind: Any, in_place: bool, rank: int, size: int) -> None:
    tensors = [kind.array(values((n,), rank)) for n in (1, 0, 6)]
    call = kind.hvd.grouped_allreduce_ if in_place else kind.hvd.grouped_allreduce
    results = call(tensors, op=basics.Sum)
    for n, result in zip((1, 0, 6), results, strict=True):
        check(kind, result, all_values((n,), size).sum(0), "float32")


@pytest.mark.parametrize("in_place", [False, True])
def test_groups_of_all_types(kind: Any, in_place: bool, rank: int, size: int) -> None:
    tensors = [kind.array(values((5,), rank, dtype), dtype) for dtype in kind.dtypes]
    call = kind.hvd.grouped_allreduce_ if in_place else kind.hvd.grouped_allreduce
    results = call(tensors, op=basics.Sum)
    for dtype, result in zip(kind.dtypes, results, strict=True):
        check(kind, result, all_values((5,), size, dtype).sum(0), dtype)
    with pytest.raises(ValueError, match="allreduce: there is no average of bool"):
        call(tensors, op=basics.Average)


def test_grouped_allreduce_async(kind: Any, rank: int, size: int) -> None:
    handle = kind.hvd.grouped_allreduce_async([kind.array([1.0]), kind.array([2.0])], op=basics.Sum)
    first, second = kind.hvd.synchronize(handle)
    check(kind, first, [size], "float32")
    check(kind, second, [2 * size], "float32")


@pytest.mark.parametrize("rows", [lambda rank: 3, lambda rank: rank, lambda rank: 2 * (rank % 2)])
@pytest.mark.parametrize("width", [(), (4,), (2, 3), (0,)])
def test_allgather(kind: Any, rows: Any, width: tuple[int, ...], rank: int, size: int) -> None:
    for dtype in kind.dtypes:
        tensor = kind.array(values((rows(rank), *width), rank, dtype), dtype)
        result = kind.hvd.allgather(tensor)
        assert result.dtype == tensor.dtype
        expected = np.concatenate([values((rows(r), *width), r, dtype) for r in range(size)])
        check(kind, result, expected, dtype)


def test_allgather_result_is_writable_and_lives_on(kind: Any, size: int) -> None:
    result = kind.hvd.allgather(kind.array([1.0, 2.0]))
    result += 1
    check(kind, result, [2.0, 3.0] * size, "float32")


def test_grouped_allgather(kind: Any, rank: int, size: int) -> None:
    first, second = kind.hvd.grouped_allgather([kind.array([[rank]]), kind.array([1.0, 2.0])])
    check(kind, first, [[r] for r in range(size)], "float32")
    check(kind, second, [1.0, 2.0] * size, "float32")


@pytest.mark.parametrize("in_place", [False, True])
def test_broadcast(kind: Any, in_place: bool, rank: int, size: int) -> None:
    for root in range(size):
        for dtype in kind.dtypes:
            tensor = kind.array(values((4, 3), rank, dtype), dtype)
            call = kind.hvd.broadcast_ if in_place else kind.hvd.broadcast
            check(kind, call(tensor, root), values((4, 3), root, dtype), dtype)


def test_broadcast_async(kind: Any, rank: int, size: int) -> None:
    first = kind.hvd.broadcast_async(kind.array([float(rank)]), size - 1)
    tensor = kind.array([float(rank)])
    second = kind.hvd.broadcast_async_(tensor, 0)
    check(kind, kind.hvd.synchronize(first), [size - 1], "float32")
    check(kind, kind.hvd.synchronize(second), [0], "float32")


def test_numbers_beyond_the_engine() -> None:
    """They are not cut to what is left of them: 2**32 would be rank 0."""
    for number in (2**31, 2**32, -(2**40), 2**70):
        with pytest.raises(ValueError, match=f"{number} is neither a rank"):
            basics.broadcast(np.ones(1), number)
        with pytest.raises(ValueError, match=f"{number} is neither a rank"):
            basics.allreduce(np.ones(1), op=number)
    with pytest.raises(TypeError):
        basics.broadcast(np.ones(1), 0.0)  # type: ignore[arg-type]


def test_strided_input(kind: Any, rank: int, size: int) -> None:
    matrix = kind.array(np.arange(12).reshape(3, 4))
    check(kind, kind.hvd.allreduce(matrix.T, op=basics.Sum), np.arange(12).reshape(3, 4).T * size, "float32")
    with pytest.raises(ValueError, match="contiguous"):
        kind.hvd.allreduce_(matrix.T, op=basics.Sum)
    check(kind, kind.hvd.allgather(matrix[:, 1:2]), np.tile([[1], [5], [9]], (size, 1)), "float32")


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", ">f4", "i4,f4"])
def test_unknown_element_type(dtype: str) -> None:
    array = np.zeros(2, dtype)
    with pytest.raises(ValueError, match=r"allreduce: tensor 0 .* type '.*bytes;.* float32"):
        basics.allreduce_(array)
    with pytest.raises(ValueError, match=r"allgather: tensor 1 .* type '"):
        basics.grouped_allgather([np.ones(1), array])


def test_unknown_element_type_of_torch() -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd

    with pytest.raises(ValueError, match=r"allreduce: tensor 0 .* of type float8_e8m0fnu;.* float32"):
        hvd.allreduce(torch.empty(2, dtype=torch.float8_e8m0fnu))


def test_no_tensor_of_torch() -> None:
    pytest.importorskip("torch")
    import horovod.torch as hvd

    with pytest.raises(TypeError, match="takes tensors of PyTorch, not list"):
        hvd.allreduce([1.0])
    with pytest.raises(ValueError, match=r"allgather: tensor 0 \(list\) is no tensor"):
        hvd.allgather([1.0])


def test_conjugate_of_torch(rank: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd

    tensor = torch.tensor([1 + 2j * rank])
    assert hvd.allreduce(tensor.conj(), op=hvd.Sum).item() == size - 1j * size * (size - 1)
    assert hvd.allgather(tensor.conj()).tolist() == [1 - 2j * r for r in range(size)]
    for lazy in (tensor.conj(), torch.zeros(2, dtype=torch.complex64).conj().imag):
        with pytest.raises(ValueError, match="resolve_conj"):
            hvd.allreduce_(lazy, op=hvd.Sum)


class Capsule:
    """A tensor as a PyTorch without the exchange table of DLPack 1.2 shows it."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)

    def is_neg(self) -> bool:
        return bool(self.tensor.is_neg())

    def is_conj(self) -> bool:
        return bool(self.tensor.is_conj())

    def __dlpack__(self, **how: Any) -> Any:
        return self.tensor.__dlpack__(**how)


def test_negation_of_older_torch(size: int) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones(1)
    basics.allreduce_(Capsule(tensor), op=basics.Sum)
    assert tensor.item() == size
    with pytest.raises(ValueError, match="resolve_neg"):
        basics.allreduce_(Capsule(torch.zeros(1, dtype=torch.complex64).conj().imag), op=basics.Sum)


def test_outcome_of_a_handle(kind: Any, size: int) -> None:
    """In place it is what was passed; out of place and of the engine's results it is made once."""
    tensor = kind.array([1.0, 2.0], "float32")
    handle = kind.hvd.allreduce_async_(tensor, op=kind.hvd.Sum)
    assert kind.hvd.synchronize(handle) is tensor and kind.hvd.synchronize(handle) is tensor
    for start in (kind.hvd.allreduce_async, kind.hvd.allgather_async):
        handle = start(tensor)
        assert kind.hvd.synchronize(handle) is kind.hvd.synchronize(handle) is not tensor
    tensors = (tensor, kind.array([3.0], "float32"))
    handle = kind.hvd.grouped_allreduce_async_(tensors, op=kind.hvd.Sum)
    outcome = kind.hvd.synchronize(handle)
    assert isinstance(outcome, list) and all(a is b for a, b in zip(outcome, tensors, strict=True))


def test_handle_that_its_tensor_keeps() -> None:
    class Kept(np.ndarray):
        pass

    tensor = np.ones(3).view(Kept)
    tensor.handle = basics.allreduce_async_(tensor)
    basics.synchronize(tensor.handle)
    gone = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert gone() is None


def test_outcome_is_asked_for_again(rank: int, size: int) -> None:
    """What makes it may be interrupted; the engine's results are still there."""
    seen = []

    def finish(results: list[Any]) -> Any:
        seen.append(np.from_dlpack(results[0]))
        if len(seen) == 1:
            raise KeyboardInterrupt
        return seen[-1]

    part = np.array([rank + 1.0])
    handle = _core.submit(_core.describe(ALLGATHER), "again", (part,), finish=finish)
    with pytest.raises(KeyboardInterrupt):
        handle.wait()
    assert handle.wait().tolist() == [r + 1.0 for r in range(size)]
    with pytest.raises(ValueError, match="not NaN"):
        handle.wait(float("nan"))


def test_deprecation_points_at_the_caller(kind: Any) -> None:
    tensor = kind.array([1.0], "float32")
    for ask in (kind.hvd.allreduce, kind.hvd.allreduce_, kind.hvd.allreduce_async, kind.hvd.allreduce_async_):
        with pytest.warns(DeprecationWarning, match="average") as warned:
            outcome = ask(tensor, average=True)
        if "async" in ask.__name__:
            kind.hvd.synchronize(outcome)
        assert warned[0].filename == __file__


def test_read_only_array(size: int) -> None:
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        basics.allreduce_(array)
    check_sum = basics.allreduce(array, op=basics.Sum)
    np.testing.assert_allclose(check_sum, size)


def test_other_buffers(rank: int, size: int) -> None:
    data = bytearray([rank, 1])
    basics.allreduce_(data, op=basics.Sum)
    assert list(data) == [size * (size - 1) // 2, size]


class Exporter:
    """Neither array nor buffer: DLPack is the only way in."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)


class OldExporter(Exporter):
    """Of the time before DLPack had versions."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()


@pytest.mark.parametrize("exporter", [Exporter, OldExporter])
def test_dlpack(exporter: Any, size: int) -> None:
    array = np.ones((2, 3), np.float32)
    basics.allreduce_(exporter(array), op=basics.Sum)
    np.testing.assert_allclose(array, size)
    with pytest.raises(ValueError, match="contiguous"):
        basics.allreduce_(exporter(array.T))


def test_dlpack_of_read_only_memory() -> None:
    array = np.ones(3)
    array.flags.writeable = False
    with pytest.raises(ValueError, match=r"read-?only|writeable"):  # or NumPy's own words, before 2
        basics.allreduce_(Exporter(array))


class OldReadOnly(OldExporter):
    """As JAX's arrays of bfloat16: a capsule that can't say it, and no buffer."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        view = self.array.view()
        view.flags.writeable = False
        return view


def test_old_dlpack_of_read_only_memory(size: int) -> None:
    array = np.ones(3)
    with pytest.raises(ValueError, match="is read-only, but the operation writes to it"):
        basics.broadcast_(OldReadOnly(array), 0)
    assert basics.allreduce(OldReadOnly(array), op=basics.Sum).tolist() == [size] * 3


@pytest.mark.parametrize("code", ["?", "B", "b", "H", "h", "I", "i", "L", "l", "e", "f", "d", "F", "D"])
def test_results_are_buffers(code: str, size: int) -> None:
    array = np.arange(6).reshape(3, 2).astype(code)
    spelled = f"Z{code.lower()}" if code in "FD" else code
    handle = _core.submit(_core.describe(ALLGATHER), None, [array], finish=list)
    view = memoryview(handle.wait()[0])
    assert (view.format, view.shape, view.nbytes) == (spelled, (3 * size, 2), array.nbytes * size)
    assert np.asarray(view).tolist() == array.tolist() * size


def test_result_that_the_buffer_protocol_can_not_spell(size: int) -> None:
    torch = pytest.importorskip("torch")
    array = torch.arange(6, dtype=torch.bfloat16)
    handle = _core.submit(_core.describe(ALLGATHER), None, [array], finish=list)
    view = memoryview(handle.wait()[0])
    assert (view.format, view.shape, view.nbytes) == ("2x", (6 * size,), 12 * size)
    assert view.tobytes() == array.view(torch.int16).numpy().tobytes() * size


def test_objects(kind: Any, rank: int, size: int) -> None:
    thing = {"rank": rank, "text": "x" * (10 * rank), "function": lambda x: x + rank}
    everything = kind.hvd.allgather_object(thing)
    assert [one["rank"] for one in everything] == list(range(size))
    assert [one["function"](1) for one in everything] == [1 + r for r in range(size)]
    root = size - 1
    assert kind.hvd.broadcast_object(thing if rank == root else None, root)["rank"] == root


def test_compression(size: int) -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd

    tensor = torch.full((5,), 1 / 3)
    result = hvd.allreduce(tensor, compression=hvd.Compression.fp16, op=hvd.Sum)
    assert result.dtype == torch.float32
    assert torch.allclose(result, tensor * size, rtol=2e-3)
    whole = hvd.allreduce(torch.tensor([5]), compression=hvd.Compression.fp16, op=hvd.Sum)
    assert whole.dtype == torch.int64 and whole.item() == 5 * size
    large = torch.tensor([1e30], dtype=torch.bfloat16)  # as short, and infinite in float16
    assert torch.equal(hvd.allreduce(large, compression=hvd.Compression.fp16, op=hvd.Max), large)


def test_compression_of_arrays(size: int) -> None:
    array = np.full(5, 1 / 3, np.float32)
    result = basics.allreduce(array, compression=basics.Compression.fp16, op=basics.Sum)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, array * size, rtol=2e-3)
    assert (
        basics.allreduce(np.arange(3), compression=basics.Compression.fp16, op=basics.Sum).dtype == np.int64
    )
