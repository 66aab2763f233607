"""How a peer in Python times one case, as bench/protocol.c does."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Protocol

WARM_UP, FEWEST, MOST, TOO_LONG = 3, 3, 2000, 5

Work = Callable[[], object]


class Peer(Protocol):
    """The ranks of a library."""

    def barrier(self) -> None: ...

    def largest(self, value: float) -> float:
        """Over all ranks."""


def median_time(peer: Peer, work: Work, seconds: float) -> float:
    """Seconds of a call; as many calls on every rank as fill the time, a few at least."""
    longest = 0.0
    for _ in range(WARM_UP):
        start = time.perf_counter()
        work()
        longest = peer.largest(time.perf_counter() - start)
        if longest > seconds:
            break
    times = []
    peer.barrier()
    fewest = 1 if longest > TOO_LONG * seconds else FEWEST
    for _ in range(min(max(int(seconds / longest), fewest), MOST)):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
