"""The table of operations in Python, and described requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod import _core
from horovod.framework.requests import ALLGATHER, ALLREDUCE, ALLTOALL, REDUCESCATTER

REDUCING = [operation for operation in _core.operations.values() if operation.reductions]


def test_the_table_is_the_engines() -> None:
    assert _core.operations["allreduce"] is ALLREDUCE
    assert all(name == operation.name for name, operation in _core.operations.items())
    assert {operation.number for operation in _core.operations.values()} >= {0, 1, 2, 3, 5, 6, 7}
    assert set(ALLREDUCE.reductions) == set(_core.reductions.values())
    assert REDUCESCATTER.reductions == (hvd.Average, hvd.Sum)
    assert (ALLREDUCE.results, REDUCESCATTER.results, ALLTOALL.results) == (0, 1, 2)


@pytest.mark.parametrize("operation", REDUCING, ids=lambda operation: operation.name)
@pytest.mark.parametrize("reduction", _core.reductions)
def test_the_engine_does_what_the_table_says(operation: Any, reduction: str, size: int) -> None:
    number = _core.reductions[reduction]
    request = _core.describe(operation, reduction=number)
    call = (request, f"{operation.name} {reduction}", (np.ones(2 * size, np.float32),))
    if number in operation.reductions:
        _core.run(*call)
    else:
        with pytest.raises(ValueError, match=f"^{operation.name}: the reduction is {reduction}; it may be"):
            _core.run(*call)


@pytest.mark.parametrize("waits", [False, True])
def test_results_in_memory_of_the_caller(waits: bool, rank: int, size: int) -> None:
    gathered = np.zeros((2 * size, 3))
    part = np.zeros((2, 3))
    exchanged = np.zeros((2 * size, 3))
    calls = [
        (ALLGATHER, np.full((2, 3), rank + 1.0), gathered),
        (REDUCESCATTER, np.full((2 * size, 3), rank + 1.0), part),
        (ALLTOALL, np.full((2 * size, 3), rank + 1.0), exchanged),
    ]
    for operation, array, output in calls:
        request = _core.describe(operation)
        if waits:
            made = _core.run(request, operation.name, (array,), outputs=(output,))
            assert made is None or operation is ALLTOALL
        else:
            handle = _core.submit(request, operation.name, (array,), outputs=(output,), finish=list)
            made = handle.wait()
            assert made[0] is output or operation is ALLTOALL
        if operation is ALLTOALL:  # how many rows came from each rank is the engine's result
            assert [np.asarray(each).tolist() for each in made] == [[2] * size]
    by_rank = np.repeat(np.arange(size) + 1.0, 2)[:, None]
    np.testing.assert_array_equal(gathered, np.broadcast_to(by_rank, gathered.shape))
    np.testing.assert_array_equal(exchanged, gathered)
    np.testing.assert_array_equal(part, size * (size + 1) / 2)


def test_results_that_do_not_fit(rank: int, size: int) -> None:
    request = _core.describe(ALLGATHER)
    outputs = (np.zeros((2 * size + (rank == 0), 3)),)
    call = (request, "does not fit", (np.ones((2, 3)),))
    if rank == 0:
        expected = rf"output 0 has shape \[{2 * size + 1}, 3\], but its result has \[{2 * size}, 3\]"
        with pytest.raises(hvd.HorovodInternalError, match=expected):
            _core.run(*call, outputs=outputs)
    else:
        _core.run(*call, outputs=outputs)
        np.testing.assert_array_equal(outputs[0], 1.0)
    with pytest.raises(
        ValueError, match=r"^allgather: output 0 is float64 \[2, 4\], its input float64 \[2, 3\]"
    ):
        _core.run(*call, outputs=(np.zeros((2, 4)),))


def test_a_request_serves_any_number_of_tensors(size: int) -> None:
    request = _core.describe(ALLREDUCE, postscale=0.5)
    tensors = [np.full(3, i, np.float64) for i in range(20)]
    handles = [_core.submit(request, f"tensor {i}", (tensor,)) for i, tensor in enumerate(tensors)]
    _core.wait(handles)
    for i, tensor in enumerate(tensors):
        np.testing.assert_array_equal(tensor, i * size / 2)


def test_a_request_says_what_it_is() -> None:
    request = _core.describe(
        ALLREDUCE, reduction=hvd.Max, prescale=2, postscale=0.5, process_set=0, priority=-3, grouped=True
    )
    assert request.operation is ALLREDUCE
    assert (request.reduction, request.prescale, request.postscale) == (hvd.Max, 2.0, 0.5)
    assert (request.root, request.process_set, request.priority, request.grouped) == (0, 0, -3, 1)
    with pytest.raises(AttributeError):
        request.root = 1


def test_requests_that_make_no_sense(size: int) -> None:
    with pytest.raises(TypeError, match=r"^the operation must be one of _core.operations, not 0"):
        _core.describe(0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^describe\(\) has no parameter 'color'"):
        _core.describe(ALLREDUCE, color=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^describe\(\) needs 'operation'"):
        _core.describe()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^describe\(\) got two values for 'operation'"):
        _core.describe(ALLREDUCE, operation=ALLREDUCE)  # type: ignore[misc]
    with pytest.raises(TypeError, match="without a name at most, not 2"):
        _core.describe(ALLREDUCE, 1)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"^prescale_factor must be a number, not"):
        _core.describe(ALLREDUCE, prescale="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^submit\(\) needs 'inputs'"):
        _core.submit(_core.describe(ALLREDUCE), "x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^the request must be made by _core.describe, not <class 'int'>"):
        _core.run(0, "x", (np.ones(1),))  # type: ignore[arg-type]
    key = "".join(("redu", "ction"))  # not interned
    assert _core.describe(ALLREDUCE, **{key: hvd.Min}).reduction == hvd.Min


def test_operations_that_have_functions_of_their_own() -> None:
    for operation in _core.operations.values():
        if operation.argument in ("members", "set"):
            with pytest.raises(ValueError, match="is no request: call hvd_process_set_add"):
                _core.run(_core.describe(operation), None, ())
