"""Elastic training: a function that is called again, from its latest commit, when ranks come and go.

``run_fn`` makes the loop, and a ``State`` says what a commit is. ``horovod.elastic`` and
``horovod.torch.elastic`` are made of these; docs/elastic.md describes them.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import queue
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from horovod import _core
from horovod.common import basics, epochs, leaving, resets
from horovod.common.commit_files import CommitFiles
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt, ends_epoch
from horovod.common.host_copy import HostCopy
from horovod.common.kept_snapshot import own_parts
from horovod.common.recovery import Commit, is_alone, recover

T = TypeVar("T")

_ALLREDUCE = _core.operations["allreduce"]
_largest = _core.describe(_ALLREDUCE, reduction=basics.Max)
_sum = _core.describe(_ALLREDUCE, reduction=basics.Sum)


def _agree(name: str, values: Sequence[int]) -> array[int]:
    """Returns the largest values of all ranks; outside of a job of several ranks those of this process."""
    largest = array("q", values)
    if not is_alone():
        _core.run(_largest, name, (largest,))
    return largest


class WorkerNotificationManager:
    """Passes on to the states of this process what another launcher, such as Ray's, reports about hosts."""

    def __init__(self) -> None:
        self._listeners: set[State] = set()

    def init(self) -> None:
        """Does nothing: ``horovodrun`` reports changes to every rank without a server in the rank."""

    def register_listener(self, listener: State) -> None:
        """From now on calls ``listener.on_hosts_updated``."""
        self._listeners.add(listener)

    def remove_listener(self, listener: State) -> None:
        """Ends what ``register_listener`` has begun."""
        self._listeners.discard(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Reports a change to all states. Any thread may call."""
        for listener in [*self._listeners]:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()


class _HostMessages(queue.Queue[tuple[float, int]]):
    """Changes of hosts that another launcher has reported. Programs of Horovod ask whether it is empty."""

    def empty(self) -> bool:
        """Returns false also if the starter has noticed a change."""
        return super().empty() and not epochs.notice()


class State:
    """What training goes on from after ranks have come or gone. A subclass says how it is kept and restored.

    Args:
        bcast_object: broadcasts an object from rank 0, for subclasses.
        get_rank: returns this process's rank, for subclasses.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = _HostMessages()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Calls these functions, in this order, on each rank that stays, when the ranks have changed.

        They run before the state is synchronized. Newcomers don't run them, so they may not call collectives.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Is called when this process has joined the next set of ranks: calls ``reset`` and the callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Notes a change of hosts; the next ``check_host_updates`` of all ranks raises it. Any thread."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Keeps the state, and gives way if hosts have changed. All ranks call it after the same step.

        Raises:
            HostsUpdatedInterrupt: as ``check_host_updates``.
        """
        self.save()
        self._copy_to_keep()
        try:
            self.check_host_updates()
        except HostsUpdatedInterrupt as interrupt:
            interrupt.saved = self
            raise

    def _copy_to_keep(self) -> None:
        """Is called on all ranks in a commit, between ``save`` and the check for changes of hosts."""

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks, in the same call, if hosts were added or removed."""
        changes = epochs.notice()
        while self._host_messages.qsize():
            timestamp, update = self._host_messages.get()
            if timestamp >= self._last_updated_timestamp:  # one second may have several changes
                self._last_updated_timestamp, changes = timestamp, changes | int(update)
        removed, added = _agree("elastic.hosts", (changes & epochs.REMOVED, changes & epochs.ADDED))
        if removed or added:
            interrupt = HostsUpdatedInterrupt(skip_sync=not added)
            interrupt.kind = resets.KINDS[removed | added]
            raise interrupt

    def _forget_hosts(self) -> None:
        """Drops the changes so far, when this process is about to join a set of ranks that has them."""
        while self._host_messages.qsize():
            self._host_messages.get()

    def save(self) -> None:
        """Keeps the present values in memory, for ``restore``."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to the values that ``save`` kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes the values of all ranks equal."""
        raise NotImplementedError

    def reset(self) -> None:
        """Is called when the ranks have changed, before the callbacks."""


class ObjectState(State):
    """Keeps attributes: numbers, strings, lists and whatever else can be copied and pickled.

    Args:
        bcast_object: see ``State``.
        get_rank: see ``State``.
        kwargs: names and first values of the attributes.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state: dict[str, Any] = dict(kwargs)
        self._commit = Commit(self._describe, self._make_room, self._fill)
        self._joins = False  # `sync` is called because this process has joined an epoch
        self._together = False  # `save` is called on all ranks
        for name, value in kwargs.items():
            setattr(self, name, value)

    def save(self) -> None:
        """Keeps deep copies of the attributes."""
        if self._commit.files:
            self._commit.files.wait()
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}
        self._commit.version += 1

    def on_reset(self) -> None:
        """Calls the callbacks; what they change is part of the commit, which ranks that join receive."""
        super().on_reset()
        if self._reset_callbacks:
            version = self._commit.version
            self.save()
            self._commit.version = version

    def _save_together(self, save: Callable[[], None]) -> None:
        """Calls a function that calls ``save``, as all ranks do."""
        self._together = True
        try:
            save()
        finally:
            self._together = False

    def commit(self) -> None:
        """Keeps the state, and gives way if hosts have changed; see ``State.commit``."""
        self._save_together(super().commit)
        if self._commit.files and (not _core.is_initialized() or _core.placement()[0] == 0):
            self._commit.files.write_if_due(self._commit.version, self._describe)

    def save_every(self, folder: str | os.PathLike[str], seconds: float = 600) -> None:
        """Lets rank 0 write a commit to a folder now and then, from which a later job continues.

        Call it on all ranks before the function of ``hvd.elastic.run``. The two newest commits stay. A job
        whose processes have no state yet takes the newest commit that one of them finds in its folder.

        Args:
            folder: on a file system that outlives the job.
            seconds: that pass between two of them, at least.
        """
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}, and must not be negative")
        self._commit.files = CommitFiles(folder, seconds)

    def restore(self) -> None:
        """Sets the attributes to copies of what ``save`` kept."""
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        """Makes the values of all ranks equal.

        When ranks have come or gone the latest commit counts, and only ranks that lack it receive it. If the
        program itself calls ``sync``, all receive the present values of rank 0.
        """
        commit = self._commit
        if not commit.host_copy and _core.is_initialized() and float(_core.setting("elastic_keep")):
            commit.host_copy = HostCopy()
        if not (self._joins and commit.holds):
            commit.holds = False
            self.save()
        before, held = commit.version, commit.holds
        try:
            recover(commit, self._joins)
        except BaseException:
            if held and not commit.holds:  # the copy is lost, but the values themselves are equal to it
                self.save()
                commit.version, commit.holds = before, True
            raise
        commit.holds = True
        self._copy_to_keep()

    def _copy_to_keep(self) -> None:
        """Copies the commit into memory that stays when all ranks have ended, if it is to be kept."""
        if self._commit.host_copy and self._commit.host_copy.kept:
            self._commit.host_copy.save((), [], self._own_parts)

    def _own_parts(self) -> list[Any]:
        """Returns what belongs to a commit in addition to the tensors of the host's copy, if it is kept."""
        description, memory = self._describe()
        end = len(memory) - self._commit.host_copy_parts
        return own_parts(self._commit.version, description, memory, end)

    def _describe(self) -> tuple[Any, list[Any]]:
        """Returns what has been saved: what can be pickled, and memory, see ``Commit``."""
        return self._saved_state, []

    def _make_room(self, description: Any) -> list[Any]:
        """Replaces what has been saved by the values of another rank; returns the memory for the rest."""
        self._saved_state = description
        return []

    def _fill(self) -> None:
        """Is called when the memory has been filled."""
        self.restore()


_runs = threading.Lock()  # held while a function of `run_fn` runs


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    if not _runs.acquire(blocking=False):
        raise RuntimeError(
            "hvd.elastic.run: a function runs already, in this thread or another one; call the second one "
            "inside the first without hvd.elastic.run, or after it"
        )
    try:
        yield
    finally:
        _runs.release()


def _synchronize(state: Any, skip_sync: bool, stayed: bool) -> int:
    """Calls ``state.sync`` on all ranks, or on none: on none if every rank says that it may be left out.

    It can't be if the ranks of a host share a copy, which has a part for each of them. Returns the number of
    ranks that have ``stayed``.
    """
    shares = isinstance(state, ObjectState) and state._commit.host_copy is not None
    counts = array("q", (shares or not skip_sync, stayed))
    if not is_alone():
        _core.run(_sum, "elastic.sync", (counts,))
    if counts[0] and isinstance(state, ObjectState):
        state._joins = True
        try:
            state.sync()
        finally:
            state._joins = False
    elif counts[0]:
        state.sync()
    return counts[1]


def own_failure(error: Exception) -> HorovodInternalError | None:
    """Returns the error if a collective has raised it as it is; see ``run_fn``."""
    return error if isinstance(error, HorovodInternalError) else None


def failure_of_job() -> HorovodInternalError | None:
    """Returns why the job of this process has failed, for a framework's error that has only its text."""
    return basics.failure() if _core.is_initialized() else None


def run_fn(
    func: Callable[..., T],
    reset: Callable[[], None],
    failure_of: Callable[[Exception], HorovodInternalError | None] = own_failure,
) -> Callable[..., T]:
    """Returns a function that calls ``func(state, …)``, again and again until it returns.

    It is called again when ranks are lost, after ``state.restore()``, and when hosts have come or gone,
    without it. In between come ``reset()``, ``state.on_reset()`` and ``state.sync()``.

    Args:
        func: trains; its first argument is a ``State``.
        reset: leaves the job and joins it anew.
        failure_of: returns the failure of the job behind an exception of a framework; None: there is none.
    """

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> T:
        with _alone():
            notification_manager.init()
            notification_manager.register_listener(state)
            try:
                with leaving.on_sigterm():
                    return _repeat(lambda: func(state, *args, **kwargs), state, reset, failure_of)
            finally:
                notification_manager.remove_listener(state)

    return wrapper


def _repeat(
    func: Callable[[], T],
    state: Any,
    reset: Callable[[], None],
    failure_of: Callable[[Exception], HorovodInternalError | None],
) -> T:
    """Calls the function until it returns; see ``run_fn``."""
    again = skip_sync = False
    if epochs.is_planned():
        basics.join_epoch()
    while True:
        try:
            if again:
                if isinstance(state, State):
                    state._forget_hosts()  # and keep those that come in the meantime
                reset()
                state.on_reset()
            stayed = _synchronize(state, skip_sync, again)
            epochs.has_state()
            resets.end(epochs.number(), basics.size(), stayed)
            result = func()
        except HostsUpdatedInterrupt as interrupt:
            resets.begin(interrupt.kind)
            if isinstance(state, ObjectState) and interrupt.saved is not state:
                state._save_together(state.save)  # what has happened since the last commit counts
            skip_sync = interrupt.skip_sync
        except Exception as error:
            failure = failure_of(error)
            if failure is None or not ends_epoch(failure):
                raise
            epochs.has_lost(failure.lost_rank)
            resets.begin("lost")
            state.restore()
            skip_sync = False
        else:
            epochs.done()
            if isinstance(state, ObjectState) and state._commit.host_copy:
                state._commit.host_copy.done()
            return result
        again = True


def reset() -> None:
    """Leaves the job and joins its next epoch, for ``run_fn``.

    Raises:
        SystemExit: this process is not in it, or the job has ended.
        RuntimeError: the job is not elastic, and ranks are missing.
    """
    basics.shutdown()
    try:
        basics.init()
    except HorovodInternalError as error:
        if epochs.is_elastic():
            raise
        raise RuntimeError(
            f"this job is not elastic, so it ends with its first lost rank: {error}"
        ) from error


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Makes a training function elastic; a decorator.

    The function's first argument is a state, such as ``hvd.elastic.ObjectState(epoch=0)``. It continues from
    that state's latest commit when ranks were lost or added, in the same process. See docs/elastic.md.
    """
    return run_fn(func, reset)
