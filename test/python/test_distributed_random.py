"""Random operations of torch.distributed on this engine: beside a plain reference, and beside Gloo.

HOROVOD_TEST_SEED, which is printed, tries the same ones again; HOROVOD_TEST_SAMPLES says how many.
"""

from __future__ import annotations

import os
import random
import time
from datetime import timedelta
from typing import Any

import pytest

import horovod as hvd

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from random_distributed import Call, draw_operation  # noqa: E402

import horovod.torch.distributed  # noqa: E402
from horovod.torch.work import Work  # noqa: E402

WHOLE = "6000" if "HOROVOD_TEST_FULL" in os.environ else "150"
SAMPLES = int(os.environ.get("HOROVOD_TEST_SAMPLES", WHOLE))
SEED = int(os.environ.get("HOROVOD_TEST_SEED", "1"))
WAYS = ("at once", "wait", "wait with a timeout", "future", "chained", "polled")
LIMIT = timedelta(seconds=60)
MOST = 5  # differences that are printed


def complete(work: Any, way: str) -> None:
    """Works, lists of them, and the futures that coalesced operations give."""
    if work is None:
        return
    if isinstance(work, list):
        for each in work:
            complete(each, way)
    elif not isinstance(work, Work):  # futures, managers, and work of Gloo, which has no future
        work.wait()
    elif way == "wait with a timeout":
        work.wait(LIMIT)
    elif way == "future":
        work.get_future().wait()
    elif way == "chained":
        assert work.get_future().then(lambda done: (done.value(), 1)[1]).wait() == 1
    elif way == "polled":
        deadline = time.monotonic() + LIMIT.total_seconds()
        while not work.is_completed():
            assert time.monotonic() < deadline, "not completed"
            time.sleep(0.0002)
    else:
        work.wait()


class Side:
    """A rank's own part of an operation, on memory of its own."""

    def __init__(self, operation: Any, group: Any, way: str) -> None:
        self.operation, self.group, self.way = operation, group, way
        self.rank = dist.get_rank(group)
        mine = operation.ranks[self.rank]
        self.memories = [memory.clone() for memory in mine.memories]
        reads, writes = ([place.of(self.memories) for place in each] for each in (mine.reads, mine.writes))
        self.call = Call(group, self.rank, reads, writes, way != "at once")
        self.work: Any = None

    def start(self) -> None:
        self.work = self.operation.start(self.call)

    def end(self) -> str:
        """What differs, if anything."""
        complete(self.work, self.way)
        expected = self.operation.expected(self.rank)
        for i, (got, want) in enumerate(zip(self.memories, expected, strict=True)):
            if not same(got, want, self.operation.tolerance):
                mine = self.operation.ranks[self.rank]
                return f"memory {i}: {got} is not {want}; reads {mine.reads}, writes {mine.writes}"
        return ""


def same(got: Any, want: Any, tolerance: float) -> bool:
    """Whether all bits are the same, except of zeros, NaNs and averages."""
    if torch.equal(got.view(torch.uint8), want.view(torch.uint8)):
        return True
    if not (got.is_floating_point() or got.is_complex()):
        return False
    one, other = (torch.view_as_real(each) if each.is_complex() else each for each in (got, want))
    return torch.allclose(one.double(), other.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


def on_gloo(operation: Any, group: Any) -> str:
    """What Gloo does otherwise than the reference, on dense tensors; what it refuses the engine may do."""
    rank = dist.get_rank(group)
    mine = operation.ranks[rank]
    reads, writes = ([dense(place.of(mine.memories)) for place in each] for each in (mine.reads, mine.writes))
    if not operation.on_gloo:
        return ""
    try:
        complete(operation.start(Call(group, rank, reads, writes)), "wait")
    except (RuntimeError, ValueError):
        return ""
    if operation.root not in (None, rank):
        return ""
    for got, want in zip(writes, operation.results(rank), strict=True):
        if not same(got.view(-1), dense(want).view(-1), operation.tolerance):
            return f"Gloo: {got} is not {want}"
    return ""


def dense(tensor: Any) -> Any:
    return tensor.clone(memory_format=torch.contiguous_format)


Groups = list[tuple[int, Any, Any]]  # how many members, ours, Gloo's


def try_one(seed: str, groups: Groups) -> list[str]:
    """A few operations in flight together; what differs."""
    chance, sides, differences = random.Random(seed), [], []
    own = random.Random(f"{seed} on {dist.get_rank()}")
    for i in range(chance.choice((1, 1, 2, 4))):
        size, ours, theirs = chance.choice(groups)
        operation = draw_operation(f"{seed}.{i}", size)
        if dist.get_rank(ours) >= 0:
            sides.append((Side(operation, ours, own.choice(WAYS)), theirs))
    for side, _ in sides:
        try:
            side.start()
        except Exception as error:
            differences.append(f"{side.operation.name}, start: {error!r}")
    for side, _ in own.sample(sides, len(sides)):
        try:
            found = side.end()
        except Exception as error:
            found = repr(error)
        if found:
            differences.append(f"{side.operation.name}, {side.way}: {found}")
    for side, theirs in sides:
        if found := on_gloo(side.operation, theirs):
            differences.append(f"{side.operation.name}: {found}")
    return differences


def make_groups(size: int) -> Groups:
    """All in order, in reverse and rotated, twice the same ones, and all but the last."""
    everyone = list(range(size))
    members = [everyone, everyone, everyone[::-1], [*everyone[1:], 0], everyone[:-1]]
    return [
        (
            len(each),
            *(
                dist.new_group(each, backend=name, sort_ranks=False, timeout=timedelta(seconds=limit))
                for name, limit in (("horovod", 60), ("gloo", 8))
            ),
        )
        for each in members
    ]


@pytest.mark.skipif(hvd.size() == 1, reason="needs two ranks")
@pytest.mark.timeout(300 + 0.05 * SAMPLES)
@pytest.mark.filterwarnings("ignore")  # of names that PyTorch will drop
def test_random_collectives(rank: int, size: int) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("horovod", timeout=timedelta(seconds=60))
    try:
        groups, differences = make_groups(size), list[str]()
        print(f"HOROVOD_TEST_SEED={SEED}, {SAMPLES} times one to four operations")
        for sample in range(SAMPLES):
            differences += try_one(f"{SEED}.{sample}", groups)
        assert not differences, "\n".join([f"{len(differences)} differ", *differences[:MOST]])
    finally:
        dist.destroy_process_group()
