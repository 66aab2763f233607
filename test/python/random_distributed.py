"""Random operations of torch.distributed, and the memory that each leaves behind, by plain arithmetic.

A seed gives the tensors of all ranks, so each rank computes what it gets. Tensors have any layout and are
parts of larger memories, which are compared as a whole: a write beside a tensor is a difference, too.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed

dist: Any = torch.distributed
Tensors = list[Any]

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16]
WITH_BITS = [torch.uint8, torch.int8, torch.int32, torch.int64]  # those that Gloo reduces
DTYPES = [*FLOATS, *COMPLEX, *INTEGERS, torch.bool]
BITS = ("BAND", "BOR", "BXOR")
FACTORS = (0.5, 2.0, 0.0, -1.0)  # of sums with one


@dataclass(frozen=True)
class Place:
    """A tensor as a part of a rank's memories."""

    memory: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, memories: Tensors) -> Any:
        return memories[self.memory].as_strided(self.shape, self.strides, self.offset)


class Rank:
    """The tensors of one rank, of which it draws the layouts and the values itself."""

    def __init__(self, seed: str, rank: int, dtype: Any, extremes: bool) -> None:
        self.chance = random.Random(f"{seed} of {rank}")
        self.generator = torch.Generator().manual_seed(self.chance.randrange(1 << 31))
        self.dtype, self.extremes = dtype, extremes
        self.memories: Tensors = []
        self.reads: list[Place] = []
        self.writes: list[Place] = []

    def memory(self, count: int) -> int:
        """New memory of small numbers, whose sums are exact, at times with infinities and the like."""
        low, high = (0, 2) if self.dtype == torch.bool else (0 if not self.dtype.is_signed else -3, 4)
        wide = torch.complex128 if self.dtype.is_complex else torch.float64
        values = torch.randint(
            low, high, (count, 2 if self.dtype.is_complex else 1), generator=self.generator
        )
        values = torch.view_as_complex(values.double()) if self.dtype.is_complex else values.view(-1).to(wide)
        if self.extremes:
            chosen = torch.tensor([float("inf"), float("-inf"), float("nan"), -0.0])
            some = torch.rand(count, generator=self.generator) < 0.1
            values[some] = chosen[torch.randint(0, 4, (int(some.sum()),), generator=self.generator)].to(wide)
        self.memories.append(values.to(self.dtype))
        return len(self.memories) - 1

    def place(self, shape: Sequence[int], repeats: bool = False) -> Place:
        """A tensor in memory of its own; with `repeats` its elements may share memory."""
        chance, strides = self.chance, [0] * len(shape)
        order, step = list(range(len(shape)))[::-1], 1
        gaps: Sequence[int] = (0,)
        if chance.random() < 0.6:
            chance.shuffle(order)
            step, gaps = chance.choice((1, 1, 2, 3)), (0, 0, 1, 3)
        for dimension in order:
            strides[dimension] = step
            step = step * max(shape[dimension], 1) + chance.choice(gaps)
        if repeats and shape and chance.random() < 0.25:
            strides[chance.randrange(len(shape))] = chance.choice((0, 1))
        span = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        offset = chance.randrange(5)
        room = offset + (span if all(shape) else 0) + chance.randrange(1, 5)
        return Place(self.memory(room), tuple(shape), tuple(strides), offset)

    def places(self, shapes: Sequence[Sequence[int]], repeats: bool = False) -> list[Place]:
        """A list of tensors: each in its own memory, or all of them views of one, in rows or columns."""
        kind, count = self.chance.randrange(5), len(shapes)
        if repeats and kind == 4 and len(set(map(tuple, shapes))) == 1:
            return [self.place(shapes[0], repeats)] * count
        if kind < 2:
            return [self.place(shape, repeats) for shape in shapes]
        lengths = [torch.Size(shape).numel() for shape in shapes]
        guard, columns = self.chance.randrange(1, 5), kind == 3
        room = count * max(lengths) if columns else sum(lengths)
        memory, found, offset = self.memory(room + 2 * guard), [], guard
        for shape, length in zip(shapes, lengths, strict=True):
            plain = torch.empty(tuple(shape), device="meta").stride()
            strides = tuple(count * stride if columns else stride for stride in plain)
            found.append(Place(memory, tuple(shape), strides, offset))
            offset += 1 if columns else length
        return found

    def rows(self, whole: Place, first: int, count: int) -> Place:
        """Some rows of another tensor."""
        offset = whole.offset + first * whole.strides[0]
        return Place(whole.memory, (count, *whole.shape[1:]), whole.strides, offset)


@dataclass
class Call:
    """One rank's part of an operation, with tensors of its own."""

    group: Any
    rank: int
    reads: Tensors
    writes: Tensors
    is_async: bool = True


@dataclass
class Operation:
    """`start` makes the call and returns the work; `results` are what a rank's written tensors will hold."""

    name: str
    ranks: list[Rank]
    start: Callable[[Call], Any]
    results: Callable[[int], Tensors]
    tolerance: float = 0.0
    root: int | None = None  # the only rank whose results Gloo defines
    on_gloo: bool = False

    def expected(self, rank: int) -> Tensors:
        """The memories of a rank afterwards."""
        memories = [memory.clone() for memory in self.ranks[rank].memories]
        for place, value in zip(self.ranks[rank].writes, self.results(rank), strict=True):
            place.of(memories).copy_(value.reshape(place.shape))
        return memories


@dataclass
class Draw:
    """What the ranks have in common."""

    seed: str
    size: int
    chance: random.Random = field(init=False)
    dtype: Any = field(init=False)
    ranks: list[Rank] = field(init=False)
    suits_gloo: bool = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.dtype = self.chance.choice(DTYPES)
        floats = self.dtype.is_floating_point or self.dtype.is_complex
        extremes = floats and self.chance.random() < 0.1
        # It gives booleans other bits, and loses NaNs in minima and maxima.
        self.suits_gloo = self.dtype != torch.bool and not extremes
        self.ranks = [Rank(self.seed, rank, self.dtype, extremes) for rank in range(self.size)]

    def shape(self, least: int = 0) -> tuple[int, ...]:
        if self.chance.random() < 0.03:
            return (self.chance.choice((3000, 40000)),)
        return tuple(self.chance.choice((0, 1, 2, 3, 5)) for _ in range(self.chance.randrange(least, 5)))

    def before(self, rank: int, place: Place) -> Any:
        return place.of(self.ranks[rank].memories).clone()

    def reads(self, rank: int) -> Tensors:
        return [self.before(rank, place) for place in self.ranks[rank].reads]

    def writes(self, rank: int) -> Tensors:
        return [self.before(rank, place) for place in self.ranks[rank].writes]

    def alias(self) -> None:
        """On some ranks one of the tensors that are read is one that is written."""
        for rank in self.ranks:
            written = rank.chance.choice(rank.writes) if rank.writes else None
            fitting = [i for i, read in enumerate(rank.reads) if written and read.shape == written.shape]
            if fitting and rank.chance.random() < 0.2:
                rank.reads[rank.chance.choice(fitting)] = written


# ---- reductions -----------------------------------------------------------------------------------------


@dataclass
class Reduction:
    """An operator, and what it does."""

    name: str
    op: Any
    factor: float = 1.0

    def of(self, values: Tensors) -> Any:
        """In double precision, complex numbers by parts; averages of integers truncate towards zero."""
        dtype = values[0].dtype
        if dtype == torch.bool:
            ways = {"SUM": torch.any, "MAX": torch.any, "MIN": torch.all, "PRODUCT": torch.all}
            return ways[self.name](torch.stack(values), dim=0)
        if dtype.is_complex:
            return torch.view_as_complex(self.of([torch.view_as_real(each) for each in values]))
        wide = [each.to(torch.float64 if dtype.is_floating_point else torch.int64) for each in values]
        if self.name == "PREMUL_SUM":
            wide = [each * self.factor for each in wide]
        total = functools.reduce(_WAYS[self.name], wide)
        if self.name == "AVG":
            total = total.div(len(values), rounding_mode=None if dtype.is_floating_point else "trunc")
        return total.to(dtype)


_WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PREMUL_SUM": torch.add,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "PRODUCT": torch.mul,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def reduction(draw: Draw) -> Reduction:
    names = ["SUM", "AVG"]
    if draw.dtype == torch.bool:
        names = ["SUM", "MIN", "MAX", "PRODUCT"]
    elif not draw.dtype.is_complex:
        names += ["MIN", "MAX", "PRODUCT"]
    if draw.dtype.is_floating_point or draw.dtype.is_complex:
        names += ["PREMUL_SUM"]
    if draw.dtype in WITH_BITS:
        names += BITS
    name, factor = draw.chance.choice(names), draw.chance.choice(FACTORS)
    if name == "PREMUL_SUM":
        return Reduction(name, dist._make_nccl_premul_sum(factor), factor)
    return Reduction(name, getattr(dist.ReduceOp, name))


def precision(draw: Draw, how: Reduction) -> float:
    if how.name != "AVG":
        return 0.0
    return {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6}.get(draw.dtype, 1e-6)


def reducing(draw: Draw, how: Reduction, start: Any, results: Any, **more: Any) -> Operation:
    name = how.name if how.name != "PREMUL_SUM" else f"sum of {how.factor} times"
    return Operation(name, draw.ranks, start, results, precision(draw, how), **more)


# ---- operations -----------------------------------------------------------------------------------------


def all_reduce(draw: Draw) -> Operation:
    how, shape = reduction(draw), draw.shape()
    for rank in draw.ranks:
        rank.writes = [rank.place(shape)]
    return reducing(
        draw, how,
        lambda call: dist.all_reduce(call.writes[0], how.op, call.group, call.is_async),
        lambda rank: [how.of([draw.writes(each)[0] for each in range(draw.size)])],
    )  # fmt: skip


def _all_reduce_many(draw: Draw, start: Callable[[Reduction, Call], Any]) -> Operation:
    how, shapes = reduction(draw), [draw.shape() for _ in range(draw.chance.randrange(1, 4))]
    for rank in draw.ranks:
        rank.writes = rank.places(shapes)

    def results(rank: int) -> Tensors:
        by_rank = [draw.writes(each) for each in range(draw.size)]
        return [how.of(list(values)) for values in zip(*by_rank, strict=True)]

    return reducing(draw, how, lambda call: start(how, call), results)


def all_reduce_coalesced(draw: Draw) -> Operation:
    return _all_reduce_many(
        draw, lambda how, call: dist.all_reduce_coalesced(call.writes, how.op, call.group, call.is_async)
    )


def all_reduce_managed(draw: Draw) -> Operation:
    def start(how: Reduction, call: Call) -> Any:
        with dist._coalescing_manager(call.group, async_ops=call.is_async) as manager:
            for tensor in call.writes:
                dist.all_reduce(tensor, how.op, call.group)
        return manager if call.is_async else None

    return _all_reduce_many(draw, start)


def reduce(draw: Draw) -> Operation:
    how, shape, root = reduction(draw), draw.shape(), draw.chance.randrange(draw.size)
    for rank in draw.ranks:
        rank.writes = [rank.place(shape)]

    def start(call: Call) -> Any:
        return dist.reduce(
            call.writes[0], group_dst=root, op=how.op, group=call.group, async_op=call.is_async
        )

    def results(rank: int) -> Tensors:  # elsewhere the tensor stays as it was
        values = [draw.writes(each)[0] for each in range(draw.size)]
        return [how.of(values) if rank == root else values[rank]]

    return reducing(draw, how, start, results, root=root)


def broadcast(draw: Draw) -> Operation:
    shape, root = draw.shape(), draw.chance.randrange(draw.size)
    for i, rank in enumerate(draw.ranks):
        if i == root:
            rank.reads = [rank.place(shape, repeats=True)]
        else:
            rank.writes = [rank.place(shape)]

    def start(call: Call) -> Any:
        (tensor,) = call.reads or call.writes
        return dist.broadcast(tensor, group=call.group, async_op=call.is_async, group_src=root)

    return Operation("", draw.ranks, start, lambda rank: draw.reads(root) if rank != root else [])


def all_gather(draw: Draw) -> Operation:
    shape = draw.shape()
    for rank in draw.ranks:
        rank.reads = [rank.place(shape, repeats=True)]
        rank.writes = rank.places([shape] * draw.size)
    draw.alias()
    return Operation(
        "", draw.ranks,
        lambda call: dist.all_gather(call.writes, call.reads[0], call.group, call.is_async),
        lambda rank: [draw.reads(each)[0] for each in range(draw.size)],
    )  # fmt: skip


def all_gather_coalesced(draw: Draw) -> Operation:
    shapes = [draw.shape() for _ in range(draw.chance.randrange(1, 4))]
    for rank in draw.ranks:
        rank.reads = rank.places(shapes, repeats=True)
        rank.writes = [place for _ in draw.ranks for place in rank.places(shapes)]

    def start(call: Call) -> Any:
        lists = [call.writes[i : i + len(shapes)] for i in range(0, len(call.writes), len(shapes))]
        return dist.all_gather_coalesced(lists, call.reads, call.group, call.is_async)

    return Operation(
        "", draw.ranks, start, lambda rank: [value for each in range(draw.size) for value in draw.reads(each)]
    )  # fmt: skip


def _whole(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of all ranks' parts: one after the other, or stacked."""
    if not shape or draw.chance.random() < 0.3:
        return (draw.size, *shape)
    return (draw.size * shape[0], *shape[1:])


def _within(draw: Draw, rank: Rank, whole: Place, shape: tuple[int, ...], own: int) -> Place | None:
    """On some ranks a part of the whole, often its own."""
    if len(shape) != len(whole.shape) or rank.chance.random() > 0.25:
        return None
    part = own if rank.chance.random() < 0.6 else rank.chance.randrange(draw.size)
    return rank.rows(whole, part * shape[0], shape[0])


def all_gather_into_tensor(draw: Draw) -> Operation:
    shape = draw.shape()
    whole = _whole(draw, shape)
    for i, rank in enumerate(draw.ranks):
        rank.writes = [rank.place(whole)]
        rank.reads = [_within(draw, rank, rank.writes[0], shape, i) or rank.place(shape, repeats=True)]
    return Operation(
        "", draw.ranks,
        lambda call: dist.all_gather_into_tensor(call.writes[0], call.reads[0], call.group, call.is_async),
        lambda rank: [torch.stack([draw.reads(each)[0] for each in range(draw.size)])],
    )  # fmt: skip


def all_gather_into_managed(draw: Draw) -> Operation:
    shapes = [draw.shape() for _ in range(draw.chance.randrange(1, 4))]
    for rank in draw.ranks:
        rank.writes = rank.places([(draw.size, *shape) for shape in shapes])
        rank.reads = rank.places(shapes, repeats=True)

    def start(call: Call) -> Any:
        with dist._coalescing_manager(call.group, async_ops=call.is_async) as manager:
            for output, tensor in zip(call.writes, call.reads, strict=True):
                dist.all_gather_into_tensor(output, tensor, call.group)
        return manager if call.is_async else None

    def results(rank: int) -> Tensors:
        by_rank = [draw.reads(each) for each in range(draw.size)]
        return [torch.stack(values) for values in zip(*by_rank, strict=True)]

    return Operation("", draw.ranks, start, results)


def gather(draw: Draw) -> Operation:
    shape, root = draw.shape(), draw.chance.randrange(draw.size)
    for i, rank in enumerate(draw.ranks):
        rank.reads = [rank.place(shape, repeats=True)]
        rank.writes = rank.places([shape] * draw.size) if i == root else []
    draw.alias()

    def start(call: Call) -> Any:
        return dist.gather(
            call.reads[0], call.writes or None, group=call.group, async_op=call.is_async, group_dst=root
        )

    def results(rank: int) -> Tensors:
        return [draw.reads(each)[0] for each in range(draw.size)] if rank == root else []

    return Operation("", draw.ranks, start, results)


def scatter(draw: Draw) -> Operation:
    shape, root = draw.shape(), draw.chance.randrange(draw.size)
    for i, rank in enumerate(draw.ranks):
        rank.writes = [rank.place(shape)]
        rank.reads = rank.places([shape] * draw.size, repeats=True) if i == root else []
    draw.alias()

    def start(call: Call) -> Any:
        return dist.scatter(
            call.writes[0], call.reads or None, group=call.group, async_op=call.is_async, group_src=root
        )

    return Operation("", draw.ranks, start, lambda rank: [draw.reads(root)[rank]])


def reduce_scatter(draw: Draw) -> Operation:
    how, shape = reduction(draw), draw.shape()
    for rank in draw.ranks:
        rank.writes = [rank.place(shape)]
        rank.reads = rank.places([shape] * draw.size, repeats=True)
    draw.alias()
    return reducing(
        draw, how,
        lambda call: dist.reduce_scatter(call.writes[0], call.reads, how.op, call.group, call.is_async),
        lambda rank: [how.of([draw.reads(each)[rank] for each in range(draw.size)])],
    )  # fmt: skip


def _part(value: Any, rank: int, size: int) -> Any:
    flat = value.reshape(-1)
    count = flat.numel() // size
    return flat[rank * count : (rank + 1) * count]


def reduce_scatter_tensor(draw: Draw) -> Operation:
    how, shape = reduction(draw), draw.shape()
    whole = _whole(draw, shape)
    for i, rank in enumerate(draw.ranks):
        rank.reads = [rank.place(whole)]
        rank.writes = [_within(draw, rank, rank.reads[0], shape, i) or rank.place(shape)]
    return reducing(
        draw, how,
        lambda call: dist.reduce_scatter_tensor(*call.writes, *call.reads, how.op, call.group, call.is_async),
        lambda rank: [how.of([_part(draw.reads(each)[0], rank, draw.size) for each in range(draw.size)])],
    )  # fmt: skip


def reduce_scatter_managed(draw: Draw) -> Operation:
    how, shapes = reduction(draw), [draw.shape() for _ in range(draw.chance.randrange(1, 4))]
    for rank in draw.ranks:
        rank.reads = rank.places([(draw.size, *shape) for shape in shapes], repeats=True)
        rank.writes = rank.places(shapes)

    def start(call: Call) -> Any:
        with dist._coalescing_manager(call.group, async_ops=call.is_async) as manager:
            for output, tensor in zip(call.writes, call.reads, strict=True):
                dist.reduce_scatter_tensor(output, tensor, how.op, call.group)
        return manager if call.is_async else None

    def results(rank: int) -> Tensors:
        by_rank = [draw.reads(each) for each in range(draw.size)]
        return [how.of([each[rank] for each in values]) for values in zip(*by_rank, strict=True)]

    return reducing(draw, how, start, results)


def _splits(draw: Draw) -> list[list[int]]:
    return [[draw.chance.randrange(4) for _ in draw.ranks] for _ in draw.ranks]


def all_to_all(draw: Draw) -> Operation:
    """Lists of tensors that need not have equal shapes."""
    rows, shape = _splits(draw), draw.shape()
    for i, rank in enumerate(draw.ranks):
        rank.reads = rank.places([(n, *shape) for n in rows[i]], repeats=True)
        rank.writes = rank.places([(each[i], *shape) for each in rows])
    draw.alias()
    return Operation(
        "", draw.ranks,
        lambda call: dist.all_to_all(call.writes, call.reads, call.group, call.is_async),
        lambda rank: [draw.reads(each)[rank] for each in range(draw.size)],
    )  # fmt: skip


def all_to_all_single(draw: Draw) -> Operation:
    even, shape = draw.chance.random() < 0.5, draw.shape()
    count = draw.chance.randrange(4)
    rows = [[count] * draw.size for _ in draw.ranks] if even else _splits(draw)
    lists = not even or draw.chance.random() < 0.5
    for i, rank in enumerate(draw.ranks):
        rank.reads = [rank.place((sum(rows[i]), *shape), repeats=True)]
        rank.writes = [rank.place((sum(each[i] for each in rows), *shape))]
    draw.alias()

    def start(call: Call) -> Any:
        counts = [each[call.rank] for each in rows]
        lengths = (counts, rows[call.rank]) if lists else (None, None)
        return dist.all_to_all_single(call.writes[0], call.reads[0], *lengths, call.group, call.is_async)

    def results(rank: int) -> Tensors:
        parts = [draw.reads(each)[0].split(rows[each])[rank] for each in range(draw.size)]
        return [torch.cat(parts)]

    return Operation("", draw.ranks, start, results)


def barrier(draw: Draw) -> Operation:
    return Operation("", draw.ranks, lambda call: dist.barrier(call.group, call.is_async), lambda rank: [])


def monitored_barrier(draw: Draw) -> Operation:
    return Operation("", draw.ranks, lambda call: dist.monitored_barrier(call.group), lambda rank: [])


def objects(draw: Draw) -> Operation:
    """Collectives of objects: `start` compares what they give."""
    root, kind = draw.chance.randrange(draw.size), draw.chance.randrange(4)
    every = [{"rank": i, "text": "x" * rank.chance.choice((0, 3, 5000))} for i, rank in enumerate(draw.ranks)]

    def start(call: Call) -> None:
        mine, none = every[call.rank], [None] * draw.size
        got: Any
        if kind == 0:
            got, want = list(none), every
            dist.all_gather_object(got, mine, call.group)
        elif kind == 1:
            got, want = list(every if call.rank == root else none), every
            dist.broadcast_object_list(got, group=call.group, group_src=root)
        elif kind == 2:
            got, want = (list(none), every) if call.rank == root else (None, None)
            dist.gather_object(mine, got, group=call.group, group_dst=root)
        else:
            got, want = [None], [mine]
            given = every if call.rank == root else None
            dist.scatter_object_list(got, given, group=call.group, group_src=root)
        assert got == want, f"{got} is not {want}"

    return Operation("", draw.ranks, start, lambda rank: [])


# ---- between two ----------------------------------------------------------------------------------------


def send_and_recv(draw: Draw) -> Operation:
    """From one to another, which may not know from whom."""
    shape, tag = draw.shape(), draw.chance.randrange(1, 1 << 30)  # no other one in flight
    sender = draw.chance.randrange(draw.size)
    receiver = (sender + draw.chance.randrange(1, max(draw.size, 2))) % draw.size
    anybody = draw.chance.random() < 0.3
    if sender != receiver:
        draw.ranks[sender].reads = [draw.ranks[sender].place(shape, repeats=True)]
        draw.ranks[receiver].writes = [draw.ranks[receiver].place(shape)]

    def start(call: Call) -> Any:
        group = call.group
        if sender == receiver or call.rank not in (sender, receiver):
            return None
        if call.rank == sender:
            how = dist.isend if call.is_async else dist.send
            return how(call.reads[0], group_dst=receiver, group=group, tag=tag)
        known = {} if anybody else {"group_src": sender}
        if call.is_async:
            return dist.irecv(call.writes[0], group=group, tag=tag, **known)
        source = dist.recv(call.writes[0], group=group, tag=tag, **known)
        if anybody:
            assert dist.get_group_rank(group, source) == sender
        return None

    return Operation(
        "", draw.ranks, start, lambda rank: draw.reads(sender) if rank == receiver != sender else [],
    )  # fmt: skip


def batch_isend_irecv(draw: Draw) -> Operation:
    """Around the ring, several tensors each."""
    shapes = [draw.shape() for _ in range(draw.chance.randrange(1, 4))]
    if draw.size > 1:
        for rank in draw.ranks:
            rank.reads = rank.places(shapes, repeats=True)
            rank.writes = rank.places(shapes)

    def start(call: Call) -> Any:
        right, left = (call.rank + 1) % draw.size, (call.rank - 1) % draw.size
        ops = [dist.P2POp(dist.isend, each, group=call.group, group_peer=right) for each in call.reads]
        ops += [dist.P2POp(dist.irecv, each, group=call.group, group_peer=left) for each in call.writes]
        return dist.batch_isend_irecv(ops) if ops else None

    return Operation(
        "", draw.ranks, start, lambda rank: draw.reads((rank - 1) % draw.size) if draw.size > 1 else [],
    )  # fmt: skip


KINDS: list[Callable[[Draw], Operation]] = [
    *(all_reduce, all_reduce, all_reduce_coalesced, all_reduce_managed, reduce, broadcast),
    *(all_gather, all_gather_coalesced, all_gather_into_tensor, all_gather_into_managed, gather, scatter),
    *(reduce_scatter, reduce_scatter_tensor, reduce_scatter_managed, all_to_all, all_to_all_single),
    *(barrier, monitored_barrier, objects, send_and_recv, batch_isend_irecv),
]


# Those that Gloo can do; others end its process at times, or the connections of its group.
ON_GLOO = [
    *(all_reduce, reduce, broadcast, all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter),
    all_to_all_single,
]


def draw_operation(seed: str, size: int) -> Operation:
    """The same on every rank."""
    draw = Draw(seed, size)
    make = draw.chance.choice(KINDS)
    operation = make(draw)
    operation.on_gloo = make in ON_GLOO and draw.suits_gloo
    operation.name = f"{make.__name__} {operation.name} of {draw.dtype} on {size} ranks (seed {seed!r})"
    return operation
