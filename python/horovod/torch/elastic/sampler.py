"""A sampler that divides the rest of an epoch anew when ranks come or go."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

import torch

from horovod.common.basics import rank, size


def share(parts: int, size: int, rank: int) -> range:
    """Returns which of the parts belong to a rank; the first ranks have one more if they can't be equal."""
    least, more = divmod(parts, size)
    first = rank * least + min(rank, more)
    return range(first, first + least + (rank < more))


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Gives each rank its share of the samples of an epoch that have not been processed yet.

    Every sample is processed once in an epoch, whenever ranks come and go. At the end of an epoch some
    samples are repeated, so that all ranks have the same number, or left out with ``drop_last``. Pass it to
    ``TorchState``, and report every batch before the commit that follows it.

    Args:
        dataset: anything that has a length.
        shuffle: use a new random order in every epoch.
        seed: of the order, the same on all ranks.
        drop_last: leave out the last samples, instead of repeating some, if they are too few for all ranks.

    Attributes:
        epoch: the number that ``set_epoch`` was given.
        processed_num: samples that all ranks together have processed in this epoch.
        remaining_indices: the samples that have not been, in their order.
        num_samples: this rank's samples up to the end of the epoch; ``total_size`` are those of all ranks.

    Example::

        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
        for batch, (x, y) in enumerate(loader):
            train(x, y)
            state.sampler.record_batch(batch, loader.batch_size)
            state.commit()
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0, drop_last: bool = False) -> None:
        self.dataset, self.shuffle, self.seed, self.drop_last = dataset, shuffle, seed, drop_last
        self.parts = 0
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch of which nothing has been processed; call it at the end of the one before."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def divide(self, parts: int) -> None:
        """Gives each rank its share of so many parts, instead of one each: see ``global_batch``."""
        self.parts = parts
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Counts a batch that every rank has processed.

        Args:
            batch_idx: accepted for compatibility; it has no meaning.
            batch_size: the samples in the batch of one rank; the last batch of an epoch may be shorter.
        """
        self._recorded += batch_size
        others = self._recorded * self._parts // len(self._own)  # of all ranks together
        self.processed_num = min(self._before + others, len(self.dataset))

    def state_dict(self) -> dict[str, int]:
        """Returns the progress in the epoch."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from the progress that ``state_dict`` has returned, on any rank."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides what has not been processed among the ranks that there are now."""
        self.num_replicas, self.rank = size(), rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self._before, self._recorded = self.processed_num, 0
        self._parts = self.parts or self.num_replicas
        self._own = share(self._parts, self.num_replicas, self.rank)
        count = len(self.remaining_indices)
        each = count // self._parts if self.drop_last else -(-count // self._parts)
        self.num_samples, self.total_size = each * len(self._own), each * self._parts

    def __iter__(self) -> Iterator[int]:
        shared = self.remaining_indices[: self.total_size]
        while 0 < len(shared) < self.total_size:
            shared = shared + shared[: self.total_size - len(shared)]
        return (sample for place, sample in enumerate(shared) if place % self._parts in self._own)

    def __len__(self) -> int:
        return self.num_samples
