"""The states of processes, for programs that ask an ElasticDriver for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

READY = "READY"
SUCCESS = "SUCCESS"
FAILURE = "FAILURE"


class Driver(Protocol):
    """What is asked of an ElasticDriver."""

    def states(self) -> Mapping[tuple[str, int], str]:
        """Returns the states of the processes of the running epoch, by host and seat."""

    def world_size(self) -> int:
        """Returns the number of ranks."""


class WorkerStateRegistry:
    """Shows the processes of a driver's running epoch, by the names of their hosts and their seats."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def get(self, state: str) -> set[tuple[str, int]]:
        """Returns those that wait for their place, have ended with 0, or have failed."""
        return {place for place, each in self._driver.states().items() if each == state}

    def count(self, state: str) -> int:
        """Returns the number of ``get``."""
        return len(self.get(state))

    def get_recorded_slots(self) -> set[tuple[str, int]]:
        """Returns those that are in any of the states."""
        return set(self._driver.states())

    def size(self) -> int:
        """Returns the number of ranks."""
        return self._driver.world_size()
