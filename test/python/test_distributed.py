"""The back end of torch.distributed: every collective against Gloo's, training against one process."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import horovod as hvd

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
nn = torch.nn
FULL = "HOROVOD_TEST_FULL" in os.environ
full = pytest.mark.skipif(not FULL, reason="long: HOROVOD_TEST_FULL=1")
training = pytest.mark.skipif(not FULL and hvd.size() != 2, reason="on 2 ranks, else HOROVOD_TEST_FULL=1")
several = pytest.mark.skipif(hvd.size() == 1, reason="needs two ranks")
newer = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7), reason="not yet, or not on CPUs"
)
pytestmark = pytest.mark.skipif(hvd.size() > 3, reason="three ranks show what four would")


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    import horovod.torch.distributed  # noqa: F401

    dist.init_process_group("horovod", timeout=timedelta(seconds=120))
    yield
    dist.destroy_process_group()
    assert hvd.is_initialized(), "the job was begun outside"


@pytest.fixture(scope="module")
def gloo(_world: None) -> Any:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return dist.new_group(backend="gloo")


def test_place(rank: int, size: int) -> None:
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (rank, size, "horovod")


# ---- collectives -------------------------------------------------------------------------------------


def data(rank: int, *shape: int, dtype: Any = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(rank + 17)
    return torch.randint(1, 9, shape, generator=generator).to(dtype)


def all_reduce(group: Any, rank: int, size: int) -> list[Any]:
    ops = (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT)
    dtypes = (torch.float32, torch.float64, torch.int64, torch.float16)
    tensors = [data(rank, 3, 5, dtype=dtype) for _ in ops for dtype in dtypes]
    for i, tensor in enumerate(tensors):
        dist.all_reduce(tensor, ops[i // len(dtypes)], group)
    return tensors


def all_reduce_of_complex(group: Any, rank: int, size: int) -> list[Any]:
    tensor = torch.complex(data(rank, 3), data(rank + 1, 3))
    dist.all_reduce(tensor, group=group)
    return [tensor]


def bits(group: Any, rank: int, size: int) -> list[Any]:
    tensors = [data(rank, 7, dtype=torch.int32) for _ in range(3)]
    for tensor, op in zip(tensors, (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR), strict=True):
        dist.all_reduce(tensor, op, group)
    return tensors


def sparse(group: Any, rank: int, size: int) -> list[Any]:
    tensor = torch.sparse_coo_tensor([[rank, 5]], [1.0, 2.0], (8,))
    dist.all_reduce(tensor, group=group)
    return [tensor.to_dense()]


def broadcasts_and_reduce(group: Any, rank: int, size: int) -> list[Any]:
    tensors = [data(rank, 4) for _ in range(size)]
    reduced = [data(rank, 4) for _ in range(size)]
    for root in range(size):
        dist.broadcast(tensors[root], root, group)
        dist.reduce(reduced[root], root, dist.ReduceOp.MAX, group)
    return [*tensors, reduced[rank]]  # elsewhere its content is not defined


def gathers(group: Any, rank: int, size: int) -> list[Any]:
    joined = torch.zeros(size * 2, 3, dtype=torch.int64)
    dist.all_gather_into_tensor(joined, data(rank, 2, 3, dtype=torch.int64), group)
    listed = [torch.zeros(3, 2) for _ in range(size)]
    dist.all_gather(listed, data(rank, 2, 3).t(), group)
    scalars = [torch.zeros(()) for _ in range(size)]
    dist.all_gather(scalars, torch.tensor(float(rank)), group)
    coalesced = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(coalesced, [data(rank, 2), data(rank, 3)], group)
    root = size - 1
    at_root = [torch.zeros(5) for _ in range(size)] if rank == root else None
    dist.gather(data(rank, 5), at_root, root, group)
    return [joined, *listed, *scalars, *coalesced[0], *coalesced[-1], *(at_root or [])]


def scatters(group: Any, rank: int, size: int) -> list[Any]:
    own, parts = torch.zeros(3), [torch.zeros(2, 2) for _ in range(3)]
    root = size - 1
    dist.scatter(own, [data(i, 3) for i in range(size)] if rank == root else None, root, group)
    dist.reduce_scatter_tensor(parts[0], data(rank, 2 * size, 2), group=group)
    dist.reduce_scatter(parts[1], [data(rank + i, 2, 2) for i in range(size)], group=group)
    dist.reduce_scatter_tensor(parts[2], data(rank, 2 * size, 2), dist.ReduceOp.MAX, group)
    return [own, *parts]


def exchanges(group: Any, rank: int, size: int) -> list[Any]:
    even = torch.zeros(2 * size, 3)
    dist.all_to_all_single(even, data(rank, 2 * size, 3), group=group)
    counts = [i + 1 for i in range(size)]
    uneven = torch.zeros((rank + 1) * size, 2)
    dist.all_to_all_single(uneven, data(rank, sum(counts), 2), [rank + 1] * size, counts, group)
    return [even, uneven]


def neighbours(group: Any, rank: int, size: int) -> list[Any]:
    """Around the ring: all send and receive at the same time."""
    if size == 1:
        return []
    got = torch.zeros(4)
    ops = [
        dist.P2POp(dist.isend, data(rank, 4), (rank + 1) % size, group),
        dist.P2POp(dist.irecv, got, (rank - 1) % size, group),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return [got]


COLLECTIVES: list[Callable[[Any, int, int], list[Any]]] = [
    *(all_reduce, all_reduce_of_complex, bits, sparse, broadcasts_and_reduce),
    *(gathers, scatters, exchanges, neighbours),
]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_as_gloo_does(collective: Callable[..., list[Any]], gloo: Any, rank: int, size: int) -> None:
    ours = collective(None, rank, size)
    try:
        theirs = collective(gloo, rank, size)
    except RuntimeError as error:  # of earlier versions
        if "support" not in str(error):
            raise
        pytest.skip(str(error))
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)


def test_strides(rank: int, size: int) -> None:
    tensor, expected = data(rank, 4, 6), sum(data(r, 4, 6) for r in range(size))
    dist.all_reduce(tensor.t())
    assert torch.equal(tensor, expected)
    dist.all_reduce(tensor[::2, 1::2])  # which Gloo leaves as it was
    expected[::2, 1::2] *= size
    assert torch.equal(tensor, expected)
    joined = torch.zeros(3, 2 * size).t()
    dist.all_gather_into_tensor(joined, data(rank, 3, 2).t())
    assert torch.equal(joined, torch.cat([data(r, 3, 2).t() for r in range(size)]))


def test_average_and_lists(rank: int, size: int) -> None:
    mean = torch.full((3,), float(rank))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.full((2 * size,), float(rank)), dist.ReduceOp.AVG)
    assert (mean == (size - 1) / 2).all() and (part == (size - 1) / 2).all()
    outputs = [torch.zeros(rank + 1) for _ in range(size)]  # uneven, which Gloo can't do
    dist.all_to_all(outputs, [torch.full((i + 1,), 10.0 * rank + i) for i in range(size)])
    assert all((t == 10 * i + rank).all() for i, t in enumerate(outputs))
    uneven = [torch.zeros(i + 1) for i in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    assert all((t == i).all() for i, t in enumerate(uneven))
    own = torch.zeros(rank + 1)
    dist.reduce_scatter(own, [torch.full((i + 1,), 2.0) for i in range(size)])
    assert (own == 2 * size).all()


def requests(operation: str) -> float:
    return hvd.metrics()[0][operation]["submitted"]


def test_exchanges_without_rows(rank: int, size: int) -> None:
    """Rank 0 has nothing for anybody, as an expert of a mixture without a token."""
    rows = [0 if rank == 0 else i for i in range(size)]
    received = [0 if i == 0 else rank for i in range(size)]
    output = torch.zeros(sum(received), 3)
    dist.all_to_all_single(output, data(rank, sum(rows), 3), received, rows)
    expected = [data(i, size * (size - 1) // 2, 3).split(list(range(size)))[rank] for i in range(1, size)]
    assert torch.equal(output, torch.cat([torch.zeros(0, 3), *expected]))


def test_coalesced(rank: int, size: int) -> None:
    dist.all_reduce(torch.ones(1))
    before = requests("allreduce")
    sums = [torch.ones(3), torch.ones(2, dtype=torch.int64)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in sums:
            dist.all_reduce(tensor)
    manager.wait()
    assert all((t == size).all() for t in sums)
    assert requests("allreduce") == before + 1, "one request, whatever types it has"
    outputs = [torch.zeros(size * n) for n in (2, 3)]
    with dist._coalescing_manager():
        for output, n in zip(outputs, (2, 3), strict=True):
            dist.all_gather_into_tensor(output, torch.full((n,), float(rank)))
    assert all(t[-1] == size - 1 for t in outputs)


def test_asynchronous_work_and_futures(size: int) -> None:
    tensors = [torch.full((1000,), float(i)) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future().then(lambda done: done.value()[0].sum().item()) for work in works[::2]]
    assert [future.wait() for future in futures] == [1000.0 * i * size for i in range(0, 20, 2)]
    for work in works:
        assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
    assert works[1].get_future().wait()[0] is tensors[1]
    assert all((t == i * size).all() for i, t in enumerate(tensors))


def test_a_future_waits_for_what_it_starts(size: int) -> None:
    """A function chained to it starts an operation and waits for that. One at a time: which of two threads
    starts its operation first is chance, and the order must be the same on all ranks."""

    def go_on(done: Any) -> Any:
        return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]

    for _ in range(4):
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(go_on)
        assert (future.wait() == size**2).all()


def test_objects(rank: int, size: int) -> None:
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * 100 * rank})
    assert [each["rank"] for each in gathered] == list(range(size))
    objects = [rank, "a"] if rank == size - 1 else [None, None]
    dist.broadcast_object_list(objects, size - 1)
    assert objects == [size - 1, "a"]
    own = [None]
    dist.scatter_object_list(own, [f"for {i}" for i in range(size)] if rank == 0 else None, 0)
    assert own == [f"for {rank}"]
    at_root: Any = [None] * size if rank == 0 else None
    dist.gather_object((rank,), at_root, 0)
    assert rank or at_root == [(i,) for i in range(size)]


# ---- groups ------------------------------------------------------------------------------------------


def test_groups_of_any_members(rank: int, size: int) -> None:
    """Of the second kind only members call new_group."""
    for members in ([0], [size - 1], list(range(size)), list(range(0, size, 2))):
        groups = [dist.new_group(members)]
        if rank in members:
            groups.append(dist.new_group(members, use_local_synchronization=True))
            for group in groups:
                value = torch.tensor([rank])
                dist.all_reduce(value, group=group)
                assert value == sum(members) and dist.get_world_size(group) == len(members)
                shared = torch.tensor([rank])
                dist.broadcast(shared, members[-1], group)
                assert shared == members[-1]
                dist.destroy_process_group(group)


@several
def test_groups_in_another_order(rank: int, size: int) -> None:
    members = list(reversed(range(size)))
    try:
        group = dist.new_group(members, sort_ranks=False)
    except TypeError:
        pytest.skip("this PyTorch sorts them")
    parts = [torch.zeros(1) for _ in members]
    dist.all_gather(parts, torch.tensor([float(rank)]), group=group)
    assert [int(t) for t in parts] == members


@several
def test_monitored_barrier(rank: int, size: int) -> None:
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    group = dist.new_group()
    if rank != size - 1:
        limit = timedelta(seconds=60 if rank else 0.3)  # rank 0 decides, and may name one that is slow, too
        with pytest.raises(RuntimeError, match=rf"rank (\d, )*{size - 1} of the group did not"):
            dist.monitored_barrier(group, limit, wait_all_ranks=True)
    total = torch.ones(1)
    dist.all_reduce(total, group=group)
    assert total == size


# ---- errors ------------------------------------------------------------------------------------------


@several
def test_mismatch(rank: int, size: int) -> None:
    text = r"disagree on the shape of tensor 0: rank 0 has \[2\]"
    for future in (False, True):
        work = dist.all_reduce(torch.ones(2 + rank), async_op=True)
        if future:
            with pytest.raises(RuntimeError, match=text):
                work.get_future().wait()
        with pytest.raises(dist.DistBackendError, match=text):
            work.wait()
        assert not work.is_success() and "disagree" in str(work.exception())
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == size


@several
def test_exchange_of_other_lengths(rank: int, size: int) -> None:
    """The output has room for all elements, but expects them of other ranks."""
    splits = [2] * size
    counts = splits if rank else [4, 0, *splits[2:]]
    work = dist.all_to_all_single(torch.zeros(2 * size), torch.zeros(2 * size), counts, splits, async_op=True)
    if rank:
        work.wait()
    else:
        with pytest.raises(ValueError, match=r"the ranks sent \[2, 2.* elements, the outputs expect \[4, 0"):
            work.wait()


@several
def test_timeout(rank: int, size: int) -> None:
    group = dist.new_group(timeout=timedelta(seconds=60 if rank else 0.3))  # only rank 0 waits in vain
    total = torch.ones(3)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="in progress after 300 ms, which is the timeout"):
            dist.all_reduce(total, group=group)
    dist.barrier()
    if rank:
        dist.all_reduce(total, group=group)
    dist.barrier(group=dist.new_group())
    deadline = time.monotonic() + 60
    while not (total == size).all():
        assert time.monotonic() < deadline, "the operation does not go on"


def test_wrong_arguments(size: int) -> None:
    with pytest.raises(ValueError, match="times"):
        dist.all_gather_into_tensor(torch.zeros(size * 2 + 1), torch.zeros(2))
    with pytest.raises(ValueError, match="times"):
        dist.reduce_scatter_tensor(torch.zeros(2), torch.zeros(size * 2 + 1))
    with pytest.raises(ValueError, match=r"the input has 6 rows, its parts have \[.*4\]"):
        dist.all_to_all_single(torch.zeros(6), torch.zeros(6), None, [0] * (size - 1) + [4])
    with pytest.raises(RuntimeError, match="BOR"):
        dist.reduce_scatter_tensor(torch.zeros(1), torch.zeros(size), dist.ReduceOp.BOR)
    with pytest.raises(ValueError, match="meta"):
        dist.all_reduce(torch.zeros(2, device="meta"))


# ---- training ----------------------------------------------------------------------------------------


def network() -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def batches(size: int) -> Any:
    torch.manual_seed(5)
    return torch.randn(4, size, 6, 12)  # steps, ranks


def train(model: Any, optimizer: Any, inputs: Any) -> list[Any]:
    for each in inputs:
        optimizer.zero_grad()
        model(each).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def together(size: int) -> list[Any]:
    """One process on the joint batch."""
    model = network()
    return train(model, torch.optim.Adam(model.parameters(), 0.01), batches(size).flatten(1, 2))


def check_equal(ours: list[Any], size: int, tolerance: float = 2e-6) -> None:
    for own, expected in zip(ours, together(size), strict=True):
        torch.testing.assert_close(own, expected, rtol=0, atol=tolerance)


@training
@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}, {"static_graph": True}],
)
def test_ddp(options: dict[str, bool], rank: int, size: int) -> None:
    model = network()
    with torch.no_grad():
        model[0].weight += rank  # rank 0's are broadcast
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.003, **options)
    check_equal(train(model, torch.optim.Adam(model.parameters(), 0.01), batches(size)[:, rank]), size)


@training
def test_ddp_without_synchronization(rank: int, size: int) -> None:
    model = nn.parallel.DistributedDataParallel(network())
    first, second = batches(size)[:2, rank]
    with model.no_sync():
        model(first).square().mean().backward()
    model(second).square().mean().backward()
    whole = network()
    sum(whole(x.flatten(0, 1)).square().mean() for x in batches(size)[:2]).backward()
    for own, expected in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(own.grad, expected.grad, rtol=0, atol=2e-6)


@training
def test_ddp_with_more_steps_on_one_rank(rank: int, size: int) -> None:
    """`join` shadows the collectives of ranks that still train; the last one's weights go to all."""
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with model.join():
        ours = train(model, optimizer, batches(size)[: 2 + rank, rank])
    for parameter in ours:
        first = parameter.clone()
        dist.broadcast(first, 0)
        assert torch.equal(parameter, first)


@training
@pytest.mark.parametrize("hook", ["allreduce", "fp16", "power_sgd"])
def test_ddp_hooks(hook: str, gloo: Any, rank: int, size: int) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    parameters = []
    for group in (dist.group.WORLD, gloo):
        model = nn.parallel.DistributedDataParallel(network(), process_group=group)
        if hook == "allreduce":
            model.register_comm_hook(group, default_hooks.allreduce_hook)
        elif hook == "fp16":
            model.register_comm_hook(group, default_hooks.fp16_compress_hook)
        else:
            state = powerSGD_hook.PowerSGDState(group, 1, start_powerSGD_iter=2, min_compression_rate=0.5)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        parameters.append(train(model, torch.optim.SGD(model.parameters(), 0.1), batches(size)[:, rank]))
    for ours, theirs in zip(*parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@several
@pytest.mark.parametrize("name", ["power_sgd", "sum_of_sums"])
def test_hooks_that_go_on_with_several_buckets_in_flight(name: str, rank: int, size: int) -> None:
    """A chained function starts its operation before that of the next bucket on one rank and after it on
    another; where the future is done already, it runs in the hook."""
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    def pause(bucket: Any) -> None:
        buckets.add(bucket.index())
        time.sleep(0.01 * ((rank + bucket.index()) % 2))

    def power_sgd(state: Any, bucket: Any) -> Any:
        future = powerSGD_hook(state, bucket)
        pause(bucket)
        return future

    def sum_of_sums(_: Any, bucket: Any) -> Any:
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        pause(bucket)
        return future.then(go_on).then(lambda done: done.value() / size**2)

    def go_on(done: Any) -> Any:
        return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]

    buckets: set[int] = set()
    exact = PowerSGDState(None, 32, start_powerSGD_iter=2, min_compression_rate=0.01)  # of full rank
    model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.0005)
    hook = {"power_sgd": power_sgd, "sum_of_sums": sum_of_sums}[name]
    model.register_comm_hook(exact, lambda state, bucket: hook(state, bucket))  # it reads annotations
    ours = train(model, torch.optim.SGD(model.parameters(), 0.1), batches(size)[:, rank])
    assert len(buckets) >= 3
    whole = network()
    expected = train(whole, torch.optim.SGD(whole.parameters(), 0.1), batches(size).flatten(1, 2))
    for own, one in zip(ours, expected, strict=True):
        torch.testing.assert_close(own, one, rtol=0, atol=1e-5)


@newer
@training
def test_fsdp2(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    model = network()
    for layer in (*(m for m in model if isinstance(m, nn.Linear)), model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    check_equal([p.full_tensor() for p in train(model, optimizer, batches(size)[:, rank])], size)
    spread = distribute_tensor(torch.arange(12.0).view(6, 2), mesh, [Shard(0)])
    assert spread.sum().full_tensor() == 66
    assert spread.redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()]).to_local()[5, 1] == 11


@newer
@training
def test_tensor_parallel_and_hybrid_shards(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (size,))
    styles = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    models = [parallelize_module(network(), mesh, styles)]
    for shape in ((size, 1), (1, size)):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
        models.append(fully_shard(network(), mesh=mesh))
    alone, batch = network(), batches(1)[0, 0]
    alone(batch).square().mean().backward()
    for model in models:
        model(batch).square().mean().backward()
        for own, expected in zip(model.parameters(), alone.parameters(), strict=True):
            gradient = own.grad.full_tensor() if hasattr(own.grad, "full_tensor") else own.grad
            torch.testing.assert_close(gradient, expected.grad, rtol=0, atol=2e-6)


@newer
@training
def test_checkpoint_in_the_background(rank: int, size: int, tmp_path: Path) -> None:
    from torch.distributed import checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    folder = [tmp_path]
    dist.broadcast_object_list(folder)
    model = fully_shard(network(), mesh=init_device_mesh("cpu", (size,)))
    state = model.state_dict()
    checkpoint.async_save(state, checkpoint_id=folder[0]).result()
    expected = [parameter.detach().full_tensor().clone() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    checkpoint.load(state, checkpoint_id=folder[0])
    for parameter, value in zip(model.parameters(), expected, strict=True):
        assert torch.equal(parameter.detach().full_tensor(), value)


@newer
@training
def test_fsdp1(rank: int, size: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    warnings.simplefilter("ignore")
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    train(model, torch.optim.Adam(model.parameters(), 0.01), batches(size)[:, rank])
    with FullyShardedDataParallel.summon_full_params(model):
        check_equal([p.detach() for p in model.parameters()], size)


@training
def test_zero(rank: int, size: int) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    check_equal(train(model, optimizer, batches(size)[:, rank]), size)


def functional(x: Any) -> Any:
    import torch.distributed._functional_collectives as functions

    group = dist.group.WORLD
    total = functions.all_reduce(x * 2, "sum", group)
    joined = functions.all_gather_tensor(total + x, 0, group)
    return functions.reduce_scatter_tensor(joined, "sum", 0, group) + 1


def check_functional(function: Callable[[Any], Any], rank: int, size: int) -> None:
    x = torch.full((4,), float(rank + 1))
    expected = size * (size * (size + 1) + x) + 1
    torch.testing.assert_close(function(x) + 0, expected)


@training
def test_functional_collectives(rank: int, size: int) -> None:
    check_functional(functional, rank, size)


@newer
@training
@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=full)])
def test_compiled_functional_collectives(compiler: str, rank: int, size: int) -> None:
    check_functional(torch.compile(functional, fullgraph=True, backend=compiler), rank, size)


@training
def test_compiled_ddp(rank: int, size: int) -> None:
    model = nn.parallel.DistributedDataParallel(network())
    compiled = torch.compile(model, backend="aot_eager")
    check_equal(train(compiled, torch.optim.Adam(model.parameters(), 0.01), batches(size)[:, rank]), size)


def test_a_store_out_of_reach_is_an_error_that_stays() -> None:
    """So an elastic job ends, unless it was a lost rank."""
    from horovod.torch.distributed import _store_at

    with pytest.raises(hvd.HorovodInternalError, match="can't connect to the store") as caught:
        _store_at([], 1, "token", timedelta(seconds=1))
    assert caught.value.code == "MISMATCH"
