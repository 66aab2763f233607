"""Memory of operations in flight stays until the engine is done, whatever happens to the Python objects."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from test_life import lonely

import horovod as hvd
from horovod import _core
from horovod.framework.requests import ALLREDUCE

torch = pytest.importorskip("torch")
from torch._subclasses import FakeTensorMode  # noqa: E402

LENGTH = 1000


def start(name: str, tensor: Any) -> Any:
    return _core.submit(_core.describe(ALLREDUCE), name, (tensor,))


def test_wait_with_a_limit(rank: int, size: int) -> None:
    array, handle = np.ones(2), None
    if rank == 0 and size > 1:
        handle = start("limited", array)
        with pytest.raises(TimeoutError, match=r"allreduce\.limited is in progress after 50 ms"):
            handle.wait(0.05)
    hvd.barrier()
    (handle or start("limited", array)).wait(100)
    assert (array == size).all()
    with pytest.raises(TypeError):
        start("limited", array).wait("long")


# ---- other memory for a tensor ----------------------------------------------------------------------


LENGTHS = [LENGTH, 4_000_000]  # of the heap, and mapped


def model_of(tensor: torch.Tensor) -> torch.nn.Module:
    model = torch.nn.Module()
    model.register_parameter("weight", torch.nn.Parameter(tensor, requires_grad=False))
    return model


OTHER_MEMORY: dict[str, Callable[[torch.Tensor], object]] = {
    "data": lambda tensor: setattr(tensor, "data", torch.zeros(len(tensor))),
    "set_": lambda tensor: tensor.set_(torch.zeros(len(tensor))),
    "half": lambda tensor: setattr(tensor, "data", tensor.data.half()),
}

FREED_MEMORY: dict[str, Callable[[torch.Tensor], object]] = {
    "resize_": lambda tensor: tensor.resize_(2 * len(tensor)),
    "resize_as_": lambda tensor: tensor.resize_as_(torch.empty(2 * len(tensor))),
    "view": lambda tensor: tensor[1:2].resize_(2 * len(tensor)),
    "storage": lambda tensor: tensor.untyped_storage().resize_(0),
    "typed storage": lambda tensor: tensor.storage().resize_(0),
    "share_memory_": lambda tensor: tensor.share_memory_(),
    "share_memory": lambda tensor: model_of(tensor).share_memory(),
    "pickle": lambda tensor: ForkingPickler.dumps(tensor),
}


in_place_or_not = pytest.mark.parametrize("in_place", [True, False], ids=["in place", "out of place"])


@in_place_or_not
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("change", OTHER_MEMORY)
def test_a_tensor_gets_other_memory(change: str, length: int, in_place: bool, rank: int, size: int) -> None:
    """The operation uses what the tensor had; what was allocated since then stays untouched."""
    import horovod.torch as hvd

    if size == 1:
        pytest.skip("one rank alone is done at once")
    start = hvd.allreduce_async_ if in_place else hvd.allreduce_async
    tensor = torch.ones(length)
    memory = tensor.data_ptr()
    if rank == 0:
        handle = start(tensor, op=hvd.Sum, name="moved")
        OTHER_MEMORY[change](tensor)
        assert tensor.data_ptr() != memory
        others = [torch.full((LENGTH,), 7.0) for _ in range(64)]
        assert memory not in [other.data_ptr() for other in others]
    hvd.barrier()
    if rank != 0:
        handle = start(tensor, op=hvd.Sum, name="moved")
    if rank == 0 and in_place:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"tensor 0 does not have the result: .*synchronize"):
                hvd.synchronize(handle)
    else:
        assert bool((hvd.synchronize(handle) == size).all())
    if rank == 0:
        assert all(bool((other == 7).all()) for other in others)


@in_place_or_not
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("change", FREED_MEMORY)
def test_the_memory_of_a_tensor_is_freed(
    change: str, length: int, in_place: bool, rank: int, size: int
) -> None:
    """That raises while the operation is in flight, and works before and afterwards."""
    import horovod.torch as hvd

    if size == 1:
        pytest.skip("one rank alone is done at once")
    start = hvd.allreduce_async_ if in_place else hvd.allreduce_async
    tensor = torch.ones(length)
    if rank == 0:
        handle = start(tensor, op=hvd.Sum, name="freed")
        with pytest.raises(RuntimeError, match=r"in flight: synchronize its handle first \(allreduce.freed"):
            FREED_MEMORY[change](tensor)
        FREED_MEMORY[change](torch.ones(length))
    hvd.barrier()
    if rank != 0:
        handle = start(tensor, op=hvd.Sum, name="freed")
    assert bool((hvd.synchronize(handle) == size).all())
    FREED_MEMORY[change](tensor)


def test_memory_of_a_dropped_operation_is_freed(rank: int, size: int) -> None:
    """As above when nobody has its handle; while another thread waits in a blocking call, too."""
    import horovod.torch as hvd

    if size == 1:
        pytest.skip("one rank alone is done at once")
    dropped, blocked = torch.ones(LENGTH), torch.ones(LENGTH)
    if rank == 0:
        hvd.allreduce_async_(dropped, op=hvd.Sum, name="dropped")
        thread = threading.Thread(target=lambda: hvd.allreduce_(blocked, op=hvd.Sum, name="blocked"))
        thread.start()
        deadline = time.monotonic() + 60
        for tensor in dropped, blocked:
            memory = tensor.untyped_storage().data_ptr(), 1
            while _core.in_flight(*memory) is None:
                assert time.monotonic() < deadline, "the operation was not started"
            with pytest.raises(RuntimeError, match="is in progress"):
                tensor.resize_(2 * LENGTH)
        hvd.barrier()
        thread.join(60)
        assert not thread.is_alive(), "the blocking call did not end"
        while _core.in_flight(dropped.data_ptr(), 1):
            assert time.monotonic() < deadline, "the dropped operation did not end"
    else:
        hvd.barrier()
        hvd.allreduce_(dropped, op=hvd.Sum, name="dropped")
        hvd.allreduce_(blocked, op=hvd.Sum, name="blocked")
    assert bool((dropped == size).all()) and bool((blocked == size).all())
    assert len(dropped.resize_(2 * LENGTH)) == 2 * LENGTH


def test_shared_memory_in_flight_is_sent(rank: int, size: int) -> None:
    """To other processes: it lies where they see it already, so nothing is freed."""
    import horovod.torch as hvd

    tensor = torch.ones(LENGTH).share_memory_()
    if rank == 0:
        handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="sent")
        ForkingPickler.dumps(tensor.share_memory_())
    hvd.barrier()
    if rank != 0:
        handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="sent")
    assert bool((hvd.synchronize(handle) == size).all())


def grow(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone().resize_(4).fill_(2) * 2


@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "in flight"])
def test_guarded_calls_stay_what_they_are(in_flight: bool, rank: int, size: int) -> None:
    """For compilers, subclasses, modes, tensors without memory; and after another import."""
    import horovod.torch as hvd
    from horovod.torch import storage

    other = torch.ones(LENGTH)
    if in_flight and rank == 0:
        handle = hvd.allreduce_async_(other, op=hvd.Sum, name="other")
    resize = torch.Tensor.resize_
    importlib.reload(storage).guard()
    assert torch.Tensor.resize_ is resize
    assert resize.__name__ == "resize_" and "Resizes" in str(resize.__doc__)
    small, expected = torch.ones(2), torch.full((4,), 4.0)
    assert torch.equal(torch.jit.script(grow)(small), expected)
    assert torch.equal(torch.jit.trace(grow, small, check_trace=False)(small), expected)
    assert torch.equal(torch.compile(grow, backend="eager")(small), expected)
    assert grow(torch.ones(2, device="meta")).shape == (4,)
    with FakeTensorMode():
        assert grow(torch.ones(2)).shape == (4,)
    assert torch.eye(3).to_sparse().resize_as_(torch.eye(4).to_sparse()).shape == (4, 4)
    calls: list[Any] = []

    class Seen(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    assert small.as_subclass(Seen).resize_(3, memory_format=torch.contiguous_format).shape == (3,)
    assert calls.count("resize_") == 1 and "untyped_storage" not in calls
    hvd.barrier()
    if in_flight:
        if rank != 0:
            handle = hvd.allreduce_async_(other, op=hvd.Sum, name="other")
        hvd.synchronize(handle)


# ---- dropped handles --------------------------------------------------------------------------------


def test_threads_that_drop_handles() -> None:
    """The end of a tensor runs other threads, which release dropped operations, too."""
    process = lonely(
        "import threading, time\n"
        "import numpy as np\n"
        "from horovod import _core\n"
        "hvd.init()\n"
        "request = _core.describe(_core.operations['allreduce'])\n"
        "class Odd(np.ndarray):\n"
        "    def __del__(self):\n"
        "        time.sleep(0)\n"
        "def work(thread):\n"
        "    for i in range(1000):\n"
        "        tensor = np.ones(3).view(Odd)\n"
        "        _core.submit(request, f'{thread}.{i}', (tensor,))\n"
        "threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]\n"
        "for thread in threads:\n"
        "    thread.start()\n"
        "for thread in threads:\n"
        "    thread.join()\n"
        "print('over')",
        HOROVOD_SIZE="1",
        MALLOC_PERTURB_="165",  # what is freed is not what it was
    )
    out, errors = process.communicate(timeout=100)
    assert out == "over\n", (process.returncode, errors)


def await_release(released: Callable[[], bool]) -> None:
    """Every submission releases, also one that fails."""
    deadline = time.monotonic() + 60
    while not released():
        assert time.monotonic() < deadline, "what is over was not released"
        with pytest.raises(ValueError, match="no tensor"):
            start("odd", object())


def test_dropped_operations_are_released(rank: int, size: int) -> None:
    """Also behind those that are not over yet, though a submission tests few of these."""
    if size == 1:
        pytest.skip("one rank alone is done at once")
    tensors = [np.ones(2, np.float32) for _ in range(40)]
    even, odd = range(0, 40, 2), range(1, 40, 2)

    def held(numbers: range) -> list[bool]:
        return [sys.getrefcount(tensors[i]) > free for i in numbers]

    free = sys.getrefcount(tensors[0])
    if rank == 0:
        for i in range(40):
            start(f"dropped.{i}", tensors[i])
    for numbers in even, odd:
        hvd.barrier()
        if rank != 0:
            _core.wait([start(f"dropped.{i}", tensors[i]) for i in numbers])
        else:
            await_release(lambda numbers=numbers: not any(held(numbers)))  # type: ignore[misc]
            assert numbers is odd or all(held(odd))
    np.testing.assert_allclose(tensors, size)


class Array(np.ndarray):
    """One that may have attributes."""


@pytest.mark.parametrize("make", [lambda: np.ones(LENGTH).view(Array), lambda: torch.ones(LENGTH)])
def test_a_tensor_refers_to_its_handle(make: Callable[[], Any], rank: int, size: int) -> None:
    """It is collected, and its memory stays for as long as the operation needs it."""
    import horovod.torch as hvd

    if size == 1:
        pytest.skip("one rank alone is done at once")
    gone: list[int] = []
    tensor = make()
    others: list[Any] = []
    if rank == 0:
        tensor.handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="cycle")
        weakref.finalize(tensor, gone.append, 0)
        del tensor
        gc.collect()
        others += [7 * make() for _ in range(64)]
    hvd.barrier()
    if rank == 0:
        deadline = time.monotonic() + 60
        while not gone:
            assert time.monotonic() < deadline, "the tensor was not collected"
            gc.collect()
        assert all(bool((other == 7).all()) for other in others)
    else:
        hvd.allreduce_(tensor, op=hvd.Sum, name="cycle")
