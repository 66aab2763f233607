"""Every rank runs the same tests in the same order: horovodrun -np N python -m pytest test/python.

`make test` runs them on 1, 2 and 3 ranks, with HOROVOD_TEST_SEED. With a seed, a test that is marked
`own_process` runs on 1 rank only; one that is marked `two_or_three` runs on 1 rank, and on either 2 or 3, as
the seed draws for each test.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod import _core

try:
    from ml_dtypes import finfo  # importing it gives NumPy a bfloat16, as JAX and TensorFlow do
except ImportError:
    from numpy import finfo


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "own_process: the test starts a process of its own, so one rank runs it"
    )
    config.addinivalue_line(
        "markers", "two_or_three: the test takes seconds, as it compiles; the seed draws 2 or 3 ranks for it"
    )
    hvd.init()


def is_left_out(item: pytest.Item, seed: str) -> bool:
    if item.get_closest_marker("two_or_three") and hvd.size() in (2, 3):
        return 2 + zlib.crc32(f"{seed} {item.nodeid}".encode()) % 2 != hvd.size()
    return item.get_closest_marker("own_process") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = os.environ.get("HOROVOD_TEST_SEED")
    if seed is None or "HOROVOD_TEST_FULL" in os.environ or hvd.size() == 1:
        return
    left_out = [item for item in items if is_left_out(item, seed)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_report_header() -> str:
    return f"horovod: rank {hvd.rank()} of {hvd.size()}"


@pytest.fixture(autouse=True)
def _next_test_starts_together() -> Iterator[None]:
    yield
    hvd.barrier()


@pytest.fixture
def rank() -> int:
    return hvd.rank()


@pytest.fixture
def size() -> int:
    return hvd.size()


@pytest.fixture
def counted_steps() -> Callable[[Callable[[], Any]], int]:
    """Trains at least two steps, and returns how many this rank has counted."""

    def count(train: Callable[[], Any]) -> int:
        for _ in range(200):  # until these count: the first report of `train` belongs to the last of them
            _core.optimizer_step("test")
        before = hvd.metrics(flat=True)["horovod/steps"]
        train()
        return 1 + round(hvd.metrics(flat=True)["horovod/steps"] - before)

    return count


def is_known_to_numpy(dtype: str) -> bool:
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True


class NumPyKind:
    """Tests speak of arrays through this, and run once for each kind."""

    hvd: Any = hvd
    dtypes = tuple(dtype for dtype in _core.dtypes if is_known_to_numpy(dtype))

    @staticmethod
    def array(values: Any, dtype: str = "float32") -> Any:
        return np.array(values, dtype)

    @staticmethod
    def numpy(array: Any) -> Any:
        return np.asarray(array, np.complex128 if np.iscomplexobj(array) else np.float64)

    @staticmethod
    def step(dtype: str) -> float:
        """From 1 to the next number."""
        return float(finfo(dtype).eps)


class TorchKind:
    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")
        import horovod.torch

        self.hvd: Any = horovod.torch
        self.dtypes = tuple(dtype for dtype in _core.dtypes if hasattr(self.torch, dtype))

    def array(self, values: Any, dtype: str = "float32") -> Any:
        return self.torch.tensor(np.array(values), dtype=getattr(self.torch, dtype))

    def numpy(self, array: Any) -> Any:
        wide = self.torch.complex128 if array.is_complex() else self.torch.float64
        return array.detach().to(wide).numpy()

    def step(self, dtype: str) -> float:
        return float(self.torch.finfo(getattr(self.torch, dtype)).eps)


@pytest.fixture(params=[NumPyKind, TorchKind], ids=["numpy", "torch"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param()
