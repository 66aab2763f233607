"""torch.distributed on tensors of any strides, and when their results are in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import horovod as hvd

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
several = pytest.mark.skipif(hvd.size() == 1, reason="needs two ranks")


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    import horovod.torch.distributed  # noqa: F401

    dist.init_process_group("horovod", timeout=timedelta(seconds=120))
    yield
    dist.destroy_process_group()


def matrix(rank: int, dtype: Any = torch.int32) -> Any:
    return ((torch.arange(24) * (rank + 3)) % 61).to(dtype).view(6, 4)


def matrices(size: int, dtype: Any = torch.int32) -> list[Any]:
    return [matrix(rank, dtype) for rank in range(size)]


def reduced(tensors: list[Any], function: Callable[[Any, Any], Any]) -> Any:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = function(total, tensor)
    return total


# ---- when the results are there: each starts an operation, and returns what should come out -----------

Started = tuple[Any, list[Any], list[Any]]  # the work, the tensors of the caller, their values to be


def all_gather_list(rank: int, size: int) -> Started:
    outputs = [torch.zeros(6, 4, dtype=torch.int32) for _ in range(size)]
    return dist.all_gather(outputs, matrix(rank), async_op=True), outputs, matrices(size)


def all_gather_strided(rank: int, size: int) -> Started:
    output = torch.zeros(4, 6 * size, dtype=torch.int32).t()
    work = dist.all_gather_into_tensor(output, matrix(rank), async_op=True)
    return work, [output], [torch.cat(matrices(size))]


def all_to_all_list(rank: int, size: int) -> Started:
    outputs = [torch.zeros(i + 1) for i in range(size)]
    inputs = [torch.full((rank + 1,), 10.0 * rank + i) for i in range(size)]
    expected = [torch.full((i + 1,), 10.0 * i + rank) for i in range(size)]
    return dist.all_to_all(outputs, inputs, async_op=True), outputs, expected


def gather(rank: int, size: int) -> Started:
    outputs = [torch.zeros(6, 4, dtype=torch.int32) for _ in range(size)] if rank == 0 else None
    work = dist.gather(matrix(rank), outputs, async_op=True)
    return work, outputs or [], matrices(size) if rank == 0 else []


def scatter(rank: int, size: int) -> Started:
    output = torch.zeros(4, 6, dtype=torch.int32).t()
    work = dist.scatter(output, matrices(size) if rank == 0 else None, async_op=True)
    return work, [output], [matrix(rank)]


def all_reduce_strided(rank: int, size: int) -> Started:
    whole, expected = matrix(rank), matrix(rank)
    expected[:, 1] = sum(matrices(size))[:, 1]
    return dist.all_reduce(whole[:, 1], async_op=True), [whole], [expected]


def bits_strided(rank: int, size: int) -> Started:
    whole, expected = matrix(rank), matrix(rank)
    expected[::2, 1:3] = reduced(matrices(size), torch.bitwise_or)[::2, 1:3]
    return dist.all_reduce(whole[::2, 1:3], dist.ReduceOp.BOR, async_op=True), [whole], [expected]


def reduce_of_bits(rank: int, size: int) -> Started:
    whole, expected = matrix(rank), matrix(rank)
    root = size - 1
    if rank == root:
        expected[:, 2] = reduced(matrices(size), torch.bitwise_xor)[:, 2]
    return dist.reduce(whole[:, 2], root, dist.ReduceOp.BXOR, async_op=True), [whole], [expected]


def reduce_scatter_of_bits(rank: int, size: int) -> Started:
    output = torch.zeros(4, 6, dtype=torch.int32).t()
    parts = [matrix(rank + i) for i in range(size)]
    expected = reduced([matrix(i + rank) for i in range(size)], torch.bitwise_and)
    return dist.reduce_scatter(output, parts, dist.ReduceOp.BAND, async_op=True), [output], [expected]


STARTED = [
    *(all_gather_list, all_gather_strided, all_to_all_list, gather, scatter, all_reduce_strided),
    *(bits_strided, reduce_of_bits, reduce_scatter_of_bits),
]


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"{what} within 60 s"
        time.sleep(0.0005)


@pytest.mark.parametrize("start", STARTED)
def test_results_are_there_once_completed(start: Callable[..., Started], rank: int, size: int) -> None:
    work, tensors, expected = start(rank, size)
    wait_until("completed", work.is_completed)
    for tensor, value in zip(tensors, expected, strict=True):
        assert torch.equal(tensor, value)
    assert work.is_success() and work.exception() is None and work.wait()


def test_results_that_nobody_waits_for(rank: int, size: int) -> None:
    """More operations than a group keeps for earlier versions of PyTorch."""
    for _ in range(10):
        started = [start(rank, size)[1:] for start in STARTED]
        for tensors, expected in started:
            for tensor, value in zip(tensors, expected, strict=True):
                wait_until("the result", lambda tensor=tensor, value=value: torch.equal(tensor, value))


@several
def test_wait_with_a_timeout_and_a_future(rank: int, size: int) -> None:
    """A future has the timeout of the group, but wait its own."""
    tensor = torch.ones(4)[::2]
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
        with pytest.raises(dist.DistBackendError, match="in progress after 200 ms"):
            work.wait(timedelta(seconds=0.2))
        assert not work.is_completed()
    dist.monitored_barrier()
    if rank:
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future()
    assert (future.wait()[0] == size).all() and work.wait() and (work.result()[0] == size).all()


# ---- memory ------------------------------------------------------------------------------------------


@several
@pytest.mark.parametrize("operation", ["broadcast", "all_reduce", "bits", "reduce", "all_gather"])
def test_strides_that_differ_by_rank(operation: str, rank: int, size: int) -> None:
    tensor = matrix(rank).t().contiguous().t() if rank == 0 else matrix(rank)
    if operation == "broadcast":
        dist.broadcast(tensor, 0)
        assert torch.equal(tensor, matrix(0))
    elif operation == "all_gather":
        outputs = [torch.empty_like(tensor) for _ in range(size)]
        dist.all_gather(outputs, tensor)
        assert all(map(torch.equal, outputs, matrices(size)))
    elif operation == "bits":
        dist.all_reduce(tensor, dist.ReduceOp.BXOR)
        assert torch.equal(tensor, reduced(matrices(size), torch.bitwise_xor))
    else:
        (dist.all_reduce if operation == "all_reduce" else dist.reduce)(tensor, *[0][operation != "reduce" :])
        assert torch.equal(tensor, sum(matrices(size)) if operation == "all_reduce" or rank == 0 else tensor)


def test_other_layouts(rank: int, size: int) -> None:
    images = torch.arange(48.0).view(2, 3, 2, 4).to(memory_format=torch.channels_last) * (rank + 1)
    dist.all_reduce(images)
    assert torch.equal(images, torch.arange(48.0).view(2, 3, 2, 4) * (size * (size + 1) // 2))
    pairs = torch.complex(torch.full((3,), 1.0 + rank), torch.full((3,), 2.0))
    dist.broadcast(pairs.conj().imag, 0)  # lazily negated
    assert (pairs.imag == 2).all() and (pairs.real == 1 + rank).all()
    tensor = torch.full((2, 2), float(rank), requires_grad=True)
    dist.all_reduce(tensor.t(), dist.ReduceOp.MAX)
    assert (tensor == size - 1).all()
    with torch.inference_mode():
        outputs = [torch.zeros(2, 3) for _ in range(size)]
        dist.all_gather(outputs, torch.full((2, 3), float(rank)))
        assert all((each == i).all() for i, each in enumerate(outputs))


def test_elements_that_share_memory(rank: int, size: int) -> None:
    shared = torch.full((1,), float(rank))
    for tensor in (shared.expand(4), torch.arange(5.0).as_strided((3, 3), (1, 1))):
        with pytest.raises(ValueError, match=r"share memory .*; pass x"):
            dist.all_reduce(tensor)
        with pytest.raises(ValueError, match=r"share memory .*; pass x"):
            dist.all_gather_into_tensor(torch.zeros(1).expand(tensor.numel() * size), tensor)
    joined = torch.zeros(4 * size)
    dist.all_gather_into_tensor(joined, shared.expand(4))  # is only read
    assert torch.equal(joined, torch.arange(size).repeat_interleave(4).float())


def test_tensors_that_share_memory(rank: int, size: int) -> None:
    one = torch.ones(3)
    with dist._coalescing_manager():
        dist.all_reduce(one)
        dist.all_reduce(one)
    assert (one == size).all(), "as on Gloo, which sums the copies"
    rows = torch.arange(2.0 * size).view(size, 2) + 10 * rank
    before = rows.clone()
    dist.all_to_all_single(rows, rows)
    assert torch.equal(rows, torch.stack([before[rank] + 10 * (i - rank) for i in range(size)]))
    joined = torch.zeros(size, 3)
    joined[0] = rank
    dist.all_gather_into_tensor(joined, joined[0])
    assert torch.equal(joined, torch.arange(float(size))[:, None].expand(size, 3))
    own = torch.zeros(size, 3)
    own[rank] = rank
    dist.all_gather_into_tensor(own, own[rank])  # in place
    assert torch.equal(own, joined)
    parts = torch.ones(size, 3)
    dist.reduce_scatter_tensor(parts[0], parts)
    assert (parts[0] == size).all()


@several
def test_groups_in_another_order(rank: int, size: int) -> None:
    """Every operation that knows a rank by its number; strided, which Gloo cannot do."""
    members = [*range(1, size), 0]
    try:
        group = dist.new_group(members, sort_ranks=False)
    except TypeError:
        pytest.skip("this PyTorch sorts them")
    mine = dist.get_group_rank(group, rank)
    assert members[mine] == rank
    listed = [torch.zeros(4, 6, dtype=torch.int32).t() for _ in members]
    dist.all_gather(listed, matrix(rank), group)
    joined = torch.zeros(4, 6 * size, dtype=torch.int32).t()
    dist.all_gather_into_tensor(joined, matrix(rank), group)
    in_order = [matrix(member) for member in members]
    assert all(map(torch.equal, listed, in_order)) and torch.equal(joined, torch.cat(in_order))
    part = torch.zeros(4, 6, dtype=torch.int32).t()
    dist.reduce_scatter_tensor(part, torch.cat([matrix(rank + i) for i in range(size)]), group=group)
    assert torch.equal(part, sum(matrix(i + mine) for i in range(size)))
    rows = torch.zeros(size, 2)
    dist.all_to_all_single(rows, torch.tensor([[rank, i] for i in range(size)]).float(), group=group)
    assert rows.tolist() == [[member, mine] for member in members]
    dist.scatter(part, in_order if rank == 0 else None, 0, group)
    assert torch.equal(part, matrix(rank))
    at_root = [torch.zeros(6, 4, dtype=torch.int32) for _ in members] if rank == 0 else None
    dist.gather(matrix(rank), at_root, 0, group)
    assert rank or all(map(torch.equal, at_root, in_order))
    dist.broadcast(part, 1, group)
    assert torch.equal(part, matrix(1))


# ---- between two ranks -------------------------------------------------------------------------------


@several
def test_strided_send_and_recv(rank: int, size: int) -> None:
    """Gloo refuses them; a lazily negated tensor is what it shows."""
    whole, expected = matrix(rank), matrix(rank)
    column = whole[:, 1]
    if rank == 0:
        dist.send(column, 1)
        dist.send(torch.complex(torch.ones(6), torch.full((6,), 2.0)).conj().imag, 1)
    elif rank == 1:
        work = dist.irecv(column, 0)
        assert work.wait() and work.wait(timedelta(seconds=60)) and work.is_completed()
        expected[:, 1] = matrix(0)[:, 1]
        negative = torch.zeros(6, 2)
        assert dist.recv(negative[:, 0]) == 0, "without a source"
        assert negative.tolist() == [[-2.0, 0.0]] * 6
    assert torch.equal(whole, expected)
    with pytest.raises(ValueError, match="share memory"):
        dist.irecv(torch.zeros(1).expand(4), (rank + 1) % size)


@several
def test_send_and_recv_of_nothing(rank: int, size: int) -> None:
    nothing, one = torch.zeros(0, 3), torch.full((1,), float(rank))
    ops = [
        dist.P2POp(kind, tensor, (rank + step) % size)
        for tensor in (nothing, one)
        for kind, step in ((dist.isend, 1), (dist.irecv, -1))
    ]
    received = torch.zeros(1)
    ops[-1].tensor = received
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert received == (rank - 1) % size
    if rank == 0:
        dist.send(nothing, 1)
    elif rank == 1:
        assert dist.recv(nothing) == 0


@several
def test_recv_from_any_rank_while_another_rank_does_neither(rank: int, size: int) -> None:
    group = dist.new_group(timeout=timedelta(seconds=60))
    received = torch.zeros(3)
    if rank == 0:
        assert dist.recv(received, group=group) == size - 1 and (received == 7).all()
    elif rank == size - 1:
        dist.send(torch.full((3,), 7.0), 0, group)
    dist.barrier(group)


# ---- sums with a factor ------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.5, 0.0])
def test_sums_with_a_factor(factor: float, rank: int, size: int) -> None:
    """As NCCL does them; Gloo cannot."""
    op = dist._make_nccl_premul_sum(factor)
    total = factor * sum(range(1, size + 1))
    whole = torch.full((4, 2), float(rank + 1))
    dist.all_reduce(whole[:, 0], op)
    assert whole.tolist() == [[total, rank + 1.0]] * 4
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.full((2 * size,), rank + 1.0), op)
    assert (part == total).all()
    uneven = torch.zeros(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((i + 1,), rank + 1.0) for i in range(size)], op)
    assert (uneven == total).all()


# ---- what is refused ---------------------------------------------------------------------------------

FLOAT8 = [name for name in dir(torch) if name.startswith("float8")]


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("strided", [False, True])
def test_types_are_refused_by_name(name: str, strided: bool, rank: int, size: int) -> None:
    tensor = torch.zeros(4, 4, dtype=torch.uint8).to(getattr(torch, name))
    tensor = tensor[:, 1] if strided else tensor
    outputs = [torch.empty_like(tensor) for _ in range(size)]
    for call in (
        lambda: dist.all_reduce(tensor),
        lambda: dist.broadcast(tensor, 0),
        lambda: dist.all_gather(outputs, tensor),
        lambda: dist.all_to_all(outputs, outputs),
    ):
        with pytest.raises(ValueError, match=f"elements of type {name}; "):
            call()


def test_layouts_are_refused_by_name(size: int) -> None:
    sparse = torch.eye(3).to_sparse()
    for call in (
        lambda: dist.broadcast(sparse, 0),
        lambda: dist.all_gather([sparse] * size, sparse),
        lambda: dist.reduce(sparse, 0),
    ):
        with pytest.raises(ValueError, match=r"layout torch.sparse_coo; .*to_dense"):
            call()
    with pytest.raises(ValueError, match=r"list has tensors of \[3"):
        dist.all_gather([torch.zeros(3)] * size, torch.zeros(2))
    with pytest.raises(ValueError, match=r"list has tensors of \["):
        dist.all_gather([torch.zeros(2)] * (size + 1), torch.zeros(2))
