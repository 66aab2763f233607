"""The hosts that LSF has given to this job, as horovodrun reads them."""

from __future__ import annotations

import os
from pathlib import Path

from horovod.runner.absent import Absent


def _slots() -> dict[str, int]:
    """Returns slots by host without the batch node, which has that name, or one slot where all others have
    more."""
    slots: dict[str, int] = {}
    if path := os.environ.get("LSB_DJOB_RANKFILE"):
        for name in Path(path).read_text().split():
            slots[name] = slots.get(name, 0) + 1
    else:
        words = os.environ.get("LSB_MCPU_HOSTS", "").split()
        for name, number in zip(words[::2], [*words[1::2], "0"], strict=False):
            if not number.isdecimal() or int(number) < 1:
                raise ValueError(f"LSB_MCPU_HOSTS: {number} is not a number of slots for {name}")
            slots[name] = slots.get(name, 0) + int(number)
    first, *others = slots or [""]
    alone = slots.get(first) == 1 and all(slots[name] > 1 for name in others)
    if others and (alone or first.lower().startswith("batch")):
        del slots[first]
    return slots


class LSFUtils:
    """The hosts and slots of an allocation of LSF."""

    get_num_cores = Absent()
    get_num_threads = Absent()
    get_num_gpus = Absent()

    @staticmethod
    def using_lsf() -> bool:
        """Returns true in a job of LSF."""
        return "LSB_JOBID" in os.environ

    @staticmethod
    def get_compute_hosts() -> list[str]:
        """Returns the hosts of the ranks, in LSF's order."""
        return [*_slots()]

    @staticmethod
    def get_num_processes() -> int:
        """Returns the number of slots of all hosts."""
        return sum(_slots().values())
