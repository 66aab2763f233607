"""Elastic training in a job whose ranks stay: the loop, what a commit keeps, and what ranks agree on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import horovod as hvd
from horovod.common import elastic, epochs, recovery, resets, totals
from horovod.common.elastic import run_fn
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


def failing(code: str) -> HorovodInternalError:
    error = HorovodInternalError("as in a test")
    error.code = code
    return error


class Recorded(elastic.State):
    """A state of a user's own, which writes down what is called."""

    def __init__(self) -> None:
        super().__init__(hvd.broadcast_object, hvd.rank)
        self.calls: list[str] = []
        self.register_reset_callbacks(
            [lambda: self.calls.append("first"), lambda: self.calls.append("second")]
        )

    def save(self) -> None:
        self.calls.append("save")

    def restore(self) -> None:
        self.calls.append("restore")

    def sync(self) -> None:
        self.calls.append("sync")

    def reset(self) -> None:
        self.calls.append("reset")


def calls_of(*raised: Exception) -> list[str]:
    """What is called for a function that raises these, one after the other, and then returns."""
    state, left = Recorded(), iter(raised)

    def train(state: Recorded, word: str, times: int = 1) -> str:
        state.calls.append("train")
        for error in left:
            raise error
        return word * times

    assert run_fn(train, lambda: state.calls.append("join"))(state, "done", times=2) == "donedone"
    return state.calls


ANEW = ["join", "reset", "first", "second"]


def test_order_of_calls() -> None:
    assert calls_of() == ["sync", "train"]
    assert calls_of(failing("PEER_LOST")) == ["sync", "train", "restore", *ANEW, "sync", "train"]
    assert calls_of(failing("")) == ["sync", "train", "restore", *ANEW, "sync", "train"]
    assert calls_of(HostsUpdatedInterrupt()) == ["sync", "train", *ANEW, "sync", "train"]
    assert calls_of(HostsUpdatedInterrupt(True)) == ["sync", "train", *ANEW, "train"]
    several = calls_of(HostsUpdatedInterrupt(True), failing("TIMED_OUT"), failing("SHUT_DOWN"))
    assert several == [
        *("sync", "train", *ANEW),
        *("train", "restore", *ANEW),
        *("sync", "train", "restore", *ANEW),
        *("sync", "train"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        failing("MISMATCH"),
        failing("SYSTEM"),
        ValueError("of the program"),
        KeyboardInterrupt(),
        SystemExit(3),
    ],
    ids=str,
)
def test_errors_of_the_program_are_raised(error: BaseException) -> None:
    state = mock.MagicMock()
    with pytest.raises(type(error)) as caught:
        run_fn(mock.MagicMock(side_effect=error), state.join)(state)
    assert caught.value is error
    assert not state.restore.called and not state.join.called


def test_errors_of_a_reset_are_part_of_the_loop() -> None:
    state = mock.MagicMock()
    state.sync.side_effect = [None, failing("PEER_LOST"), None]
    state.on_reset.side_effect = [failing("PEER_LOST"), None, None, None]
    join = mock.MagicMock(side_effect=[failing("TIMED_OUT"), None, None, None, None])
    train = mock.MagicMock(side_effect=[failing("PEER_LOST"), "done"])
    assert run_fn(train, join)(state) == "done"
    assert (join.call_count, state.on_reset.call_count, state.sync.call_count) == (4, 3, 3)


def test_one_function_at_a_time() -> None:
    inner = run_fn(lambda state: 1, lambda: None)
    outer = run_fn(lambda state: inner(state), lambda: None)
    with pytest.raises(RuntimeError, match="a function runs already"):
        outer(mock.MagicMock())
    assert inner(mock.MagicMock()) == 1
    assert inner(mock.MagicMock()) == 1


def test_ranks_skip_sync_together(rank: int) -> None:
    """One that lost a rank meanwhile makes all others synchronize, also those that need not."""
    errors = failing("PEER_LOST") if rank == 0 else HostsUpdatedInterrupt(skip_sync=True)
    kept = ["restore"] if rank == 0 else []
    assert calls_of(errors) == ["sync", "train", *kept, *ANEW, "sync", "train"]


def test_a_function_is_repeated_in_the_same_process(rank: int, size: int) -> None:
    state = hvd.elastic.ObjectState(total=0.0, losses=[])

    @hvd.elastic.run
    def train(state: Any) -> float:
        while len(state.losses) < 6:
            state.losses.append(float(hvd.allreduce(np.ones(1), op=hvd.Sum)[0]))
            state.total += state.losses[-1]
            if len(state.losses) == 4 and state.total < 100:
                state.total = 100.0
                state.commit()
                state.losses.clear()
                raise failing("PEER_LOST")
            state.commit()
        return float(state.total)

    assert train(state) == 100.0 + 2 * size
    assert state.losses == [size] * 6


# -- hosts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("update", "skips"), [(1, True), (2, False), (3, False)])
def test_all_ranks_see_hosts_in_the_same_call(rank: int, size: int, update: int, skips: bool) -> None:
    state = Recorded()
    state.check_host_updates()
    elastic.notification_manager.register_listener(state)
    if rank == size - 1:
        elastic.notification_manager.handle_hosts_updated(7, update)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync == skips
    if rank == size - 1:
        elastic.notification_manager.handle_hosts_updated(7, update)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()  # another change in the same second
    elastic.notification_manager.remove_listener(state)
    if rank == size - 1:
        state.on_hosts_updated(6, update)
    state.commit()  # an older one is no news
    assert state._host_messages.empty()


def test_programs_see_a_change_before_they_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Recorded()
    assert state._host_messages.empty()
    monkeypatch.setattr(epochs, "notice", lambda: 2)  # of the starter
    assert not state._host_messages.empty()
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()


def test_changes_that_come_while_the_ranks_change_are_kept() -> None:
    """Those that have come before are part of the new set of ranks."""
    state, messages = Recorded(), [failing("PEER_LOST")]

    def train(state: Recorded) -> int:
        while messages:
            state.on_hosts_updated(3, 2)
            raise messages.pop()
        with pytest.raises(HostsUpdatedInterrupt) as caught:
            state.check_host_updates()
        assert caught.value.skip_sync
        state.check_host_updates()
        return 1

    assert run_fn(train, lambda: state.on_hosts_updated(3, 1))(state) == 1


class Counted(elastic.ObjectState):
    """A state of a user's own, with slots and a commit of its own."""

    __slots__ = ("saves",)

    def __init__(self, **values: Any) -> None:
        super().__init__(hvd.broadcast_object, hvd.rank, **values)
        self.saves = 0

    def save(self) -> None:
        self.saves += 1
        super().save()

    def commit(self) -> None:
        super().commit()


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "check"])
def test_an_interrupted_step_is_saved_once(commits: bool) -> None:
    state, other = Counted(step=0), Counted(step=0)

    def train(state: Counted) -> int:
        if state.step < 2:
            before = state.saves
            state.step += 1
            (state if commits else other).on_hosts_updated(state.step, 2)
            try:
                state.commit() if commits else other.commit()
            finally:
                assert state.saves == before + commits
        state.restore()
        return int(state.step)

    state.save()
    first = state.saves
    assert run_fn(train, lambda: None)(state) == 2
    assert state.saves == first + 3  # the first synchronization saves, too


def test_a_commit_in_which_a_rank_is_lost_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps after it count when the ranks change without another commit."""
    state, calls = hvd.elastic.ObjectState(step=0), iter(range(3))
    notices = mock.MagicMock(side_effect=[failing("PEER_LOST"), epochs.ADDED])
    monkeypatch.setattr(epochs, "notice", notices)

    def train(state: Any) -> int:
        call = next(calls)
        if call == 0:
            state.step = 1
            state.commit()
        if call == 1:
            assert state.step == 1
            state.step = 5
            state.check_host_updates()
        state.restore()
        return int(state.step)

    assert run_fn(train, lambda: None)(state) == 5
    assert notices.call_count == 2


class Slotted:
    """A state that derives from nothing and takes no attributes."""

    __slots__ = ("synced",)

    def __init__(self) -> None:
        self.synced = 0

    def sync(self) -> None:
        self.synced += 1

    def restore(self) -> None:
        pass

    def on_reset(self) -> None:
        pass

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        pass


def test_a_state_of_any_class() -> None:
    state = Slotted()
    train = mock.MagicMock(
        side_effect=[failing("PEER_LOST"), HostsUpdatedInterrupt(), "done"], __name__="train"
    )
    assert run_fn(train, lambda: None)(state) == "done"
    assert state.synced == 3


# -- objects --------------------------------------------------------------------------------------------


def test_objects_are_copied() -> None:
    state = hvd.elastic.ObjectState(numbers=[1], array=np.zeros(2), epoch=3)
    state.save()
    state.numbers.append(2)
    state.array += 1
    state.epoch = 4
    state.restore()
    assert (state.numbers, state.array.tolist(), state.epoch) == ([1], [0.0, 0.0], 3)
    state.numbers.append(5)
    state.restore()
    assert state.numbers == [1]


def test_sync_by_the_program_gives_rank_0_to_all(rank: int) -> None:
    state = hvd.elastic.ObjectState(value=10 + rank)
    for step in range(3):
        state.value += step
        state.sync()
        assert state.value == 10 + sum(range(step + 1))
        state.value = 0 if rank else state.value
    state.restore()
    assert state.value == 13


def test_what_reset_callbacks_change_reaches_ranks_that_join(rank: int) -> None:
    """A learning rate that fits the number of ranks, for instance."""
    state = hvd.elastic.ObjectState(rate=0.5 if rank == 0 else 0.125)
    if rank == 0:
        state._commit.holds = True
        state.register_reset_callbacks([lambda: setattr(state, "rate", 0.25)])
        state.on_reset()
    as_after_a_reset(state)
    assert state.rate == 0.25


def test_a_state_outside_of_a_job() -> None:
    hvd.shutdown()
    try:
        state = elastic.ObjectState(lambda obj: obj, lambda: 0, value=1)
        state.value = 2
        state.sync()
        state.value = 3
        state.commit()
        state.value = 4
        state.restore()
        assert state.value == 3
        state.on_hosts_updated(1, 2)
        with pytest.raises(HostsUpdatedInterrupt):
            state.commit()
    finally:
        hvd.init()


def as_after_a_reset(state: Any) -> int:
    """Synchronizes as the loop does; returns the bytes of this rank's broadcasts."""

    def count() -> float:
        return sum(rows.get("broadcast", {}).get("bytes", 0) for rows in hvd.metrics().values())

    before = count()
    state._joins = True
    state.sync()
    return int(count() - before)


def test_equal_commits_move_nothing(rank: int) -> None:
    state = hvd.elastic.ObjectState(value=np.arange(1000.0))
    state.sync()
    state.value = np.ones(1)
    state.commit()
    state.value = np.zeros(rank)
    state.restore()
    assert as_after_a_reset(state) == 0
    assert state.value.tolist() == [1.0]


@pytest.mark.parametrize("newest", [0, -1])
def test_the_newest_commit_counts(rank: int, size: int, newest: int) -> None:
    newest %= size
    state = hvd.elastic.ObjectState(value="start")
    state.sync()
    for step in range(3):
        state.value = f"step {step}"
        state.commit()
    if rank == newest:
        state.value = "one more"
        state.save()
    state.value = "lost"
    state.restore()
    as_after_a_reset(state)
    assert state.value == "one more"
    assert as_after_a_reset(state) == 0


def test_a_newcomer_receives(rank: int, size: int) -> None:
    """Ranks that were in the job before count, also if another one is rank 0."""
    if size == 1:
        pytest.skip("needs several ranks")
    state = hvd.elastic.ObjectState(value="old")
    state.sync()
    if rank == 0:
        state = hvd.elastic.ObjectState(value="new")
    as_after_a_reset(state)
    assert state.value == "old"


def test_a_transfer_that_fails_keeps_the_commit(
    rank: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    state = hvd.elastic.ObjectState(value="first")
    state.sync()
    if rank == 0:
        state.value = "second"
        state.save()
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "_exchange", mock.MagicMock(side_effect=failing("PEER_LOST")))
        with pytest.raises(HorovodInternalError):
            as_after_a_reset(state)
    state.restore()
    assert state.value == ("first" if rank else "second")
    hvd.shutdown()
    hvd.init()
    as_after_a_reset(state)
    assert state.value == "second"


def test_memory_is_not_given_back_while_operations_write_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = mock.MagicMock()
    engine.submit.side_effect = ["first", "second", ValueError("refused")]
    monkeypatch.setattr(recovery, "_core", engine)
    monkeypatch.setattr(recovery, "_PIECE_BYTES", 4)
    with pytest.raises(ValueError, match="refused"):
        recovery._exchange([memoryview(bytearray(12))], [0], {0: 0})
    engine.wait.assert_called_once_with(["first", "second"])


# -- the agreement --------------------------------------------------------------------------------------


def test_verdicts() -> None:
    """Of random records: the newest commit counts, one rank of each host sends, the others receive."""
    draw = random.Random(1)
    for _ in range(2000):
        size, hosts = draw.randint(2, 12), draw.randint(1, 4)
        shares = draw.random() < 0.3  # only rank 0 can give away a part
        records = [
            recovery._Record(
                draw.random() < 0.7, shares, draw.randint(5, 6), draw.randint(0, 3), draw.randrange(hosts)
            )
            for _ in range(size)
        ]
        verdict = recovery.decide(records)
        held = [record.version for record in records if record.holds]
        if shares and records[0].holds:
            held = [records[0].version]
        if not held:
            assert (verdict.sources, verdict.receivers) == ([0], [*range(1, size)])
            continue
        assert verdict.version == max(held)
        has_it = {rank for rank in range(size) if records[rank].holds and records[rank].version == max(held)}
        assert {*verdict.receivers} == {*range(size)} - has_it
        assert {*verdict.sources} <= has_it
        senders = [records[rank].host for rank in verdict.sources]
        assert sorted(senders) == sorted({records[rank].host for rank in has_it})
        assert verdict.first_set >= 1 << 20 and verdict.far == verdict.receivers


# -- samplers, in a job that changes --------------------------------------------------------------------


@pytest.fixture
def samplers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Makes the samplers of all ranks of a job of any size."""
    pytest.importorskip("torch")
    from horovod.torch.elastic import sampler

    def make(ranks: int, progress: dict[str, int] | None, *args: Any, **kwargs: Any) -> list[Any]:
        made = []
        for rank in range(ranks):
            monkeypatch.setattr(sampler, "rank", lambda rank=rank: rank)
            monkeypatch.setattr(sampler, "size", lambda: ranks)
            made.append(sampler.ElasticSampler(*args, **kwargs))
            if progress:
                made[-1].load_state_dict(progress)
        return made

    return make


def batches_of(sampler: Any, size: int) -> list[list[int]]:
    order = list(sampler)
    assert len(order) == len(sampler) == sampler.num_samples
    return [order[at : at + size] for at in range(0, len(order), size)]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("nominal", [False, True], ids=["counted", "nominal"])
def test_each_sample_once_in_an_epoch(samplers: Any, drop_last: bool, nominal: bool) -> None:
    """Over random sequences of resets; the padding at the end of the epoch may repeat some."""
    draw = random.Random(2)
    for seed in range(150):
        count, batch = draw.randint(0, 60), draw.randint(1, 7)
        progress: dict[str, int] | None = None
        processed: list[int] = []
        repeated = 0
        for ranks in itertools.cycle([draw.randint(1, 6) for _ in range(5)]):
            everybody = samplers(ranks, progress, range(count), seed=seed, drop_last=drop_last)
            columns = [batches_of(sampler, batch) for sampler in everybody]
            assert len({len(column) for column in columns}) == 1
            steps = draw.randint(1, 4)
            for row in list(zip(*columns, strict=True))[:steps]:
                assert len({len(part) for part in row}) == 1
                for sampler, part in zip(everybody, row, strict=True):
                    processed += part
                    sampler.record_batch(0, batch if nominal else len(part))
            progress = everybody[0].state_dict()
            assert {tuple(each.state_dict().items()) for each in everybody} == {tuple(progress.items())}
            repeated = max(0, len(processed) - count)
            if steps >= len(columns[0]):
                break
        left_out = count - len({*processed})
        assert left_out < ranks if drop_last else left_out == 0
        assert repeated < ranks and len(processed) - len({*processed}) == (0 if drop_last else repeated)


def test_sampler_names(samplers: Any) -> None:
    (sampler,) = samplers(1, None, range(10))
    assert (sampler.epoch, sampler.processed_num, sampler.num_replicas, sampler.rank) == (0, 0, 1, 0)
    order = list(range(10))
    random.Random(0).shuffle(order)
    assert list(sampler) == sampler.remaining_indices == order
    sampler.record_batch(0, 4)
    sampler.reset()
    assert list(sampler) == order[4:] and len(sampler) == sampler.total_size == 6
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 4}
    sampler.set_epoch(1)
    assert len(sampler) == 10 and list(sampler) != order
    (ordered,) = samplers(1, None, range(10), shuffle=False)
    assert list(ordered) == [*range(10)]
    (last,) = samplers(4, {"epoch": 0, "processed_num": 9}, range(10))[:1]
    assert last.num_samples == 1 and last.total_size == 4


def test_what_changes_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resets are counted by kind, and counters go on where the next epoch begins."""
    updated = HostsUpdatedInterrupt()
    updated.kind = "mixed"
    before = resets.metrics()
    calls_of(failing("PEER_LOST"), updated, HostsUpdatedInterrupt(True), failing("SHUT_DOWN"))
    after = resets.metrics()
    grown = {kind: after["resets"][kind] - before["resets"][kind] for kind in after["resets"]}
    assert grown == {"lost": 2, "removed": 1, "added": 0, "mixed": 1}
    assert after["seconds_lost"] > before["seconds_lost"] and after["ranks_lost"] == before["ranks_lost"]
    assert "elastic" not in hvd.metrics()
    monkeypatch.setattr(epochs, "_number", 0)
    hvd.allreduce(np.ones(3, np.float32), name="counted")
    made = hvd.metrics()[0]["allreduce"]["succeeded"]
    requests = hvd.metrics(flat=True)["horovod/requests_failed"]
    hvd.shutdown()
    hvd.init()
    assert hvd.metrics()["elastic"]["resets"] == after["resets"]
    hvd.allreduce(np.ones(3, np.float32), name="counted")
    assert hvd.metrics()[0]["allreduce"]["succeeded"] > made
    assert hvd.metrics(flat=True)["horovod/elastic_ranks"] == hvd.size()
    assert hvd.metrics(flat=True)["horovod/requests_failed"] >= requests
    monkeypatch.setattr(totals, "_before", {})
    monkeypatch.setattr(totals, "_progress", totals.Progress())
