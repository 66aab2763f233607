"""Operations of a process group in progress, and the names of those that communication hooks start."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed

from horovod.common.exceptions import HorovodInternalError
from horovod.torch import memory

dist: Any = torch.distributed  # its type annotations lack newer members


class Naming(threading.local):
    """The names of the operations that this thread starts for a communication hook."""

    names: Iterator[str] | None = None

    @contextlib.contextmanager
    def by(self, names: Iterator[str] | None) -> Iterator[None]:
        before, self.names = self.names, names
        try:
            yield
        finally:
            self.names = before


naming = Naming()


class GlooHandle:
    """An operation of Gloo with the methods of an engine's handle."""

    def __init__(self, work: Any) -> None:
        self._over = threading.Event()
        self._future = work.get_future()
        self._future.add_done_callback(lambda _: self._over.set())

    def done(self) -> bool:
        return bool(self._future.done())

    def wait(self, seconds: float) -> None:
        if not self.done() and not self._over.wait(seconds):
            raise TimeoutError(f"an operation of Gloo is in progress after {1000 * seconds:.0f} ms")
        self._future.value()

    def add_done_callback(self, function: Callable[[Any], Any]) -> None:
        self._future.add_done_callback(lambda _: function(self))


class Owner(Protocol):
    """The members of a group that its operations use."""

    unwaited: OrderedDict[Work, None]  # operations kept without a caller that has waited for them

    def rank(self) -> int:
        """This rank in the group."""

    def complete_later(self, complete: Callable[[], None]) -> None:
        """Calls a function on the thread of the group that completes futures."""


def _working_on(stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager[Any]:
    """Lets this thread work on a stream of a GPU, if there is one."""
    return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)


class Work(dist.Work):  # type: ignore[misc]
    """A collective in progress.

    Args:
        group: the group that has started it.
        handle: a handle of the engine, or a GlooHandle.
        finish: a function of the handle's outcome that completes it, e.g. copies into the caller's tensors.
        results: the caller's tensors.
        limit: the timeout in seconds.
        stream: of a GPU, for the copies of `finish`; the caller's when it started the operation.
    """

    def __init__(
        self,
        group: Owner,
        handle: Any,
        finish: Callable[[Any], None] | None,
        results: Any,
        limit: float,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        super().__init__()
        self._group, self._handle, self._results, self._limit = group, handle, results, limit
        self._names = naming.names
        self._future: torch.futures.Future[Any] | None = None
        self._finish = finish  # None once it has run
        self._error: Exception | None = None
        self._stream = stream
        if finish:
            self._finishing = threading.RLock()  # reentrant, as handlers of signals may wait
            handle.add_done_callback(self._complete)

    def _complete(self, handle: Any) -> None:
        """Runs `finish` once, on the thread that completes the operation or one that finds it completed."""
        with self._finishing:
            if self._finish:
                try:
                    with _working_on(self._stream):
                        self._finish(handle.wait(0))
                except Exception as error:
                    self._error = error
                self._finish = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._group.unwaited.pop(self, None)
        if error := self._failure(timeout.total_seconds() if timeout else self._limit):
            raise error
        if self._future is not None:
            with contextlib.suppress(RuntimeError):  # it may have failed by an earlier timeout
                self._future.wait()
        return True

    synchronize = wait

    def _failure(self, limit: float) -> Any:
        """Waits up to `limit` seconds for the operation, not for the future; returns its error or None."""
        try:
            self._handle.wait(limit)
            if self._finish:
                self._complete(self._handle)
            if self._stream:
                torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
        except TimeoutError as error:
            return dist.DistBackendError(
                f"rank {self._group.rank()} of the group: {error}, which is the timeout: another rank has "
                "not called it, or is slow; init_process_group, new_group and wait() take a longer one"
            )
        except HorovodInternalError as error:
            failure = dist.DistBackendError(str(error))
            failure.__cause__ = error
            return failure
        except Exception as error:
            return error
        return self._error

    def get_future(self) -> torch.futures.Future[Any]:
        self._group.unwaited.pop(self, None)
        if self._future is None:
            gpus = memory.gpus_of(self._results)
            over: torch.futures.Future[Exception | None] = torch.futures.Future(devices=gpus)
            self._future = over.then(self._outcome)

            def complete() -> None:
                with naming.by(self._names):
                    over.set_result(self._failure(self._limit))

            self._group.complete_later(complete)
        return self._future

    def _outcome(self, over: torch.futures.Future[Exception | None]) -> Any:
        """Raises the error: C++ sees an exception raised in `then`, but not one set in a Future."""
        if error := over.value():
            raise error
        return self._results

    def result(self) -> Any:
        return self._results

    def is_completed(self) -> bool:
        if not self._handle.done():
            return False
        if self._finish:
            self._complete(self._handle)
        return True

    def exception(self) -> Any:
        return self._failure(0) if self.is_completed() else None

    def is_success(self) -> bool:
        return self.is_completed() and not self.exception()


class Received(dist.Work):  # type: ignore[misc]
    """A receive of Gloo into other memory than that of the caller's tensor.

    Like Gloo's own operation, it is completed once a caller has waited for it.
    """

    def __init__(self, work: Any, finish: Callable[[], None]) -> None:
        super().__init__()
        self._work, self._finish = work, finish
        self._finished = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._finished:  # Gloo's own wait does not return a second time
            self._work.wait(*filter(None, [timeout]))
            self._finish()
            self._finished = True
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return self._finished

    is_success = is_completed

    def _source_rank(self) -> int:
        return int(self._work._source_rank())


def leave_untraced(function: Any) -> None:
    """Makes torch.compile skip a function, as torch.compiler.disable does, which takes a second to import."""
    frames: Any = torch._C._dynamo.eval_frame
    function._torchdynamo_disable = True
    if hasattr(frames, "set_code_exec_strategy"):
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        frames.set_code_exec_strategy(function.__code__, strategy)
    elif hasattr(frames, "skip_code"):
        frames.skip_code(function.__code__)


def leave_methods_untraced(*kinds: type) -> None:
    """Does this for every method of these classes."""
    for kind in kinds:
        for method in vars(kind).values():
            if hasattr(method, "__code__"):
                leave_untraced(method)
