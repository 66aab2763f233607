"""The state of training with PyTorch: what a commit keeps, and what a rank that joins receives."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import horovod.torch as hvd  # noqa: E402
from horovod.common import epochs  # noqa: E402
from horovod.torch.elastic.state import (  # noqa: E402
    ModelStateHandler,
    StateHandler,
    get_handler_registry,
    set_handler_registry,
)


def network(seed: int) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def train(model: Any, optimizer: Any, steps: int = 1, seed: int = 0) -> None:
    """Some steps on data that are the same on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 3, generator=generator)).square().mean().backward()
        optimizer.step()


def contents(*parts: Any) -> list[Any]:
    return [copy.deepcopy(part.state_dict()) for part in parts]


def same(left: Any, right: Any) -> bool:
    """Equal to the last bit."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), 0.1),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
    "adam": lambda model: torch.optim.Adam(model.parameters(), 0.01),
    "fused": lambda model: torch.optim.Adam(model.parameters(), 0.01, fused=True),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("distributed", [False, True], ids=["plain", "distributed"])
def test_restore_goes_back_to_the_bit(kind: str, distributed: bool) -> None:
    model = network(1)
    optimizer = OPTIMIZERS[kind](model)
    if distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    fresh = contents(model, optimizer)
    train(model, optimizer)
    state.restore()
    assert same(contents(model, optimizer), fresh)
    train(model, optimizer, 2)
    state.step = 2
    state.commit()
    kept = contents(model, optimizer)
    for _ in range(2):  # what is restored must not become the memory of the copy
        train(model, optimizer, 2, seed=3)
        state.step += 2
        assert not same(contents(model, optimizer), kept)
        state.restore()
        assert same(contents(model, optimizer), kept) and state.step == 2


def test_a_commit_copies_into_the_same_memory() -> None:
    model = network(1)
    optimizer = OPTIMIZERS["adam"](model)
    state = hvd.elastic.TorchState(model, optimizer)
    train(model, optimizer)
    state.commit()
    places = [each.data_ptr() for each in state._describe()[1]]
    train(model, optimizer)
    state.commit()
    assert [each.data_ptr() for each in state._describe()[1]] == places


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_all_get_the_state_of_rank_0(kind: str, rank: int) -> None:
    """A rank that joins has a new optimizer, which may have no state yet."""
    model = network(rank)
    optimizer = OPTIMIZERS[kind](model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (rank + 1))
    sampler = hvd.elastic.ElasticSampler(range(100))
    if rank == 0:
        train(model, optimizer, 3)
        scheduler.step()
        sampler.record_batch(0, 2)
    state = hvd.elastic.TorchState(
        model, optimizer, scheduler=scheduler, scaler=scaler, sampler=sampler, epoch=rank
    )
    state.sync()
    found = contents(model, optimizer, scheduler, scaler, sampler)
    expected = hvd.broadcast_object(found)
    assert same(found, expected) and state.epoch == 0
    assert sampler.processed_num == 2 * hvd.size() and optimizer.param_groups[0]["lr"] < 0.1
    train(model, optimizer)
    state.restore()
    assert same(contents(model, optimizer, scheduler, scaler, sampler), expected)


def test_odd_tensors(rank: int) -> None:
    """Of no extent, of no dimension, of types and layouts of all kinds."""
    model = torch.nn.Module()
    odd = {
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(float(rank)),
        "flag": torch.tensor([rank == 0, False]),
        "brain": torch.full((3,), rank + 0.5, dtype=torch.bfloat16),
        "imaginary": torch.full((2, 2), 1j * rank),
        "transposed": torch.arange(6.0).reshape(2, 3).t() + rank,
        "large": torch.full((5_000_000,), float(rank)),
    }
    for name, tensor in odd.items():
        model.register_buffer(name, tensor)
    state = hvd.elastic.TorchState(model)
    state.sync()
    assert same(model.state_dict(), hvd.broadcast_object(model.state_dict()))
    assert model.scalar == 0 and model.large[-1] == 0 and model.transposed.stride() == (1, 3)
    model.large += 1
    state.restore()
    assert model.large.sum() == 0


def test_several_models_by_name(rank: int) -> None:
    first, second = network(rank), network(10 + rank)
    state = hvd.elastic.TorchState(generator=first, critic=second, batch=0)
    state.sync()
    assert same(contents(first, second), hvd.broadcast_object(contents(first, second)))
    assert state.generator is first and state.critic is second
    other = network(20)
    state.critic = other
    kept = contents(first, other)
    train(first, OPTIMIZERS["sgd"](first))
    train(other, OPTIMIZERS["sgd"](other))
    state.restore()
    assert same(contents(first, other), kept)


def test_a_newcomer_with_another_model_is_refused(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    model = torch.nn.Linear(3, 4 if rank == 0 else 5)
    state = hvd.elastic.TorchState(model)
    if rank == 0:
        with pytest.raises(hvd.HorovodInternalError):
            state.sync()
            hvd.barrier()
    else:
        match = r"another model.*weight is a tensor \[5, 3\] of torch.float32 here and a tensor \[4, 3\]"
        with pytest.raises(ValueError, match=match):
            state.sync()
        hvd.shutdown()
    hvd.shutdown()
    hvd.init()


class Counter:
    """A value that pickle and deepcopy can't take."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("not to be copied")


class CounterHandler(StateHandler):
    def __init__(self, value: Counter) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self.kept = self.value.count

    def restore(self) -> None:
        self.value.count = self.kept

    def sync(self) -> None:
        self.value.count = hvd.broadcast_object(self.value.count)
        self.save()


@pytest.fixture
def registry() -> Iterator[None]:
    before = get_handler_registry()
    set_handler_registry([(Counter, CounterHandler), *before])
    yield
    set_handler_registry(before)


def test_a_handler_of_ones_own(registry: None, rank: int) -> None:
    counter, model = Counter(rank), network(rank)
    state = hvd.elastic.TorchState(model=model, counter=counter)
    state.sync()
    assert counter.count == 0
    counter.count = 7
    state.restore()
    assert counter.count == 0
    state.counter = Counter(9)
    state.counter.count = 10
    state.restore()
    assert state.counter.count == 9 and counter.count == 0


def joins(state: Any) -> None:
    """Synchronizes as the loop does after the ranks have changed."""
    state._joins = True
    try:
        state.sync()
    finally:
        state._joins = False


def test_a_handler_of_ones_own_and_the_rest_are_of_one_commit(registry: None, rank: int) -> None:
    """Although rank 0, whose value the handler gives away, lacks the newest one."""
    model = network(1)
    state = hvd.elastic.TorchState(model=model, counter=Counter(0), step=0)
    state.sync()
    for step in (1, 2):
        if step == 1 or rank > 0:
            state.step = state.counter.count = step
            train(model, OPTIMIZERS["sgd"](model))
            state.save()
    joins(state)
    assert (state.step, state.counter.count) == (1, 1)
    assert same(contents(model), hvd.broadcast_object(contents(model)))
    state.restore()
    assert (state.step, state.counter.count) == (1, 1)


def test_a_handler_of_ones_own_that_failed_is_synchronized_again(
    registry: None, rank: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    model = network(rank)
    state = hvd.elastic.TorchState(model=model, counter=Counter(5), step=3)
    state.sync()
    if rank == size - 1:
        model = network(7)
        state = hvd.elastic.TorchState(model=model, counter=Counter(0), step=0)

    def fails(_: Any) -> None:
        raise hvd.HorovodInternalError("a rank is lost")

    with monkeypatch.context() as patched:
        patched.setattr(CounterHandler, "sync", fails)
        with pytest.raises(hvd.HorovodInternalError):
            joins(state)
    state.restore()
    joins(state)
    assert (state.step, state.counter.count) == (3, 5)
    state.restore()
    assert (state.step, state.counter.count) == (3, 5)
    assert same(contents(model), hvd.broadcast_object(contents(model)))


def test_a_loss_between_two_handlers_of_ones_own(
    registry: None, rank: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that have a newer commit than rank 0, which is lost then, keep it as a whole."""
    if size == 1:
        pytest.skip("needs several ranks")
    model = network(1)
    state = hvd.elastic.TorchState(model=model, first=Counter(0), second=Counter(0), step=0)
    state.sync()
    for step in (1, 2):
        if step == 1 or rank > 0:
            state.step = state.first.count = state.second.count = step
            train(model, OPTIMIZERS["sgd"](model))
            state.save()
    newest, sync = 2 if rank else 1, CounterHandler.sync
    before, version = contents(model), state._commit.version

    def fails(handler: CounterHandler) -> None:
        if handler.value is state.second:
            raise hvd.HorovodInternalError("rank 0 is lost")
        sync(handler)

    with monkeypatch.context() as patched:
        patched.setattr(CounterHandler, "sync", fails)
        with pytest.raises(hvd.HorovodInternalError):
            joins(state)
    state.restore()
    assert (state.step, state.first.count, state.second.count) == (newest, newest, newest)
    assert same(contents(model), before)
    assert (state._commit.version, state._commit.holds) == (version, True)
    joins(state)
    assert (state.step, state.first.count, state.second.count) == (1, 1, 1)


def test_a_handler_that_keeps_what_cannot_be_copied() -> None:
    class Keeper(CounterHandler):
        def save(self) -> None:
            super().save()
            self.other = Counter(1)

    before = get_handler_registry()
    set_handler_registry([(Counter, Keeper), *before])
    try:
        with pytest.raises(ValueError, match="the handler Keeper of counter keeps what can't be copied"):
            hvd.elastic.TorchState(counter=Counter(0))
    finally:
        set_handler_registry(before)


def test_a_handler_of_ones_own_on_a_rank_0_without_a_commit(registry: None, rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    state = hvd.elastic.TorchState(counter=Counter(5))
    state.sync()
    if rank == 0:
        state = hvd.elastic.TorchState(counter=Counter(0))
        with pytest.raises(RuntimeError, match="rank 0 lacks the commit"):
            joins(state)
        hvd.shutdown()
    else:
        with pytest.raises(hvd.HorovodInternalError):
            joins(state)
    state.restore()
    assert state.counter.count == (5 if rank else 0)
    hvd.shutdown()
    hvd.init()


def test_a_handler_that_is_replaced_has_its_own_way(rank: int) -> None:
    class Loud(ModelStateHandler):
        synced = 0

        def sync(self) -> None:
            super().sync()
            Loud.synced += 1

    before = get_handler_registry()
    set_handler_registry([(torch.nn.Module, Loud), *before])
    try:
        model = network(rank)
        state = hvd.elastic.TorchState(model)
        state.sync()
    finally:
        set_handler_registry(before)
    assert same(contents(model), hvd.broadcast_object(contents(model)))
    assert Loud.synced == (hvd.size() > 1)


def test_a_reset_divides_the_samples_anew(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod.torch.elastic import sampler as module

    sampler = hvd.elastic.ElasticSampler(range(100))
    state = hvd.elastic.TorchState(sampler=sampler)
    monkeypatch.setattr(module, "size", lambda: 2 * hvd.size())
    state.on_reset()
    assert sampler.num_replicas == 2 * hvd.size()


def test_a_sync_divides_the_samples_anew(size: int) -> None:
    sampler = hvd.elastic.ElasticSampler(range(9 * size))
    state = hvd.elastic.TorchState(sampler=sampler)
    for batch in range(3):
        sampler.record_batch(batch, 2)
    state.sync()
    assert len(sampler) == 3
    rest = [index for each in hvd.allgather_object([*sampler]) for index in each]
    assert sorted(rest) == sorted(sampler.remaining_indices)


def test_a_new_optimizer_beside_old_ones(rank: int) -> None:
    """All ranks agree anew which gradients are sparse; without that the job would wait forever."""
    model = torch.nn.Embedding(10, 3, sparse=True)
    made = {
        name: hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1)) for name in ("old", "new")
    }
    del made["new"]

    def step(optimizer: Any) -> None:
        optimizer.zero_grad()
        model(torch.tensor([rank % 10])).sum().backward()
        optimizer.step()

    step(made["old"])
    optimizer = made["old"]
    if rank > 0:
        del made["old"], optimizer
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
    for each in epochs.resettable:
        each.begin_epoch()
    step(optimizer)
    assert optimizer._hvd.sparse == {0}


def test_a_step_in_progress_is_forgotten() -> None:
    model = network(1)
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](model), model.named_parameters())
    train(model, optimizer)
    model(torch.ones(2, 3)).sum().backward()
    for each in epochs.resettable:
        each.begin_epoch()
    optimizer.zero_grad()  # refused before: the gradients would be lost
    train(model, optimizer)


def test_a_step_is_the_same_for_every_number_of_ranks(size: int) -> None:
    """Each step takes the same samples, and its gradients are their mean."""
    parts, batch, samples = 7, 2, 60

    def loss(model: Any, batch: Any) -> Any:
        return model(batch).square().mean()

    data = torch.randn(samples, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    model, alone = torch.nn.Linear(3, 2).double(), torch.nn.Linear(3, 2).double()
    torch.nn.init.ones_(model.weight), torch.nn.init.ones_(model.bias)
    alone.load_state_dict(model.state_dict())
    sampler = hvd.elastic.ElasticSampler(data, seed=3)
    order = sampler.remaining_indices
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, global_batch=parts)
    loader = torch.utils.data.DataLoader(data, batch_size=batch, sampler=sampler)
    steps = 0
    for batches in state.steps(loader):
        assert len(batches) == state.passes
        for number, each in enumerate(batches):
            loss(model, each).backward()
            sampler.record_batch(number, len(each))
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        assert sampler.processed_num == steps * parts * batch
        state.commit()
    assert steps == samples // (parts * batch)
    assert hvd.allreduce(torch.tensor(state.passes), op=hvd.Sum).item() == parts
    plain = torch.optim.SGD(alone.parameters(), 0.1)
    for step in range(steps):
        plain.zero_grad()
        loss(alone, data[order[step * parts * batch : (step + 1) * parts * batch]]).backward()
        plain.step()
    torch.testing.assert_close(model.state_dict(), alone.state_dict())
    if size > 1:
        with pytest.raises(ValueError, match=f"global_batch=1 is too small for {size} ranks"):
            hvd.elastic.TorchState(model, global_batch=1)


def test_generators_are_part_of_a_commit() -> None:
    import random

    import numpy as np

    def draw() -> tuple[float, ...]:
        return random.random(), float(np.random.rand()), torch.rand(1).item()

    state = hvd.elastic.TorchState(step=0, rng=True)
    state.commit()
    drawn = draw()
    assert draw() != drawn
    state.restore()
    assert draw() == drawn
    plain = hvd.elastic.TorchState(step=0)
    drawn = draw()
    plain.restore()
    assert draw() != drawn
