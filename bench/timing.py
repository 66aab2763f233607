"""How a peer in Python times one case, as bench/protocol.c does."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Protocol

WARM_UP, FEWEST, MOST, TOO_LONG = 3, 3, 2000, 5
MEAN_TIMES = 10

Work = Callable[[], object]


class Peer(Protocol):
    """The ranks of a library."""

    def barrier(self) -> None: ...

    def largest(self, value: float) -> float:
        """Over all ranks."""


def warm_up(peer: Peer, work: Work, seconds: float) -> float:
    """A few calls, one if it takes longer than that: the first ones compile. The seconds of the last one."""
    longest = 0.0
    for _ in range(WARM_UP):
        start = time.perf_counter()
        work()
        longest = peer.largest(time.perf_counter() - start)
        if longest > seconds:
            break
    return longest


def median_time(peer: Peer, work: Work, seconds: float) -> float:
    """Seconds of a call; as many calls on every rank as fill the time, a few at least."""
    longest = warm_up(peer, work, seconds)
    times = []
    peer.barrier()
    fewest = 1 if longest > TOO_LONG * seconds else FEWEST
    for _ in range(min(max(int(seconds / longest), fewest), MOST)):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def mean_time(peer: Peer, work: Work, seconds: float) -> float:
    """Of all calls in batches, for MEAN_TIMES as long as a median takes, as bench/protocol.c does it."""
    warm_up(peer, work, MEAN_TIMES * seconds)
    total, calls, count = 0.0, 0, 1
    while total < MEAN_TIMES * seconds:
        peer.barrier()
        start = time.perf_counter()
        for _ in range(count):
            work()
        spent = peer.largest(time.perf_counter() - start)
        total, calls = total + spent, calls + count
        if spent < seconds / 2:
            count *= 2
    return total / calls


def time_of_call(peer: Peer, work: Work, seconds: float) -> float:
    """Seconds: the median, or the mean where BENCH_MEAN is set."""
    return (mean_time if os.environ.get("BENCH_MEAN") else median_time)(peer, work, seconds)
