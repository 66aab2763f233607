"""Callbacks for ``fit`` in elastic jobs: they commit, and note how far training has come.

Each becomes a callback of Keras 2 or 3 with Keras's own class as its second base. Other libraries derive from
the classes whose name ends in Impl, and pass Keras's back end first, which has no meaning here. Their order
in the list of callbacks does not matter: the values of a batch or an epoch are committed when the next one
begins, after all callbacks have seen its end.
"""

from __future__ import annotations

from typing import Any


class _Callback:
    """The attributes that Keras's own class sets."""

    model: Any
    params: dict[str, Any]


class CommitStateCallbackImpl(_Callback):
    """Commits the state after every n-th batch and after every epoch.

    Args:
        state: what is committed.
        batches_per_commit: that many batches at most are repeated after a loss.

    Raises:
        ValueError: the number of batches is not positive.
    """

    def __init__(self, backend: Any, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise ValueError(f"batches_per_commit must be at least 1, not {batches_per_commit}")
        self.state, self.batches_per_commit = state, batches_per_commit
        self.batches_remaining = batches_per_commit
        self._due = False

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_remaining, self._due = self.batches_per_commit, False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining, self._due = self.batches_per_commit, True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._due = True

    def _commit(self) -> None:
        if self._due:
            self._due = False
            self.state.commit()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._commit()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._commit()

    def on_train_end(self, logs: Any = None) -> None:
        self._commit()


class _Shortened(int):
    """Takes the place of True in ``model.stop_training`` if only the epoch ends, and not the training."""


_SHORTENED = _Shortened(1)


class UpdateBatchStateCallbackImpl(_Callback):
    """Sets ``state.batch`` to the number of batches of this epoch that are done; ends an interrupted epoch
    when the rest of its batches is done.

    If the number of batches in an epoch changes with the number of ranks, ``state.batch`` is changed in
    proportion. ``fit`` must know the number: pass ``steps_per_epoch``, or data that have a length.

    Args:
        state: has an attribute ``batch``.
    """

    def __init__(self, backend: Any, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0  # batches of the epoch before the first one of `fit`
        self._steps = 0  # batches of the epoch; 0: as many as `fit` takes
        self._continues = False  # the next epoch was begun before

    def on_train_begin(self, logs: Any = None) -> None:
        self._continues = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        steps = self.params.get("steps") or 0
        done = self.state.batch if self._continues else 0
        before = getattr(self.state, "_steps_per_epoch", 0)
        if done and before and steps and steps != before:
            done = min(round(done * steps / before), steps - 1)
        done = 0 if steps and done >= steps else done
        self._done = self.state.batch = done
        self._steps = steps if done else 0
        self._continues = False
        if steps:
            self.state._steps_per_epoch = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = self._done + batch + 1
        if self._steps and self.state.batch >= self._steps:
            self.model.stop_training = self.model.stop_training or _SHORTENED

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0
        if self.model.stop_training is _SHORTENED:
            self.model.stop_training = False


class UpdateEpochStateCallbackImpl(_Callback):
    """Sets ``state.epoch`` to the number of epochs that are done, over all calls of ``fit``.

    Args:
        state: has an attribute ``epoch``.
    """

    def __init__(self, backend: Any, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch: int = state.epoch
        self._first: int | None = None  # by the count of `fit`, which has an argument for it

    def on_train_begin(self, logs: Any = None) -> None:
        self.initial_epoch, self._first = self.state.epoch, None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._first = epoch if self._first is None else self._first

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self.initial_epoch + epoch - (self._first or 0) + 1


class CommitStateCallback(CommitStateCallbackImpl):
    """Does the same without the argument ``backend``, like the two classes below."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__(None, state, batches_per_commit)


class UpdateBatchStateCallback(UpdateBatchStateCallbackImpl):
    def __init__(self, state: Any) -> None:
        super().__init__(None, state)


class UpdateEpochStateCallback(UpdateEpochStateCallbackImpl):
    def __init__(self, state: Any) -> None:
        super().__init__(None, state)
