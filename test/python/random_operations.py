"""Random operations for frameworks, and what they give, by NumPy alone.

`draw` makes the same operations of a seed on every rank: what each rank contributes is part of them, so
`expected` knows every input. A framework's test runs them in its own ways.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SUM, AVERAGE, MIN, MAX, PRODUCT = "Sum", "Average", "Min", "Max", "Product"
EXTREME = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-42)  # the last is subnormal in float32
ORDINARY = (1.0, 0.5, -2.0, 3.0)
FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Operation:
    """One call. A source is a number: tensors with one source are one tensor, which several calls read."""

    number: int
    kind: str
    dtype: str
    form: str  # the framework's way to run it
    ranks: tuple[int, ...]
    sources: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]  # without the number of rows, which may differ by rank
    rows: tuple[tuple[int, ...], ...]  # of each tensor, by place in `ranks`
    reduction: str = SUM
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    splits: tuple[tuple[int, ...], ...] = ()  # of alltoall, by place; empty: evenly

    @property
    def name(self) -> str:
        return f"random.{self.number}"


def value(seed: int, operation: Operation, tensor: int, place: int) -> Any:
    """Small whole numbers, so that sums don't depend on their order; sometimes infinities and the like."""
    shape = (operation.rows[tensor][place], *operation.shapes[tensor])
    source = operation.sources[tensor]
    generator = np.random.default_rng([seed, source, operation.ranks[place]])
    if operation.dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    low = 0 if operation.dtype.startswith("u") else -3
    values = generator.integers(low, 4, shape).astype(operation.dtype)
    if operation.dtype in FLOATS and source % 4 == 0 and operation.reduction in (SUM, AVERAGE):
        some = generator.random(shape) < 0.1
        chosen = generator.choice([np.inf, -np.inf, np.nan, -0.0], shape)
        values = np.where(some, chosen, values).astype(operation.dtype)
    return values


def _factors(chance: random.Random, dtype: str, reduction: str) -> tuple[float, float]:
    if reduction not in (SUM, AVERAGE) or (reduction == AVERAGE and dtype not in FLOATS):
        return 1.0, 1.0
    if dtype not in FLOATS:
        return chance.choice([(1.0, 1.0), (2.0, 1.0), (1.0, 3.0), (0.0, 1.0), (1.0, 0.0)])
    if chance.random() < 0.3:
        pair = [chance.choice(EXTREME), chance.choice(ORDINARY)]
        chance.shuffle(pair)
        return pair[0], pair[1]
    return chance.choice(ORDINARY), chance.choice(ORDINARY)


@dataclass
class Kinds:
    """What a framework can do."""

    forms: Sequence[str]
    dtypes: Sequence[str]  # of NumPy
    ragged: bool = True  # rows of allgather and alltoall may differ by rank


def _draw_one(chance: random.Random, number: int, sets: Sequence[tuple[int, ...]], kinds: Kinds) -> Operation:
    kind = chance.choice(["allreduce"] * 4 + ["allgather", "broadcast", "alltoall", "reducescatter"])
    ranks = chance.choice(sets)
    reduces = kind in ("allreduce", "reducescatter")
    dtype = chance.choice([each for each in kinds.dtypes if not reduces or each != "bool"])
    reduction = SUM
    if kind == "allreduce":
        reduction = chance.choice([SUM, SUM, AVERAGE, AVERAGE, MIN, MAX, PRODUCT])
    elif kind == "reducescatter":
        reduction = chance.choice([SUM, AVERAGE])
    count = chance.choice([1, 1, 1, 2, 3]) if kind != "alltoall" else 1
    shapes = tuple(
        tuple(chance.choice([1, 2, 3, 7]) for _ in range(chance.randrange(3))) for _ in range(count)
    )
    places = range(len(ranks))
    own, splits = [chance.choice([1, 2, 5, 100]) * len(ranks) for _ in range(count)], ()
    rows = tuple((each,) * len(ranks) for each in own)
    if kind == "allgather" and kinds.ragged:
        rows = tuple(tuple(chance.randrange(5) for _ in places) for _ in range(count))
    if kind == "alltoall" and kinds.ragged and chance.random() < 0.7:
        splits = tuple(tuple(chance.randrange(4) for _ in places) for _ in places)
        rows = (tuple(map(sum, splits)),)
    before, after = _factors(chance, dtype, reduction) if reduces else (1.0, 1.0)
    return Operation(
        number, kind, dtype, chance.choice(kinds.forms), ranks,
        tuple(100 * number + i for i in range(count)), shapes, rows, reduction, before, after,
        chance.choice(ranks), splits,
    )  # fmt: skip


def _alias(chance: random.Random, operation: Operation, before: Operation | None) -> Operation:
    """Lets it read the tensors of the one before, if they fit it."""
    same = ("kind", "dtype", "ranks", "form", "reduction")
    if operation.kind != "allreduce" or before is None or chance.random() > 0.5:
        return operation
    if any(getattr(operation, each) != getattr(before, each) for each in same):
        return operation
    parts = {"sources": before.sources, "shapes": before.shapes, "rows": before.rows}
    return Operation(**{**operation.__dict__, **parts})


def draw(
    seed: int, count: int, sets: Sequence[tuple[int, ...]], kinds: Kinds, start: int = 0
) -> list[Operation]:
    """Operations of the seed, the same ones on every rank."""
    chance, operations = random.Random(f"{seed} {start}"), list[Operation]()
    for number in range(start, start + count):
        drawn = _draw_one(chance, number, sets, kinds)
        operations.append(_alias(chance, drawn, operations[-1] if operations else None))
    return operations


# ---- what they give -------------------------------------------------------------------------------------


def _reduce(operation: Operation, inputs: Sequence[Any]) -> Any:
    """In double precision. Integers are exact; their average truncates towards zero."""
    wide = np.float64 if operation.dtype in FLOATS else np.int64
    with np.errstate(all="ignore"):
        terms = [each.astype(wide) for each in inputs]
        if operation.prescale != 1:
            terms = [each * wide(operation.prescale) for each in terms]
        ways = {MIN: np.minimum, MAX: np.maximum, PRODUCT: np.multiply}
        total = ways.get(operation.reduction, np.add).reduce(terms)
        if operation.reduction == AVERAGE:
            total = total / len(inputs) if wide is np.float64 else np.trunc(total / len(inputs))
        if operation.postscale != 1:
            total = total * wide(operation.postscale)
        return total.astype(operation.dtype)


def expected(seed: int, operation: Operation, rank: int) -> list[Any]:
    """The results of a rank of the process set, one for each tensor."""
    places = range(len(operation.ranks))
    place, results = operation.ranks.index(rank), []
    for tensor in range(len(operation.sources)):
        inputs = [value(seed, operation, tensor, each) for each in places]
        if operation.kind == "allreduce":
            results.append(_reduce(operation, inputs))
        elif operation.kind == "reducescatter":
            results.append(np.split(_reduce(operation, inputs), len(places))[place])
        elif operation.kind == "allgather":
            results.append(np.concatenate(inputs))
        elif operation.kind == "broadcast":
            results.append(inputs[operation.ranks.index(operation.root)])
        else:
            even = (operation.rows[0][0] // len(places),) * len(places)
            cuts = [np.cumsum(operation.splits[each] if operation.splits else even)[:-1] for each in places]
            parts = [np.split(each, cut)[place] for each, cut in zip(inputs, cuts, strict=True)]
            results.append(np.concatenate(parts))
    return results


def check(seed: int, operation: Operation, rank: int, results: Sequence[Any]) -> None:
    """AssertionError, with all that is needed to try it again, if they are not what is expected."""
    wanted = expected(seed, operation, rank)
    precision = {"float16": 4e-3, "float32": 1e-6, "float64": 1e-14}.get(operation.dtype, 0.0)
    least = 8 * float(np.finfo(operation.dtype).smallest_subnormal) if precision else 0.0
    scale = abs(operation.prescale * operation.postscale)
    if operation.reduction in (SUM, AVERAGE) and np.isfinite(scale):
        least = max(least, 4 * scale * precision)  # of terms up to 3 in size, which may cancel
    for got, want in zip(results, wanted, strict=True):
        text = f"HOROVOD_TEST_SEED={seed}, rank {rank}: {operation}"
        assert got.dtype == want.dtype and got.shape == want.shape, (text, got.dtype, got.shape)
        np.testing.assert_allclose(got, want, rtol=precision, atol=least, err_msg=text)
