"""A deadline for several waits together."""

from __future__ import annotations

import time


class TimeoutException(Exception):  # noqa: N818
    """The time is over."""


class Timeout:
    """A deadline, counted from now.

    Args:
        timeout: seconds.
        message: the text of the exception, in which ``{activity}`` and ``{timeout}`` are replaced.
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout, self._message = timeout, message
        self._end = time.monotonic() + timeout

    @property
    def timeout(self) -> float:
        """The whole time in seconds."""
        return self._timeout

    def remaining(self) -> float:
        """Returns the seconds that are left; 0 after the deadline."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Returns true after the deadline."""
        return self.remaining() == 0

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException after the deadline; ``activity`` names what the caller waited for."""
        if self.timed_out():
            text = self._message.format(activity=activity, timeout=self._timeout)
            raise TimeoutException(f"{text} (timeout: {self._timeout} seconds)")
