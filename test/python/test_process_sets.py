"""Operations among some of the ranks, and how sets come and go. Every rank runs every test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod.common.process_sets import ProcessSet


@pytest.fixture
def dynamic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")


@pytest.fixture
def fresh(rank: int, size: int) -> Iterator[None]:
    hvd.shutdown()
    yield
    hvd.shutdown()
    hvd.init()


@pytest.fixture
def lower(dynamic: None, size: int) -> Iterator[ProcessSet]:
    """All ranks but the last."""
    if size == 1:
        pytest.skip("needs several ranks")
    added = hvd.add_process_set(list(range(size - 1)))
    yield added
    assert hvd.remove_process_set(added)


def test_before_registration() -> None:
    wanted = hvd.ProcessSet([2, 0, 1])
    assert wanted.ranks == [0, 1, 2]
    assert (wanted.size(), wanted.rank(), wanted.included(), wanted.process_set_id) == (None,) * 4
    assert str(wanted) == "ProcessSet(process_set_id=None, ranks=[0, 1, 2], mpi_comm=None)"
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(np.ones(1), process_set=wanted)


def test_odd_members() -> None:
    for odd in (3, [0, "1"], [0.5], [1, 0, 1]):
        with pytest.raises(ValueError, match="ProcessSet"):
            hvd.ProcessSet(odd)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="process_set must be a ProcessSet"):
        hvd.allreduce(np.ones(1), process_set=0)  # type: ignore[arg-type]


def test_global_set(rank: int, size: int) -> None:
    everybody = hvd.global_process_set
    assert (everybody.process_set_id, everybody.size(), everybody.rank()) == (0, size, rank)
    assert everybody.included() and everybody.ranks == list(range(size))
    np.testing.assert_allclose(hvd.allreduce(np.ones(2), op=hvd.Sum, process_set=everybody), size)


def test_static_sets(fresh: None, rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    even, odd = hvd.ProcessSet(range(0, size, 2)), hvd.ProcessSet(range(1, size, 2))
    hvd.init(process_sets=[even, odd])
    own, other = (odd, even) if rank % 2 else (even, odd)
    assert {even.process_set_id, odd.process_set_id} == {1, 2}
    assert (own.included(), own.rank(), other.included()) == (True, rank // 2, False)
    np.testing.assert_allclose(hvd.allreduce(np.array([rank]), op=hvd.Sum, process_set=own), sum(own.ranks))
    with pytest.raises(ValueError, match=rf"rank {rank} is not a member"):
        hvd.allreduce(np.ones(1), process_set=other)
    with pytest.raises(ValueError, match="not a member"):
        other.rank()
    with pytest.raises(ValueError, match="dynamic"):
        hvd.add_process_set([0])
    hvd.barrier()
    hvd.shutdown()
    assert (even.process_set_id, even.size(), hvd.global_process_set.size()) == (None, None, None)
    hvd.init(process_sets=[odd])
    assert odd.process_set_id == 1


def test_sets_by_functions(fresh: None, rank: int, size: int) -> None:
    """Of the number of ranks, which is known once the job has begun."""
    alternate, last = hvd.ProcessSet(lambda n: range(0, n, 2)), hvd.ProcessSet(lambda n: [n - 1])
    assert (alternate.ranks, alternate.size(), alternate.included()) == ([], None, None)
    if size > 1:
        hvd.init(process_sets=[alternate, last])
        assert (alternate.ranks, last.ranks) == ([*range(0, size, 2)], [size - 1])
        if alternate.included():
            total = hvd.allreduce(np.array([rank]), op=hvd.Sum, process_set=alternate)
            np.testing.assert_allclose(total, sum(alternate.ranks))
        hvd.barrier()
        hvd.shutdown()
    for wrong, text in (
        (lambda n: [n], "for a job of"),
        (lambda n: n, "takes a list of ranks"),
        (lambda n: [0, 0], "twice"),
        (lambda n: [], "one rank at least"),
        (range, "exists already"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.init(process_sets=[hvd.ProcessSet(wrong)])  # type: ignore[arg-type]


def test_sets_that_init_refuses(fresh: None, size: int) -> None:
    with pytest.raises(ValueError, match="entry 1 has the same ranks as entry 0"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
    with pytest.raises(ValueError, match=r"(?s)entry 0.*exists"):
        hvd.init(process_sets=[list(range(size))])
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match="dynamic"):
        hvd.init(process_sets="moving")
    with pytest.raises(ValueError, match=rf"(?s)entry 0.*rank {size}"):
        hvd.init(process_sets=[hvd.ProcessSet([0, size])])
    with pytest.raises(ValueError, match="is no list of ranks"):
        hvd.init(comm=[0, size])
    with pytest.raises(ValueError, match="expected a list of ranks"):
        hvd.init(comm=object())  # type: ignore[arg-type]
    hvd.init(comm=range(size), process_sets=[])
    np.testing.assert_allclose(hvd.allreduce(np.ones(1), op=hvd.Sum), size)


def test_jobs_of_some_ranks(fresh: None, rank: int, size: int) -> None:
    """The world falls into the ranks of even and those of odd number; the last of each comes first."""
    own = [r for r in reversed(range(size)) if r % 2 == rank % 2]
    hvd.init(comm=own)
    assert (hvd.size(), hvd.rank()) == (len(own), own.index(rank))
    assert hvd.allgather(np.array([rank])).tolist() == own
    hvd.barrier()


def test_dynamic_by_init(fresh: None, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_DYNAMIC_PROCESS_SETS", raising=False)
    hvd.init(process_sets="dynamic")
    if size > 1:
        added = hvd.add_process_set([0])
        assert added.included() == (hvd.rank() == 0)
        assert hvd.remove_process_set(added)


def test_adding_and_removing(dynamic: None, rank: int, size: int) -> None:
    assert not hvd.remove_process_set(hvd.global_process_set)
    assert not hvd.remove_process_set(hvd.ProcessSet([0]))
    with pytest.raises(ValueError, match="exists already"):
        hvd.add_process_set(list(range(size)))
    if size == 1:
        return
    members = [size - 1, 0] if size > 2 else [1]
    ids = []
    for _ in range(3):
        added = hvd.add_process_set(members)
        ids.append(added.process_set_id)
        with pytest.raises(ValueError, match="exists already"):
            hvd.add_process_set(sorted(members))
        if added.included():
            total = hvd.allreduce(np.ones(3), op=hvd.Sum, name="x", process_set=added)
            np.testing.assert_allclose(total, len(members))
        assert hvd.remove_process_set(added) and added.process_set_id is None
    assert ids == sorted(set(ids))


@pytest.fixture
def subset(dynamic: None, size: int) -> Iterator[ProcessSet]:
    """The last two ranks: their numbers in the set are not those in the job."""
    if size < 3:
        pytest.skip("needs three ranks")
    added = hvd.add_process_set([size - 1, size - 2])
    yield added
    hvd.remove_process_set(added)


def test_every_operation(kind: Any, subset: ProcessSet, rank: int, size: int) -> None:
    if not subset.included():
        return
    own, ranks = subset.rank(), subset.ranks
    assert own is not None and ranks == [size - 2, size - 1]
    options: dict[str, Any] = {"process_set": subset}

    def same(result: Any, expected: Any) -> None:
        np.testing.assert_allclose(kind.numpy(result), expected)

    x = kind.array([float(rank)] * 4)
    same(kind.hvd.allreduce(x, **options), np.full(4, np.mean(ranks)))
    same(kind.hvd.grouped_allreduce([x], op=hvd.Max, **options)[0], np.full(4, size - 1.0))
    same(kind.hvd.allgather(kind.array([[rank]] * (own + 1)), **options), [[ranks[0]]] + [[ranks[1]]] * 2)
    for root in ranks:
        same(kind.hvd.broadcast(x, root, **options), np.full(4, root))
    same(
        kind.hvd.alltoall(kind.array([rank * 10.0, rank]), **options),
        [r * 10 if own == 0 else r for r in ranks],
    )
    rows, received = kind.hvd.alltoall(kind.array([1.0, 2.0, 3.0]), splits=[1, 2], **options)
    assert received.tolist() == [own + 1] * 2
    same(rows, [1, 1] if own == 0 else [2, 3, 2, 3])
    same(
        kind.hvd.reducescatter(kind.array([1.0, 2.0, 3.0]), op=hvd.Sum, **options),
        [2, 4] if own == 0 else [6],
    )
    hvd.barrier(process_set=subset)
    assert hvd.allgather_object(rank, process_set=subset) == ranks
    assert hvd.broadcast_object(rank, ranks[1], process_set=subset) == ranks[1]


def test_root_outside(subset: ProcessSet) -> None:
    if subset.included():
        with pytest.raises(ValueError, match="root"):
            hvd.broadcast(np.ones(1), 0, process_set=subset)


def test_gradients(subset: ProcessSet, rank: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch

    if not subset.included():
        return
    number = subset.rank()
    x = torch.ones(2, 2, requires_grad=True)
    gathered = horovod.torch.allgather(x, process_set=subset)
    (gathered * torch.arange(4.0).unsqueeze(1)).sum().backward()
    assert x.grad.tolist() == [[2.0 * number] * 2, [2.0 * number + 1] * 2]
    x.grad = None
    horovod.torch.reducescatter(x, op=hvd.Sum, process_set=subset).sum().backward()
    assert x.grad.tolist() == [[2.0] * 2] * 2
    x.grad = None
    (horovod.torch.broadcast(x, size - 1, process_set=subset) * (number + 1)).sum().backward()
    assert x.grad.tolist() == [[1.5 if rank == size - 1 else 0.0] * 2] * 2


def test_sets_do_not_wait_for_each_other(lower: ProcessSet, rank: int, size: int) -> None:
    """The last rank comes late to the job's operation; the set's is done before."""
    handle = None if rank == size - 1 else hvd.allreduce_async(np.ones(2), name="all", op=hvd.Sum)
    if lower.included():
        np.testing.assert_allclose(
            hvd.allreduce(np.ones(2), name="lower", op=hvd.Sum, process_set=lower), size - 1
        )
    hvd.barrier()
    if handle is None:
        handle = hvd.allreduce_async(np.ones(2), name="all", op=hvd.Sum)
    np.testing.assert_allclose(hvd.synchronize(handle), size)


def test_mismatch_within_a_set(subset: ProcessSet, rank: int, size: int) -> None:
    if subset.included():
        with pytest.raises(
            hvd.HorovodInternalError,
            match=rf"(?s)shape.*rank {size - 2} has \[1\].*rank {size - 1} has \[2\]",
        ):
            hvd.allreduce(np.ones(subset.ranks.index(rank) + 1), name="torn", process_set=subset)
    np.testing.assert_allclose(hvd.allreduce(np.ones(2), op=hvd.Sum), size)
