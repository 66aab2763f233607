"""Tensors of the test device, which two streams write late.

argv[1] is the extension module with that device. Each check holds a stream back, starts an operation on what
that stream is still to write, and lets the stream go on when the engine has had every chance to read too
early. Rank 0 prints what has passed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from dlpack_structures import Current, Managed, Read, Table, Tensor, make_capsule

ELEMENTS = 5000
DEVICE, FLOAT = 12, 2  # of DLPack


class Finder:
    """Puts the engine that has the test device in the place of the extension module."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        return importlib.util.spec_from_file_location(name, sys.argv[1]) if name == "horovod._core" else None


sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]

from horovod import _core  # noqa: E402  # found as above
from horovod.common.basics import Sum  # noqa: E402
from horovod.common.process_sets import global_process_set  # noqa: E402
from horovod.framework.compression import NoneCompressor  # noqa: E402
from horovod.framework.reducer import Reducer, Rules  # noqa: E402

core: Any = _core
device = ctypes.CDLL(sys.argv[1])
for name in ("device_allocate", "device_stream", "device_side_stream"):
    getattr(device, name).restype = ctypes.c_void_p
device.device_register()
core.init({})
rank, size = core.placement()[:2]
streams = (device.device_stream(rank), device.device_side_stream(rank))
current = streams[0]  # that this thread works on


class Array:
    """A vector on this rank's device; its type says on which stream the thread works."""

    def __init__(self) -> None:
        self.shape = (ctypes.c_int64 * 1)(ELEMENTS)
        self.data = device.device_allocate(rank, ctypes.c_size_t(4 * ELEMENTS))
        self.values = (ctypes.c_float * ELEMENTS)()

    def description(self) -> Tensor:
        return Tensor(self.data, DEVICE, rank, 1, FLOAT, 32, 1, self.shape)

    def write(self, stream: int, start: int) -> None:
        """Writes on that stream, with a delay."""
        self.values[:] = [float(rank + start + i) for i in range(ELEMENTS)]
        device.device_write_on(
            ctypes.c_void_p(stream), ctypes.c_void_p(self.data), self.values, ctypes.c_size_t(4 * ELEMENTS)
        )

    def is_sum(self, start: int) -> bool:
        device.device_read(self.values, ctypes.c_void_p(self.data), ctypes.c_size_t(4 * ELEMENTS))
        ranks = size * (size - 1) // 2
        return list(self.values) == [float(ranks + size * (start + i)) for i in range(ELEMENTS)]


class ArrayWithoutStreams(Array):
    """The same, but without information on the thread's current stream."""


class Exporter(Array):
    """The same without an exchange table; as in older PyTorch only a stream that it is given waits."""

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        if stream is not None:
            assert (stream, max_version) == (0, (1, 0))
            device.device_hold(
                ctypes.c_void_p(streams[0])
            )  # it waits for the stream on which the thread works
        self.managed = Managed(1, 0, None, None, 0, self.description())
        return make_capsule(self.managed, b"dltensor_versioned")


class ExporterWithoutWait(Exporter):
    """The same, but the stream that it is given does not wait."""

    def __dlpack__(self, **_: Any) -> Any:
        return super().__dlpack__()


@Read
def read(array: Array, tensor: Any) -> int:
    tensor[0] = array.description()
    return 0


@Current
def current_stream(device_type: int, device_id: int, stream: Any) -> int:
    assert (device_type, device_id) == (DEVICE, rank)
    stream[0] = current
    return 0


tables = [Table(1, 3, None, (ctypes.c_void_p * 3)(), read, current_stream)]
tables.append(Table(1, 3, None, (ctypes.c_void_p * 3)(), read, Current()))
for kind, table in ((Array, tables[0]), (ArrayWithoutStreams, tables[1])):
    kind.__dlpack_c_exchange_api__ = make_capsule(table, b"dlpack_exchange_api")  # type: ignore[attr-defined]
Exporter.__dlpack_c_exchange_api__ = None  # type: ignore[attr-defined]

other_set = core.process_set_add(list(range(size)))
allreduce = core.describe(core.operations["allreduce"])
meanwhile = core.describe(core.operations["allreduce"], process_set=other_set)


def wait_for_engine() -> None:
    """The engine has done all that it can: a set of its own waits for no operation of set 0."""
    for _ in range(20):
        core.run(meanwhile, "meanwhile", [bytearray(1)])


def work_on(stream: int) -> None:
    global current
    current = stream


def late_sum(kind: type[Array]) -> bool:
    """Whether the sum is right if a side stream, the submitting thread's current one, writes the tensor."""
    waits = kind in (Array, Exporter)
    array = kind()
    work_on(streams[1])
    device.device_hold(ctypes.c_void_p(streams[1]))
    array.write(streams[1], 3)
    handle = core.submit(allreduce, "late", [array])
    wait_for_engine()
    if waits:
        assert not handle.done(), "the engine has not waited for the stream"
        device.device_go_on(ctypes.c_void_p(streams[1]))
    if kind is Exporter:
        device.device_finish(ctypes.c_void_p(streams[1]))
        device.device_go_on(ctypes.c_void_p(streams[0]))
    handle.wait()
    right = array.is_sum(3)
    device.device_finish(ctypes.c_void_p(streams[1]))
    return right


class Gradients:
    """A reducer whose parameters are their own gradients."""

    def get(self, parameter: Array) -> Array:
        return parameter

    def set(self, parameter: Array, reduced: Array) -> None:
        assert parameter is reduced

    def is_sparse(self, parameter: Array) -> bool:
        return False

    def is_trained(self, parameter: Array) -> bool:
        return True


def late_gradients(notes: bool) -> bool:
    """Whether the sums of two gradients that two streams write are right, both submitted from the first."""
    rules = Rules(Sum, (1.0, 1.0), NoneCompressor, global_process_set, member=True)
    arrays = [Array(), Array()]
    reducer: Any = Reducer(Gradients(), arrays, ["first", "second"], (), 1, rules)  # type: ignore[type-var]
    reducer.sparse = set()
    last = bytearray(8)
    noted = reducer.streams if notes else {}
    for place in (0, 1):
        work_on(streams[place])
        device.device_hold(ctypes.c_void_p(streams[place]))
        arrays[place].write(streams[place], place)
        core.collector(reducer.arrived, place, lambda: None, last, noted)(arrays[place])
    assert noted == {0: streams[0], 1: streams[1]}
    work_on(streams[0])
    reducer.ready()
    device.device_go_on(ctypes.c_void_p(streams[0]))
    wait_for_engine()
    if notes:
        assert not reducer.operations[1].done(), "the engine has not waited for the stream of the gradient"
        device.device_go_on(ctypes.c_void_p(streams[1]))
    reducer.finish()
    right = all(arrays[place].is_sum(place) for place in (0, 1))
    device.device_finish(ctypes.c_void_p(streams[1]))
    return right


def check(text: str, passed: Callable[[], bool]) -> None:
    assert passed(), text
    if rank == 0:
        print(text)


for _ in range(3):
    check("waits for the current stream", lambda: late_sum(Array))
    check("needs the current stream", lambda: not late_sum(ArrayWithoutStreams))
    check("waits for the producer's stream", lambda: late_sum(Exporter))
    check("needs the producer's stream", lambda: not late_sum(ExporterWithoutWait))
    check("waits for the streams of gradients", lambda: late_gradients(True))
    check("needs the streams of gradients", lambda: not late_gradients(False))
core.shutdown()
