"""Arrays on GPUs by DLPack, on the stand-in for NVIDIA's driver, which is in LD_LIBRARY_PATH.

Streams are held back: each check starts an operation on what a stream is still to write, and lets the stream
go on when the engine has had every chance to read too early. Rank 0 prints what has passed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from dlpack_structures import Current, Legacy, Managed, Read, Table, Tensor, make_capsule, tensor_of

import horovod as hvd
from horovod import _core
from horovod.common import util

ELEMENTS = 5000
CUDA, FLOAT = 2, 2  # of DLPack
DEFAULT = 1  # the number of the default stream, in DLPack and for the driver
NON_BLOCKING, NO_TIMING = 1, 2

driver = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    code = getattr(driver, name)(*arguments)
    assert code == 0, f"{name} has returned {code}"


def has_context(gpu: int) -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    call("cuDevicePrimaryCtxGetState", gpu, ctypes.byref(flags), ctypes.byref(active))
    return bool(active.value)


hvd.init()
rank, size = hvd.rank(), hvd.size()
assert hvd.cuda_built() and _core.cuda_version() == 13000
assert util.gpu_available("torch")
assert _core.find_cuda() == (True, "2 GPUs by a driver for CUDA 13.0: stand-in GPU, stand-in GPU")
assert not has_context(0) and not has_context(1)
assert "libnccl" not in Path("/proc/self/maps").read_text()
assert hvd.nccl_built() == int(os.environ["EXPECTED_NCCL"])

gpu = rank % 2
context = ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), gpu)
call("cuCtxPushCurrent_v2", context)


def make_stream() -> ctypes.c_void_p:
    stream = ctypes.c_void_p()
    call("cuStreamCreateWithPriority", ctypes.byref(stream), NON_BLOCKING, 0)
    return stream


streams = make_stream(), make_stream()
reader = make_stream()
current = streams[0]  # on which this thread works


def read(address: int, count: int = ELEMENTS) -> np.ndarray[Any, Any]:
    """What is there now: the stream of the reader waits for no other."""
    values = np.empty(count, np.float32)
    where = ctypes.c_void_p(values.ctypes.data)
    call("cuMemcpyAsync", where, ctypes.c_void_p(address), ctypes.c_size_t(values.nbytes), reader)
    call("cuStreamSynchronize", reader)
    return values


class Array:
    """A vector on this rank's GPU; its type names the stream on which the thread works."""

    def __init__(self) -> None:
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4 * ELEMENTS))
        self.address = address.value
        self.shape = (ctypes.c_int64 * 1)(ELEMENTS)

    def description(self) -> Tensor:
        return Tensor(self.address, CUDA, gpu, 1, FLOAT, 32, 1, self.shape)

    def write(self, stream: ctypes.c_void_p, start: int) -> None:
        values = np.arange(ELEMENTS, dtype=np.float32) + (rank + start)
        from_host = ctypes.c_void_p(values.ctypes.data)
        call(
            "cuMemcpyAsync", ctypes.c_void_p(self.address), from_host, ctypes.c_size_t(values.nbytes), stream
        )

    def is_sum(self, start: int) -> bool:
        expected = size * (np.arange(ELEMENTS) + start) + size * (size - 1) // 2
        return bool((read(self.address) == expected).all())


class ArrayWithoutStreams(Array):
    """The same, but nothing says on which stream the thread works."""


class Exporter(Array):
    """The same without an exchange table, as in PyTorch 2.9: the stream that it is given waits."""

    def wait(self, stream: int) -> None:
        event = ctypes.c_void_p()
        call("cuEventCreate", ctypes.byref(event), NO_TIMING)
        call("cuEventRecord", event, current)
        call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, gpu

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        if stream is not None:
            assert (stream, max_version) == (DEFAULT, (1, 0))
            self.wait(stream)
        self.managed = Managed(1, 0, None, None, 0, self.description())
        return make_capsule(self.managed, b"dltensor_versioned")


class LegacyExporter(Exporter):
    """As before DLPack 1.0."""

    def __dlpack__(self, *, stream: int | None = None) -> Any:  # type: ignore[override]
        if stream is not None:
            self.wait(stream)
        self.legacy = Legacy(self.description(), None, None)
        return make_capsule(self.legacy, b"dltensor")


class ExporterWithoutWait(Exporter):
    """The same, but the stream that it is given does not wait."""

    def wait(self, stream: int) -> None:
        assert stream == DEFAULT


@Read
def describe(array: Array, tensor: Any) -> int:
    tensor[0] = array.description()
    return 0


@Current
def current_stream(device_type: int, device_id: int, stream: Any) -> int:
    assert (device_type, device_id) == (CUDA, gpu)
    stream[0] = current.value
    return 0


tables = [Table(1, 3, None, (ctypes.c_void_p * 3)(), describe, current_stream)]
tables.append(Table(1, 3, None, (ctypes.c_void_p * 3)(), describe, Current()))
for kind, table in ((Array, tables[0]), (ArrayWithoutStreams, tables[1])):
    kind.__dlpack_c_exchange_api__ = make_capsule(table, b"dlpack_exchange_api")  # type: ignore[attr-defined]
Exporter.__dlpack_c_exchange_api__ = None  # type: ignore[attr-defined]

core: Any = _core
other_set = core.process_set_add(list(range(size)))
meanwhile = core.describe(core.operations["allreduce"], process_set=other_set)


def wait_for_engine() -> None:
    """The engine has done all that it can: a set of its own waits for no operation of set 0."""
    for _ in range(20):
        core.run(meanwhile, "meanwhile", [bytearray(1)])


def late_sum(kind: type[Array]) -> bool:
    """Whether the sum is right if a stream that is held back, the thread's current one, writes the array."""
    global current
    waits = kind not in (ArrayWithoutStreams, ExporterWithoutWait)
    array = kind()
    current = streams[1]
    driver.standin_hold(current)
    array.write(current, 3)
    handle = hvd.allreduce_async_(array, op=hvd.Sum, name="late")
    wait_for_engine()
    if waits:
        assert not handle.done(), "the engine has not waited for the stream"
        driver.standin_release(current)
    handle.wait()
    right = array.is_sum(3)
    driver.standin_release(current)
    call("cuStreamSynchronize", current)
    return right


def gathered() -> bool:
    """A result of the engine is on the GPU, and consumers read it by DLPack; NumPy can't."""
    array = Array()
    array.write(current, 0)
    gather = core.describe(core.operations["allgather"])
    (result,) = core.run(gather, "gather", [array])
    tensor = tensor_of(result.__dlpack__(stream=DEFAULT))
    assert result.__dlpack_device__() == (CUDA, gpu)
    assert (tensor.device_type, tensor.device_id, tensor.shape[0]) == (CUDA, gpu, size * ELEMENTS)
    try:
        memoryview(result)
    except BufferError as error:
        assert "not in the memory of the host" in str(error)
    else:
        return False
    parts = read(tensor.data, size * ELEMENTS).reshape(size, ELEMENTS)
    return all((parts[each] == np.arange(ELEMENTS) + each).all() for each in range(size))


def mixed() -> bool:
    """Arrays of the host and of the GPU are in flight together; one group of both is refused."""
    array, values = Array(), np.ones(3)
    array.write(current, 1)
    handles = [
        hvd.allreduce_async_(each, op=hvd.Sum, name=name) for each, name in ((array, "a"), (values, "b"))
    ]
    for handle in handles:
        handle.wait()
    try:
        hvd.grouped_allreduce_([array, values], op=hvd.Sum)
    except ValueError as error:
        assert "tensor 1 is on a device of type 1, tensor 0 on one of type 2" in str(error)
    else:
        return False
    return array.is_sum(1) and list(values) == [size] * 3


def captured() -> bool:
    array = Array()
    driver.standin_capture(current, True)
    try:
        hvd.allreduce_(array, op=hvd.Sum)
    except ValueError as error:
        return "is being captured into a CUDA graph" in str(error)
    finally:
        driver.standin_capture(current, False)
    return False


def forked() -> bool:
    """A child drops what its parent has made, and does not reach the driver."""
    array = Array()
    array.write(current, 0)
    results = core.run(core.describe(core.operations["allgather"]), "kept", [array])
    child = os.fork()
    if not child:
        results.clear()
        os._exit(driver.standin_calls(None) or util.gpu_available("torch"))
    return os.waitpid(child, 0)[1] == 0


def check(text: str, passed: Callable[[], bool]) -> None:
    assert passed(), text
    if rank == 0:
        print(text)


for _ in range(3):
    for each in (Array, Exporter, LegacyExporter):
        check(f"{each.__name__} is read after its stream", lambda kind=each: late_sum(kind))  # type: ignore[misc]
    for each in (ArrayWithoutStreams, ExporterWithoutWait):
        check(f"{each.__name__} is read too early", lambda kind=each: not late_sum(kind))  # type: ignore[misc]
check("a result is on the GPU", gathered)
check("arrays of host and GPU are in flight together", mixed)
check("a captured stream is refused", captured)
check("a child leaves the driver alone", forked)
assert not has_context(1 - gpu), "a context on a GPU that no array is on"
hvd.shutdown()
