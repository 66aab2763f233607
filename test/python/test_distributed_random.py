"""Random collectives of torch.distributed on this engine and on Gloo, side by side: the same results.

HOROVOD_TEST_SEED, which is printed, tries the same ones again; HOROVOD_TEST_SAMPLES says how many.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import horovod as hvd

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
SAMPLES = int(os.environ.get("HOROVOD_TEST_SAMPLES", "150"))
SEED = int(os.environ.get("HOROVOD_TEST_SEED", "1"))
DTYPES = [
    getattr(torch, name) for name in ("float32", "float64", "float16", "uint8", "int8", "int32", "int64")
]
NUMBERS = ("SUM", "MIN", "MAX", "PRODUCT")
BITS = ("BAND", "BOR", "BXOR")

Tensors = list[Any]


class Draw(random.Random):
    """Draws what all ranks have in common; `own` what a rank has for itself."""

    def __init__(self, seed: int, rank: int) -> None:
        super().__init__(seed)
        self.own = random.Random(seed * 7919 + rank)

    def shape(self) -> list[int]:
        return [self.choice((0, 1, 2, 3, 5)) for _ in range(self.randrange(4))]

    def reduction(self, dtype: Any) -> Any:
        names = NUMBERS if dtype.is_floating_point else NUMBERS + BITS
        return getattr(dist.ReduceOp, self.choice(names))


def numbers(draw: Draw, shape: list[int], dtype: Any) -> Any:
    count = torch.Size(shape).numel()
    return torch.tensor([draw.own.randrange(4) for _ in range(count)], dtype=dtype).view(shape)


def strided(draw: Draw, values: Any) -> tuple[Any, Any]:
    """These values with strides of this rank's own choice, and the memory beside them, which is all 9."""
    kind, nothing = draw.own.randrange(4), torch.empty(0)
    if kind == 0 or values.dim() == 0:
        return values.clone(), nothing
    if kind == 1:  # transposed
        return values.movedim(0, -1).contiguous().movedim(-1, 0), nothing
    wide = torch.full((*values.shape[:-1], 2 * values.shape[-1] + 1), 9, dtype=values.dtype)
    view = wide[..., 1::2]  # columns of it
    view.copy_(values)
    return view, wide[..., 0::2]


def all_reduce(draw: Draw, rank: int, size: int, dtype: Any) -> Any:
    values, op = numbers(draw, draw.shape(), dtype), draw.reduction(dtype)
    return [values], [], lambda group, write, read: dist.all_reduce(write[0], op, group, True)


def reduce(draw: Draw, rank: int, size: int, dtype: Any) -> Any:
    values, op, root = numbers(draw, draw.shape(), dtype), draw.reduction(dtype), draw.randrange(size)

    def start(group: Any, write: Tensors, read: Tensors) -> Any:
        return dist.reduce(write[0], group_dst=root, op=op, group=group, async_op=True)

    return [values], [], start


def broadcast(draw: Draw, rank: int, size: int, dtype: Any) -> Any:
    values, root = numbers(draw, draw.shape(), dtype), draw.randrange(size)

    def start(group: Any, write: Tensors, read: Tensors) -> Any:
        return dist.broadcast(write[0], group=group, async_op=True, group_src=root)

    return [values], [], start


def all_gather(draw: Draw, rank: int, size: int, dtype: Any) -> Any:
    values = numbers(draw, draw.shape(), dtype)
    outputs = [torch.zeros_like(values) for _ in range(size)]
    return outputs, [values], lambda group, write, read: dist.all_gather(write, read[0], group, True)


def all_gather_into(draw: Draw, rank: int, size: int, dtype: Any) -> Any:
    values = numbers(draw, [draw.randrange(4), *draw.shape()], dtype)
    output = torch.zeros(size * values.shape[0], *values.shape[1:], dtype=dtype)

    def start(group: Any, write: Tensors, read: Tensors) -> Any:
        return dist.all_gather_into_tensor(write[0], read[0], group, True)

    return [output], [values], start


def gather(draw: Draw, rank: int, size: int, dtype: Any) -> Any:
    values, root = numbers(draw, draw.shape(), dtype), draw.randrange(size)
    outputs = [torch.zeros_like(values) for _ in range(size)] if rank == root else []

    def start(group: Any, write: Tensors, read: Tensors) -> Any:
        return dist.gather(read[0], write or None, group=group, async_op=True, group_dst=root)

    return outputs, [values], start


def scatter(draw: Draw, rank: int, size: int, dtype: Any) -> Any:
    shape, root = draw.shape(), draw.randrange(size)
    inputs = [numbers(draw, shape, dtype) for _ in range(size)] if rank == root else []

    def start(group: Any, write: Tensors, read: Tensors) -> Any:
        return dist.scatter(write[0], read or None, group=group, async_op=True, group_src=root)

    return [torch.zeros(shape, dtype=dtype)], inputs, start


def reduce_scatter(draw: Draw, rank: int, size: int, dtype: Any) -> Any:
    shape, op = draw.shape(), draw.reduction(dtype)
    inputs = [numbers(draw, shape, dtype) for _ in range(size)]

    def start(group: Any, write: Tensors, read: Tensors) -> Any:
        return dist.reduce_scatter(write[0], read, op, group, True)

    return [torch.zeros(shape, dtype=dtype)], inputs, start


def all_to_all_single(draw: Draw, rank: int, size: int, dtype: Any) -> Any:
    rows = [[draw.randrange(3) for _ in range(size)] for _ in range(size)]
    splits, counts, shape = rows[rank], [each[rank] for each in rows], draw.shape()

    def start(group: Any, write: Tensors, read: Tensors) -> Any:
        return dist.all_to_all_single(write[0], read[0], counts, splits, group, True)

    output = torch.zeros(sum(counts), *shape, dtype=dtype)
    return [output], [numbers(draw, [sum(splits), *shape], dtype)], start


COLLECTIVES = [
    *(all_reduce, reduce, broadcast, all_gather, all_gather_into, gather, scatter, reduce_scatter),
    all_to_all_single,
]


def complete(work: Any, how: int) -> None:
    if how == 0:
        work.wait()
    elif how == 1:
        work.get_future().wait()
    else:
        deadline = time.monotonic() + 60
        while not work.is_completed():
            assert time.monotonic() < deadline, "not completed within 60 s"
            time.sleep(0.0002)


def outcome(start: Callable[[], Any], tensors: Tensors, how: int) -> Any:
    """The tensors afterwards, or the exception."""
    try:
        complete(start(), how)
    except (RuntimeError, ValueError, TypeError) as error:
        return error
    return [tensor.clone() for tensor in tensors]


def try_one(seed: int, groups: list[tuple[Any, Any]], rank: int) -> str:
    """What differs, if anything. What Gloo refuses the engine may do."""
    draw = Draw(seed, rank)
    ours, theirs = draw.choice(groups)
    member, size = dist.get_rank(ours), dist.get_world_size(ours)
    if member < 0:
        return ""
    make, dtype = draw.choice(COLLECTIVES), draw.choice(DTYPES)
    written, read, start = make(draw, member, size, dtype)
    plain = [each.clone() for each in written]
    views, beside = zip(*(strided(draw, each) for each in written), strict=True) if written else ((), ())
    sources = [strided(draw, each)[0] for each in read]
    how = draw.own.randrange(3)
    own = outcome(lambda: start(ours, list(views), sources), list(views), how)
    expected = outcome(lambda: start(theirs, plain, read), plain, 0)
    what = (
        f"seed {seed}: {make.__name__} of {dtype} on {size} ranks, shapes {[list(t.shape) for t in written]}"
    )
    if isinstance(expected, Exception):
        return ""
    if isinstance(own, Exception):
        return f"{what}: {own!r}"
    if make is not reduce and not all(map(torch.equal, own, expected)):
        return f"{what}: {own} is not {expected}"
    if not all((each == 9).all() for each in beside):
        return f"{what}: the memory beside the tensor has changed"
    return ""


@pytest.mark.skipif(hvd.size() == 1, reason="needs two ranks")
def test_random_collectives_as_on_gloo(rank: int, size: int) -> None:
    import horovod.torch.distributed  # noqa: F401

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("horovod", timeout=timedelta(seconds=60))
    try:
        members = [list(range(size)), list(range(size))[::-1], list(range(size - 1))]
        groups = [
            tuple(
                dist.new_group(each, backend=name, sort_ranks=False, timeout=timedelta(seconds=8))
                for name in ("horovod", "gloo")
            )
            for each in members
        ]
        print(f"HOROVOD_TEST_SEED={SEED}, {SAMPLES} operations")
        for sample in range(SAMPLES):
            assert not (difference := try_one(SEED * 1_000_003 + sample, groups, rank)), difference
    finally:
        dist.destroy_process_group()
