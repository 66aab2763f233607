"""Reads a rank's share of Parquet files as batches of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from horovod.spark.common.shares import Span, share

Batch = dict[str, np.ndarray[Any, Any]]

BUFFERED_BATCHES = 16  # within which rows are permuted


def to_array(name: str, column: Any) -> np.ndarray[Any, Any]:
    """Returns a column of an Arrow batch as an array; lists of one length become rows of a matrix.

    Raises:
        ValueError: values are missing, or lists have different lengths.
    """
    import pyarrow as pa

    if column.null_count:
        raise ValueError(f"column {name} has {column.null_count} missing values; fill or drop them")
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        found: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
        return found
    flat, rows = column.flatten(), len(column)
    lengths = np.diff(column.offsets.to_numpy())
    if rows and (lengths != lengths[0]).any():
        raise ValueError(
            f"column {name} has rows of {lengths.min()} and {lengths.max()} values; they must be equal"
        )
    inner = to_array(name, flat)
    return inner.reshape(rows, -1, *inner.shape[1:]) if rows else inner.reshape(0, 0)


class Rows:
    """The rows of one rank in a dataset.

    Args:
        dataset: a ``pyarrow.dataset.Dataset`` of Parquet files.
        columns: those to read.
        rank: of this rank.
        size: the number of ranks.
        in_memory: keep what was read once.
    """

    def __init__(
        self, dataset: Any, columns: Sequence[str], rank: int, size: int, in_memory: bool = False
    ) -> None:
        fragments = sorted(dataset.get_fragments(), key=lambda fragment: fragment.path)
        self._groups = [group for each in fragments for group in each.split_by_row_group()]
        counts = [sum(each.num_rows for each in group.row_groups) for group in self._groups]
        self.total = sum(counts)
        self._columns, self._spans = [*columns], share(counts, rank, size)
        self.count = sum(span.stop - span.start for span in self._spans)
        self._kept: dict[Span, Batch] | None = {} if in_memory else None

    def batches(self, batch: int, seed: int | None = None) -> Iterator[Batch]:
        """Yields all rows once, the last batch may be smaller.

        Args:
            batch: the rows of a batch.
            seed: permutes the groups, and rows within 16 batches; None: in the order of the files.
        """
        generator = None if seed is None else np.random.default_rng(seed)
        spans = [*self._spans] if generator is None else [*map(tuple, generator.permutation(self._spans))]
        rest: Batch = {}
        for span in spans:
            for block in self._blocks(Span(*map(int, span)), batch * BUFFERED_BATCHES):
                rest = _joined(rest, block)
                rows = _count(rest)
                if generator is not None:
                    order = generator.permutation(rows)
                    rest = {name: values[order] for name, values in rest.items()}
                whole = rows - rows % batch
                for at in range(0, whole, batch):
                    yield {name: values[at : at + batch] for name, values in rest.items()}
                rest = {name: values[whole:] for name, values in rest.items()}
        if _count(rest):
            yield rest

    def whole_batches(self, batch: int, steps: int, seed: int | None = None) -> Iterator[Batch]:
        """Yields ``steps`` batches of full size; begins anew when the rows are used up.

        So every rank makes the same number of steps, and none waits for one that has no data left.
        """
        made, rounds = 0, 0
        rest: Batch = {}
        while made < steps:
            for block in self.batches(batch, None if seed is None else seed + 7919 * rounds):
                rest = _joined(rest, block)
                while _count(rest) >= batch and made < steps:
                    yield {name: values[:batch] for name, values in rest.items()}
                    rest = {name: values[batch:] for name, values in rest.items()}
                    made += 1
                if made == steps:
                    return
            rounds += 1

    def _blocks(self, span: Span, rows: int) -> Iterator[Batch]:
        if self._kept is None:
            yield from self._read(span, rows)
        else:
            if span not in self._kept:
                parts = [*self._read(span, rows)]
                self._kept[span] = {
                    name: np.concatenate([part[name] for part in parts]) for name in self._columns
                }
            yield self._kept[span]

    def _read(self, span: Span, rows: int) -> Iterator[Batch]:
        at = 0
        for block in self._groups[span.group].to_batches(columns=self._columns, batch_size=rows):
            first, last = max(span.start - at, 0), min(span.stop - at, len(block))
            at += len(block)
            if first < last:
                part = block.slice(first, last - first)
                yield {name: to_array(name, part.column(name)) for name in self._columns}


def _count(batch: Batch) -> int:
    return len(next(iter(batch.values()))) if batch else 0


def _joined(first: Batch, second: Batch) -> Batch:
    if not _count(first):
        return second
    return {name: np.concatenate([first[name], second[name]]) for name in second}
