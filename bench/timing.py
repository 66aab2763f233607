"""How a peer in Python times one case, as bench/protocol.c does."""

from __future__ import annotations

import os
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


def mean_time(peer: Peer, work: Work, seconds: float) -> float:
    """Of the last one of batches that double until they take long enough, as bench/protocol.c does it."""
    count, spent = 1, 0.0
    while spent < seconds / 2:
        count *= 2
        peer.barrier()
        start = time.perf_counter()
        for _ in range(count):
            work()
        spent = peer.largest(time.perf_counter() - start)
    return spent / count


def time_of_call(peer: Peer, work: Work, seconds: float) -> float:
    """Seconds: the median, or the mean where BENCH_MEAN is set."""
    return (mean_time if os.environ.get("BENCH_MEAN") else median_time)(peer, work, seconds)
