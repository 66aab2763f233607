"""Commits that stay in memory when the ranks have ended: the ranks of a later job find whole states."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod import _core
from horovod.common import kept_snapshot, snapshot_server
from horovod.common.elastic import ObjectState
from horovod.common.kept_snapshot import KeptSnapshot

DEADLINE = 60


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Commits are kept under this name, the same on all ranks."""
    settings = {"elastic_keep": "60", "elastic_name": str(hvd.broadcast_object(f"it's {uuid.uuid4()}"))}
    setting = _core.setting
    monkeypatch.setattr(_core, "setting", lambda key: settings.get(key) or setting(key))
    yield settings["elastic_name"]
    hvd.barrier()
    KeptSnapshot(settings["elastic_name"], 0).done(1)


def end(state: Any) -> None:
    """Does for what is kept what the end of the process does."""
    kept = state._commit.host_copy.kept
    if kept._owned:
        kept._owned.close()
    hvd.barrier()


def joins(state: Any) -> None:
    state._joins = True
    state.sync()
    state._joins = False


def make_state(value: int, **more: Any) -> Any:
    return ObjectState(hvd.broadcast_object, hvd.rank, value=value, array=np.full(3, value), **more)


def commit(state: Any, value: int) -> None:
    state.value, state.array = value, np.full(3, value)
    state.commit()


def test_a_later_job_goes_on(name: str, rank: int) -> None:
    state = make_state(10 + rank)
    joins(state)
    assert state.value == 10
    for value in range(3):
        commit(state, value)
    version = state._commit.version
    end(state)
    for life in range(2):
        later = make_state(20 + rank)
        joins(later)
        assert later.value == 2 + life and later.array.tolist() == [2 + life] * 3
        assert later._commit.version == version + life
        commit(later, 3 + life)
        end(later)


def test_a_sync_by_the_program_does_not_go_back(name: str, rank: int) -> None:
    state = make_state(1)
    joins(state)
    commit(state, 2)
    state.value = 30 + rank
    state.sync()
    assert state.value == 30
    end(state)


def test_the_newer_of_file_and_memory_counts(name: str, tmp_path: Any) -> None:
    folder = hvd.broadcast_object(str(tmp_path))
    state = make_state(1)
    state.save_every(folder, 0)
    joins(state)
    commit(state, 2)
    if state._commit.files._writer:
        state._commit.files._writer.join(DEADLINE)
    state._commit.files._next = float("inf")
    for newest in (2, 3):
        if newest == 3:
            commit(state, 3)  # in memory only
        end(state)
        state = make_state(9)
        state.save_every(folder, float("inf"))
        joins(state)
        assert state.value == newest
    state._commit.host_copy.done()
    end(state)
    hvd.barrier()
    state = make_state(9)
    state.save_every(folder, float("inf"))
    joins(state)
    assert state.value == 2
    end(state)


def test_what_is_done_is_not_found(name: str, rank: int, size: int) -> None:
    state = make_state(1)
    joins(state)
    commit(state, 2)
    if rank == 0:
        state._commit.host_copy.done()
    hvd.barrier()
    kept = KeptSnapshot(name, 0)
    assert (kept.find(False) >= 0) == (size > 1)  # other ranks may still need it
    hvd.barrier()
    if rank > 0:
        state._commit.host_copy.done()
    hvd.barrier()
    assert kept.find(False) == -1
    end(state)
    later = make_state(7)
    joins(later)
    assert later.value == 7
    end(later)


def test_a_rank_is_done_before_another_gives_its_memory(name: str, rank: int) -> None:
    if rank == 0:
        client = KeptSnapshot(name, 60)
        memory = os.memfd_create("memory")
        assert client._own() == -1 and client._owned
        client.done(2)
        assert kept_snapshot._ask(client._owned, b"keep", [memory])[0] == b"yes"
        client.done(2)
        assert client._query(b"find")[1] == -1
        client._owned.close()
        os.close(memory)
    hvd.barrier()


def test_another_state_is_refused(name: str) -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd_torch

    state = hvd_torch.elastic.TorchState(torch.nn.Linear(2, 2), step=3)
    joins(state)
    state.commit()
    end(state)
    with pytest.raises(ValueError, match=r"does not fit this program.*another model.*0.weight"):
        joins(hvd_torch.elastic.TorchState(torch.nn.Sequential(torch.nn.Linear(3, 2)), step=0))
    hvd.barrier()


@pytest.mark.parametrize("kind", ["distributed", "plain"])
def test_models_and_optimizers(name: str, kind: str, rank: int) -> None:
    torch = pytest.importorskip("torch")
    from test_torch_elastic import contents, network, same, train

    import horovod.torch as hvd_torch

    def make(seed: int) -> tuple[Any, Any, Any]:
        model = network(seed)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        if kind == "distributed":
            optimizer = hvd_torch.DistributedOptimizer(optimizer, model.named_parameters())
        state = hvd_torch.elastic.TorchState(model, optimizer, step=0)
        joins(state)
        return model, optimizer, state

    model, optimizer, state = make(1)
    for step in range(1, 4):
        train(model, optimizer, seed=step)
        state.step = step
        state.commit()
    kept = contents(model, optimizer)
    if kind == "distributed":
        state._host_copy._snapshot.wait()  # and the job ends at any moment after that
    hvd.barrier()
    train(model, optimizer, seed=9)
    end(state)
    model, optimizer, state = make(5)
    assert state.step == 3 and same(contents(model, optimizer), hvd.broadcast_object(kept))
    train(model, optimizer, seed=4)
    state.commit()
    end(state)


def test_two_jobs_of_one_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_snapshot, "_OWNED_SECONDS", 0.2)
    if hvd.local_rank() == 0:
        first, second = KeptSnapshot(name, 60), KeptSnapshot(name, 60)
        assert first.find(True) == -1
        with pytest.raises(RuntimeError, match=f"{name} is used by another job .* process {os.getpid()} "):
            second.find(True)
        snapshot = _core.Snapshot()
        second.give(snapshot)
        assert not second.is_given
        assert first._owned
        first._owned.close()
        deadline = time.monotonic() + DEADLINE
        while not second.is_given and time.monotonic() < deadline:
            second.give(snapshot)  # at the latest when the server has seen that
        assert second.is_given and second._owned
        second._owned.close()


def test_settings_that_are_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = _core.setting
    for lacks, empty in (("elastic_name", ""), ("elastic_copies", "0")):
        monkeypatch.setattr(
            _core, "setting", lambda key, lacks=lacks, empty=empty: empty if key == lacks else setting(key)
        )
        with pytest.raises(ValueError, match="HOROVOD_ELASTIC_KEEP needs HOROVOD_ELASTIC_NAME"):
            joins(make_state(1))
    hvd.barrier()


class Client:
    """Speaks to a server that it starts."""

    def __init__(self, seconds: float) -> None:
        self.name = f"test {uuid.uuid4()}"
        self.kept = KeptSnapshot(self.name, seconds)
        self.snapshot = _core.Snapshot()
        self.snapshot.save(1, [np.arange(10)])
        self.snapshot.wait()
        self.kept.give(self.snapshot)

    def ends(self) -> bool:
        deadline = time.monotonic() + DEADLINE
        while connection := self.kept._connect():
            connection.close()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def test_the_server_ends_by_itself(rank: int) -> None:
    if rank == 0:
        client = Client(0.1)
        assert client.kept._owned
        assert client.kept._query(b"find")[0] == b"found"
        time.sleep(0.3)  # it does not end while a process owns the memory
        answer, descriptor = client.kept._query(b"find")
        assert answer == b"found"
        read = np.zeros(10, int)
        _core.Snapshot(descriptor).read(1, 0, [read])
        os.close(descriptor)
        assert read.tolist() == [*range(10)]
        client.kept._owned.close()
        assert client.ends()
    hvd.barrier()


def test_the_server_goes_on_whatever_is_sent(rank: int) -> None:
    if rank == 0:
        client = Client(60)
        for message in (b"keep", b"done x", b"done", b"find it", b"\xff" * 64, b" ", b"own me"):
            connection = client.kept._connect()
            assert connection
            with connection:
                socket.send_fds(connection, [message], [client.snapshot.descriptor()])
                assert connection.recv(64) in (b"no", b"")
        assert client.kept._query(b"find")[0] == b"found"
        assert client.kept._owned
        os.kill(snapshot_server.credentials(client.kept._owned)[0], 9)
        assert client.ends()
        with pytest.warns(UserWarning, match="not kept in memory"):
            client.kept.give(client.snapshot)
        client.kept.give(client.snapshot)  # by another server
        assert client.kept.is_given
        client.kept.done(1)
        client.kept._owned.close()
        assert client.ends()
    hvd.barrier()
