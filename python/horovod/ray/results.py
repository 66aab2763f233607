"""Waits for the workers of a job, and finds out which one has failed first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.util.queue import Queue

from horovod.common.exceptions import HorovodInternalError, JobFailedError
from horovod.runner.functions import FAILED

GRACE_SECONDS = 5.0  # in which the others may end by themselves after a failure
LOG_SECONDS = 0.1  # between two looks for values that ranks have logged

Callback = Callable[[Any], Any]


class Log:
    """What ranks send by ``ray_logger.log``, for the callbacks of the program."""

    def __init__(self, callbacks: Sequence[Callback] | None) -> None:
        self._callbacks = callbacks or ()
        self._queue = Queue(actor_options={"num_cpus": 0}) if self._callbacks else None  # false if empty

    def set_on(self, workers: Sequence[Any]) -> None:
        """Lets workers send what they log."""
        if self._queue is not None:
            ray.get([worker.set_queue.remote(self._queue) for worker in workers])

    @property
    def seconds(self) -> float | None:
        """The time after which to call ``pass_on`` again; None: never."""
        return None if self._queue is None else LOG_SECONDS

    def pass_on(self) -> None:
        """Gives to the callbacks what has come."""
        if self._queue is not None:
            for value in self._queue.get_nowait_batch(self._queue.qsize()):
                for callback in self._callbacks:
                    callback(value)

    def close(self) -> None:
        """Ends the queue."""
        if self._queue is not None:
            self._queue.shutdown()


def first_cause(errors: Sequence[BaseException]) -> BaseException:
    """Returns the first error of ranks that is not about another rank; else the first one."""
    return min(errors, key=lambda error: isinstance(getattr(error, "cause", error), HorovodInternalError))


def results(futures: Sequence[Any], log: Log, stop: Callable[[], None]) -> list[Any]:
    """Returns the results of all ranks.

    Args:
        futures: those of the ranks.
        log: what they send meanwhile.
        stop: ends the ranks, when they do not end by themselves, and when the caller is interrupted.

    Raises:
        JobFailedError: a rank failed.
    """
    pending = {future: rank for rank, future in enumerate(futures)}
    found: dict[int, Any] = {}
    errors: list[tuple[int, BaseException]] = []
    end = None
    try:
        while pending:
            seconds = min(
                filter(None, (log.seconds, end and max(end - time.monotonic(), 0.001))), default=None
            )
            done, _ = ray.wait([*pending], timeout=seconds)
            log.pass_on()
            for future in done:
                rank = pending.pop(future)
                try:
                    found[rank] = ray.get(future)
                except Exception as error:
                    errors.append((rank, error))
                    end = end or time.monotonic() + GRACE_SECONDS
            if end and not done and time.monotonic() >= end:  # those that have ended meanwhile count
                break
        log.pass_on()
    except BaseException:
        stop()
        raise
    if errors:
        if pending:
            stop()
        cause = first_cause([error for _, error in errors])
        rank = next(rank for rank, error in errors if error is cause)
        text = f"{FAILED}.\nrank {rank} of {len(futures)} failed first:\n{cause}"
        raise JobFailedError(text) from cause
    return [found[rank] for rank in range(len(futures))]
