"""Loaders that read ahead in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


def reading() -> int:
    return sum(thread.name == "horovod.data" for thread in threading.enumerate())


class Squares(BaseDataLoader):
    def __init__(self, count: int, fail_at: int | None = None) -> None:
        self.count, self.fail_at, self.read = count, fail_at, 0

    def __len__(self) -> int:
        return self.count

    def _iterate(self) -> Iterator[int]:
        for number in range(self.count):
            if number == self.fail_at:
                raise KeyError("no such row")
            self.read += 1
            yield number * number

    def _process_batch(self, batch: int) -> str:
        return f"<{batch}>"


class AsyncSquares(AsyncDataLoaderMixin, Squares):
    pass


@pytest.mark.parametrize("size", [0, 1, 2, 64])
def test_every_epoch_has_all_batches_in_order(size: int) -> None:
    loader = AsyncSquares(size, count=5)
    for _ in range(3):
        assert list(loader) == ["<0>", "<1>", "<4>", "<9>", "<16>"]
        assert reading() == 0
    assert len(loader) == 5
    assert list(AsyncSquares(size, count=0)) == []


def test_not_more_is_read_ahead_than_the_queue_holds() -> None:
    loader = AsyncSquares(2, count=100)
    batches = iter(loader)
    assert next(batches) == "<0>"
    assert loader.read <= 1 + 2 + 2  # taken, in the queue, in the thread's hands and just generated
    batches.close()  # type: ignore[attr-defined]
    assert reading() == 0


def test_an_epoch_that_is_broken_off_leaves_nothing_for_the_next() -> None:
    loader = AsyncSquares(2, count=50)
    for batch in loader:
        if batch == "<4>":
            break
    assert next(iter(loader)) == "<0>"
    batches = iter(loader)
    assert next(batches) == "<0>"
    loader.close_async_loader()
    assert reading() == 0
    assert list(batches) == []
    loader.close_async_loader()


@pytest.mark.parametrize("size", [0, 3])
def test_exceptions_are_raised_in_the_program(size: int) -> None:
    seen: list[Any] = []
    with pytest.raises(KeyError, match="no such row"):
        seen.extend(AsyncSquares(size, count=5, fail_at=2))
    assert reading() == 0


def test_two_epochs_at_a_time() -> None:
    loader = AsyncSquares(1, count=4)
    assert [*zip(loader, loader, strict=True)][3] == ("<9>", "<9>")


def test_time_of_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    list(AsyncSquares(2, True, count=3))
    assert "for 3 batches" in capsys.readouterr().err
    with pytest.raises(ValueError, match="async_loader_queue_size=-1"):
        AsyncSquares(-1, count=3)
