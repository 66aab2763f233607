"""The copy of what all ranks of a job have alike: one for each host, made while training goes on.

Parameters and what their optimizers keep are equal on all ranks, and only a step of the optimizer writes
them. So each rank of a host copies a share of them into memory that they have together, concurrently with the
next forward and backward pass, and the next step waits until that is done. See hvd_snapshot_create in
horovod.h.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from horovod import _core
from horovod.common.kept_snapshot import KeptSnapshot


class HostCopy:
    """The host's copy of some tensors, as one rank uses it. One thread at a time.

    The framework reports how often each tensor was written, as far as it counts that. Writes by hand, between
    a commit and the next step, are found by these counts.

    Attributes:
        tensors: those of the last commit; without any there is nothing to do.
        number: of the last commit among the copies of all hosts, equal on all ranks.
        top: the highest such number that was used.
        steps: how many steps since the commit can't be undone, as there are no copies.
        kept: keeps the copies when all ranks have ended; None: HOROVOD_ELASTIC_KEEP is not set.
    """

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.number = self.top = -1
        self.steps = 0
        self.kept: KeptSnapshot | None = None
        self._counts: list[int] = []  # of writes to each tensor
        self._changed = False  # a step has begun since
        self._torn = False  # the tensors were written while they were copied
        self._waits = False  # that has happened, so each commit waits for the copy
        self._copies = True
        self._snapshot: _core.Snapshot | None = None

    def join(self) -> int:
        """Shares the copy with the ranks of this host; returns its number, or -1. All ranks call it."""
        self._copies = _core.setting("elastic_copies") == "1"
        seconds, name = float(_core.setting("elastic_keep")), _core.setting("elastic_name")
        if seconds and not (name and self._copies):
            raise ValueError(
                "HOROVOD_ELASTIC_KEEP needs HOROVOD_ELASTIC_NAME, a name for this training, and can't be "
                "used with HOROVOD_ELASTIC_COPIES=0"
            )
        if not self._copies:
            return -1
        if seconds:
            self.kept = self.kept or KeptSnapshot(name, seconds)
            self.kept.begin_epoch()
        self._snapshot = self._snapshot or _core.Snapshot()
        self._snapshot.join()
        found = self._snapshot.version()[0]
        self.top = max(self.top, found)
        return found

    def save(self, tensors: Sequence[Any], counts: list[int], own: Callable[[], list[Any]]) -> None:
        """Starts to copy the tensors, which only a step may write from now on. All ranks of the job call it.

        After ``join`` they agree on ``top`` first. If the copies are kept, what ``own`` returns on the first
        rank of a host belongs to them; without tensors it is copied at once, otherwise it must not change.
        """
        self.number = self.top = self.top + 1
        self.tensors, self._counts = [*tensors], counts
        self._changed = self._torn = False
        self.steps = 0
        if (tensors or self.kept) and self._copies and self._snapshot:
            first = self.kept and _core.placement()[2] == 0
            self._snapshot.save(self.number, tensors, own() if first else ())
            if self._waits or not tensors:
                self._snapshot.wait()
            self._give()

    def _give(self) -> None:
        """Lets the copies be kept from the first one on that is whole."""
        kept, snapshot = self.kept, self._snapshot
        if not kept or not snapshot or kept.is_given or _core.placement()[2]:
            return
        if snapshot.version()[0] >= 0:
            kept.give(snapshot)

    def done(self) -> None:
        """Notes that the function of this rank has returned, so that its commits need not be kept."""
        if self.kept:
            self.kept.done(_core.placement()[3])

    def forget(self) -> None:
        """Ends the use of the copy until the next commit: its values are elsewhere."""
        self.tensors = []

    def before_step(self, counts: list[int]) -> None:
        """Waits until the copy is whole. Called before tensors are written."""
        if not self.tensors:
            return
        self.steps += not self._copies
        if self._copies and self._snapshot and not self._changed:
            self._snapshot.wait()
            self._give()
            self._find_torn(counts)
        self._changed = True

    def _find_torn(self, counts: list[int]) -> None:
        if counts == self._counts or self._waits:
            return
        self._torn = self._waits = True
        warnings.warn(
            "tensors of the elastic state were written after a commit and before the optimizer's next step, "
            "while they may have been copied: from now on each commit waits until its copy is complete",
            stacklevel=2,
        )

    def is_clean(self, counts: list[int]) -> bool:
        """Returns true if the tensors have the values of the commit, as far as writes are counted."""
        return bool(self.tensors) and not self._changed and counts == self._counts

    def restore(self, counts: list[int]) -> None:
        """Gives the tensors the values that they had at the commit."""
        if not self.tensors or not self._copies or not self._snapshot or self.is_clean(counts):
            return
        if self._torn:
            raise RuntimeError(
                "the latest commit can't be restored: tensors of the state were written by hand while they "
                "were copied"
            )
        if self._snapshot.version()[0] != self.number:
            self._snapshot.wait()
        self._snapshot.read(self.number, 0, self.tensors)

    def restored(self, counts: list[int]) -> None:
        """Notes that the tensors have the values of the commit again."""
        self._counts, self._changed = counts, self._changed and not self._copies

    def read(self, memory: Sequence[Any]) -> None:
        """Fills the memory with the host's copy, which other ranks have made.

        Raises:
            ValueError: it has another size.
        """
        assert self._snapshot is not None
        number, there, _ = self._snapshot.version()
        here = sum(len(each) for each in memory)
        if there != here:
            raise ValueError(f"the state of this process has {here} bytes, that of its host {there}")
        self._snapshot.read(number, 0, memory)
