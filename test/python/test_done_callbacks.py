"""Handle.add_done_callback: called once, whether or not somebody waits."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod import _core
from horovod.framework.requests import ALLGATHER, ALLREDUCE


def start(name: str, array: Any) -> Any:
    return _core.submit(_core.describe(ALLREDUCE), name, (array,), finish=list)


class Calls:
    """Of a callback, with a deadline."""

    def __init__(self, expected: int) -> None:
        self.handles: list[Any] = []
        self.expected = expected
        self.all = threading.Event()

    def __call__(self, handle: Any) -> None:
        assert handle.done()
        self.handles.append(handle)
        if len(self.handles) == self.expected:
            self.all.set()

    def wait(self) -> None:
        assert self.all.wait(60), f"{len(self.handles)} of {self.expected} callbacks within 60 s"


def test_called_without_a_wait(size: int) -> None:
    arrays = [np.full(3, i, np.float64) for i in range(100)]
    calls = Calls(100)
    for i, array in enumerate(arrays):
        start(f"callback {i}", array).add_done_callback(calls)  # nothing else keeps the handle
    gc.collect()
    calls.wait()
    for handle in calls.handles:
        (array,) = handle.wait()
        np.testing.assert_array_equal(array, array[0])
    assert sum(array[0] for array in arrays) == sum(range(100)) * size


def test_several_and_late_ones(size: int) -> None:
    handle = start("several", np.ones(2))
    calls = Calls(3)
    for _ in range(3):
        handle.add_done_callback(calls)
    handle.wait()
    calls.wait()
    late: list[tuple[Any, int]] = []
    handle.add_done_callback(lambda done: late.append((done, threading.get_ident())))
    assert late == [(handle, threading.get_ident())]
    assert calls.handles == [handle] * 3


def test_results_of_the_engine(size: int) -> None:
    sums: list[float] = []
    done = threading.Event()

    def note(handle: Any) -> None:
        sums.append(float(np.from_dlpack(handle.wait()[0]).sum()))
        done.set()

    handle = _core.submit(_core.describe(ALLGATHER), "gathered later", (np.ones(5),), finish=list)
    handle.add_done_callback(note)
    assert done.wait(60)
    assert sums == [5.0 * size]


def test_a_callback_starts_operations() -> None:
    over = threading.Event()

    def go_on(handle: Any) -> None:
        steps.append(handle)
        if len(steps) == 20:
            over.set()
        else:
            start("chain", array).add_done_callback(go_on)

    array, steps = np.ones(1), []  # type: ignore[var-annotated]
    start("chain", array).add_done_callback(go_on)
    assert over.wait(60), f"{len(steps)} of 20 links within 60 s"


def test_exceptions_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    printed = threading.Event()

    def hook(unraisable: Any) -> None:
        seen.append(unraisable.exc_type)
        printed.set()

    monkeypatch.setattr(sys, "unraisablehook", hook)
    calls = Calls(1)
    handle = start("raises", np.ones(1))
    handle.add_done_callback(lambda _: 1 / 0)
    handle.add_done_callback(calls)
    calls.wait()
    assert printed.wait(60) and seen == [ZeroDivisionError]
    handle.wait()


def test_failed_operations(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("one rank agrees with itself")
    calls = Calls(1)
    handle = start("mismatch", np.ones(1 + rank))
    handle.add_done_callback(calls)
    calls.wait()
    with pytest.raises(hvd.HorovodInternalError, match="mismatch"):
        handle.wait()
