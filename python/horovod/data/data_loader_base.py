"""The base classes of loaders."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

END = object()
DRAIN_SECONDS = 0.05


class BaseDataLoader:
    """A loader: a subclass has ``__len__`` and ``_iterate``."""

    def __len__(self) -> int:
        """Returns the number of batches."""
        raise NotImplementedError

    def _iterate(self) -> Iterable[Any]:
        """Yields the batches of one epoch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """Returns what the program gets for a batch, in its own thread."""
        return batch


class _Epoch:
    """The batches of one epoch, which a thread reads ahead."""

    def __init__(self, batches: Iterable[Any], size: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(size)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, args=(batches,), name="horovod.data", daemon=True)
        self._thread.start()

    def _read(self, batches: Iterable[Any]) -> None:
        try:
            for batch in batches:
                if self._stop.is_set():
                    return
                self._queue.put(batch)
        except BaseException as error:
            self._error = error
        self._queue.put(END)

    def get(self) -> Any:
        """Returns the next batch, or END; raises what the thread has raised."""
        batch = self._queue.get()
        if batch is END and self._error:
            raise self._error
        return batch

    def close(self) -> None:
        """Ends the thread; what has been read is dropped, and END comes next."""
        self._stop.set()
        while self._thread.is_alive() or not self._queue.empty():
            with contextlib.suppress(queue.Empty):
                self._queue.get(timeout=DRAIN_SECONDS)
        self._queue.put(END)


class AsyncDataLoaderMixin:
    """Lets a thread read batches ahead; comes before the class of a loader.

    The thread of an epoch begins when the program begins to iterate, and ends with the epoch, also if the
    program breaks off. What it raises is raised in the program.

    Args:
        async_loader_queue_size: how many batches are read ahead; 0: none, without a thread.
        debug_data_loader: whether to print for how long the program waited for batches, after each epoch.
        args: those of the loader.
        kwargs: those of the loader.

    Example::

        class AsyncLoader(AsyncDataLoaderMixin, Loader):
            pass
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        if async_loader_queue_size < 0:
            raise ValueError(f"async_loader_queue_size={async_loader_queue_size} must not be negative")
        super().__init__(*args, **kwargs)
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._epochs: list[_Epoch] = []

    def __iter__(self) -> Iterator[Any]:
        if not self.async_loader_queue_size:
            yield from super().__iter__()  # type: ignore[misc]
            return
        epoch = _Epoch(self._iterate(), self.async_loader_queue_size)  # type: ignore[attr-defined]
        self._epochs.append(epoch)
        count, waited = 0, 0.0
        try:
            while True:
                begin = time.monotonic()
                batch = epoch.get()
                waited += time.monotonic() - begin
                if batch is END:
                    break
                count += 1
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            self._epochs.remove(epoch)
            epoch.close()
        if self.debug_data_loader:
            print(f"horovod.data: waited {waited:.3f} s for {count} batches", file=sys.stderr, flush=True)

    def close_async_loader(self) -> None:
        """Ends threads that still read ahead."""
        for epoch in self._epochs:
            epoch.close()
