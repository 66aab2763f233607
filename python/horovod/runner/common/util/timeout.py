"""One deadline for several waits."""

from __future__ import annotations

import time


class TimeoutException(Exception):  # noqa: N818
    """The time is over."""


class Timeout:
    """A deadline that begins now.

    Args:
        timeout: seconds.
        message: of the exception; ``{activity}`` and ``{timeout}`` are filled in.
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout, self._message = timeout, message
        self._end = time.monotonic() + timeout

    @property
    def timeout(self) -> float:
        """The seconds it was made with."""
        return self._timeout

    def remaining(self) -> float:
        """Seconds that are left, 0 when it is over."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether it is over."""
        return self.remaining() == 0

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException when it is over; ``activity`` says what was waited for."""
        if self.timed_out():
            text = self._message.format(activity=activity, timeout=self._timeout)
            raise TimeoutException(f"{text} (timeout: {self._timeout} seconds)")
