"""Which rows each rank reads, and how many steps all ranks make: arithmetic without files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Rows ``start`` to ``stop`` of a row group."""

    group: int
    start: int
    stop: int


def share(counts: Sequence[int], rank: int, size: int) -> list[Span]:
    """Returns the rows of a rank: the rows of all groups in their order are cut into ``size`` equal parts.

    The parts differ by one row at most, however large the groups are. At most ``size - 1`` groups are read by
    more than one rank.

    Args:
        counts: the number of rows of each group.
        rank: whose part.
        size: the number of parts.
    """
    total = sum(counts)
    start, stop = total * rank // size, total * (rank + 1) // size
    if start == stop and total:  # fewer rows than ranks: some are read twice
        start, stop = rank % total, rank % total + 1
    spans, before = [], 0
    for group, count in enumerate(counts):
        first, last = max(start - before, 0), min(stop - before, count)
        if first < last:
            spans.append(Span(group, first, last))
        before += count
    return spans


def steps(rows: int, size: int, batch: int) -> int:
    """Returns the number of batches of an epoch, the same for all ranks: enough for the largest share."""
    largest = math.ceil(rows / size)
    return math.ceil(largest / batch)
