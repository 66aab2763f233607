"""The copy of what all ranks have alike: made while training goes on, restored, read by newcomers."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_torch_elastic import OPTIMIZERS, contents, joins, network, same, train  # noqa: E402

import horovod.torch as hvd  # noqa: E402
from horovod import _core  # noqa: E402
from horovod.common import recovery  # noqa: E402


def trained(seed: int = 1, kind: str = "adam", **values: Any) -> tuple[Any, Any, Any]:
    """A model, its distributed optimizer, and a state of both which is that of the job."""
    model = network(seed)
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[kind](model), model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, **values)
    joins(state)
    return model, optimizer, state


def test_a_snapshot_of_all_ranks(rank: int) -> None:
    snapshot = _core.Snapshot()
    snapshot.join()
    for version in range(3):
        parts = [np.full(100_003, version, np.float32), np.arange(5) + version]
        snapshot.save(version, parts)
        snapshot.wait()
        room = [np.zeros_like(each) for each in parts]
        assert snapshot.version() == (version, sum(each.nbytes for each in parts), 0)
        snapshot.read(version, 0, room)
        assert all(map(np.array_equal, room, parts))
        hvd.barrier()
    with pytest.raises(ValueError, match="not a later one"):
        snapshot.save(1, [np.zeros(1)])
    with pytest.raises(ValueError, match="snapshot"):
        snapshot.save(9, ["no tensor"])
    hvd.barrier()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_commit_is_restored_from_the_copy(kind: str) -> None:
    model, optimizer, state = trained(kind=kind, step=0)
    for step in range(3):
        train(model, optimizer, 2, seed=step)
        state.step = step
        state.commit()
        assert state._host_copy.tensors  # and no copy in this process
        kept = contents(model, optimizer)
        train(model, optimizer, 2, seed=step + 10)
        assert not same(contents(model, optimizer), kept)
        state.restore()
        assert same(contents(model, optimizer), kept) and state.step == step
        state.restore()
        assert same(contents(model, optimizer), kept)
    train(model, optimizer)


def test_buffers_are_those_of_each_rank(rank: int) -> None:
    """The running statistics of BatchNorm differ from rank to rank, and are written in the forward pass."""
    model, optimizer, state = trained()
    train(model, optimizer)
    with torch.no_grad():
        model[1].running_mean.fill_(rank)
    state.commit()
    model(torch.randn(8, 3))
    assert not torch.equal(model[1].running_mean, torch.full((4,), float(rank)))
    state.restore()
    assert torch.equal(model[1].running_mean, torch.full((4,), float(rank)))


@pytest.mark.parametrize("kind", ["plain", "adasum", "process set"])
def test_what_is_not_equal_on_all_ranks_is_copied_by_each(
    kind: str, rank: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "process set" and size == 1:
        pytest.skip("needs several ranks")
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    model = network(rank)
    optimizer = OPTIMIZERS["sgd"](model)
    mine = hvd.add_process_set([0]) if size > 1 else hvd.global_process_set
    if kind == "adasum":
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Adasum)
    elif kind == "process set":
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), process_set=mine)
    state = hvd.elastic.TorchState(model, optimizer)
    joins(state)
    with torch.no_grad():
        model[0].weight += rank
    state.commit()
    assert not state._host_copy.tensors
    kept = contents(model)
    with torch.no_grad():
        model[0].weight.zero_()
    state.restore()
    assert same(contents(model), kept)
    if size > 1:
        hvd.remove_process_set(mine)


def test_a_save_by_the_program_is_in_this_process(rank: int) -> None:
    """It may be called by one rank only; commits afterwards are in the host's copy again."""
    model, optimizer, state = trained()
    train(model, optimizer)
    if rank == 0:
        state.save()
        assert not state._host_copy.tensors
    for seed in range(2):
        train(model, optimizer, seed=seed)
        state.commit()
        kept = contents(model, optimizer)
        train(model, optimizer, seed=5)
        state.restore()
        assert same(contents(model, optimizer), kept) and state._host_copy.tensors


def test_a_newcomer_reads_the_copy_of_its_host(rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer, state = trained()
    train(model, optimizer, 2)
    state.commit()
    train(model, optimizer)  # so that the copy is whole
    state.commit()
    state._host_copy.before_step(state._host_copy._counts)
    hvd.barrier()
    sent: list[int] = []
    exchange = recovery._exchange
    monkeypatch.setattr(
        recovery,
        "_exchange",
        lambda memory, *rest: (sent.append(sum(map(len, memory))), exchange(memory, *rest)),
    )
    if rank == size - 1 and size > 1:
        model = network(5)
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS["adam"](model), model.named_parameters())
        state = hvd.elastic.TorchState(model, optimizer)
    joins(state)
    found = contents(model, optimizer)
    assert same(found, hvd.broadcast_object(found))
    buffers = sum(each.numel() * each.element_size() for each in model.buffers())
    assert sum(sent) in (0, buffers)
    state.commit()


def test_tensors_written_by_hand_are_noticed(rank: int) -> None:
    model, optimizer, state = trained()
    train(model, optimizer)
    state.commit()
    with torch.no_grad():
        model[0].weight += 1
    with pytest.warns(UserWarning, match="written after a commit"):
        train(model, optimizer)
    with pytest.raises(RuntimeError, match="written by hand"):
        state.restore()
    state.commit()
    kept = contents(model, optimizer)
    with torch.no_grad():
        model[0].weight += 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer)
    state.restore()
    assert same(contents(model, optimizer), kept)
    hvd.barrier()


def test_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = _core.setting
    monkeypatch.setattr(_core, "setting", lambda name: "0" if name == "elastic_copies" else setting(name))
    model, optimizer, state = trained(step=0)
    train(model, optimizer)
    state.step = 1
    state.commit()
    assert state._host_copy._snapshot is None and state._host_copy.steps == 0
    train(model, optimizer)
    state.step = 2
    moved = copy.deepcopy([*model.parameters()]), contents(optimizer)
    state.restore()
    assert state.step == 1 and state._host_copy.steps == 1
    assert same(([*model.parameters()], contents(optimizer)), moved)
    joins(state)
    assert same(([*model.parameters()], contents(optimizer)), moved) and state._host_copy.steps == 0


def test_of_steps_that_cannot_be_undone_the_fewest_count() -> None:
    make = recovery._Record
    ahead, behind = (make(True, False, 5, 0, 1, steps=steps) for steps in (2, 1))
    verdict = recovery.decide([ahead, behind, ahead])
    assert (verdict.sources, verdict.receivers) == ([1], [0, 2])


def test_a_commit_in_a_file_has_the_values_of_its_moment(tmp_path: Path, rank: int) -> None:
    folder = hvd.broadcast_object(str(tmp_path))
    model, optimizer, state = trained(step=0)
    state.save_every(folder, 0)
    train(model, optimizer)
    state.step = 1
    state.commit()
    kept = contents(model, optimizer)
    train(model, optimizer)  # while it is written
    if state._commit.files._writer:
        state._commit.files._writer.join(60)
    hvd.barrier()
    model = network(9)
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["adam"](model), model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    state.save_every(folder)
    joins(state)
    assert state.step == 1 and same(contents(model, optimizer), hvd.broadcast_object(kept))
    hvd.barrier()
