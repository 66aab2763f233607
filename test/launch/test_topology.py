"""Where ranks are, as users see it: environments as a starter of several hosts sets them, on this host."""

from __future__ import annotations

import pytest
from conftest import Launcher

PLACES = """
import os, sys
hosts, given = "{hosts}", {given}
rank = int(os.environ["HOROVOD_RANK"])
os.environ["HOROVOD_HOST_ID"] = hosts[rank]
for name in ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"):
    del os.environ["HOROVOD_" + name]
for name, values in given.items():
    os.environ["HOROVOD_" + name] = str(values[rank])
import numpy as np
import horovod as hvd
try:
    hvd.init(process_sets="dynamic")
except (RuntimeError, ValueError) as error:
    sys.exit(str(error))
local, cross = (hvd.local_rank(), hvd.local_size()), (hvd.cross_rank(), hvd.cross_size())
print(hvd.rank(), *local, *cross, hvd.is_homogeneous())
assert hvd.allgather(np.array([rank]), name="order").tolist() == list(range(hvd.size()))
assert hvd.broadcast(np.array([rank]), root_rank=hvd.size() - 1, name="root")[0] == hvd.size() - 1
odd = hvd.add_process_set([1, 3, 5])
if odd.included():
    assert hvd.allgather(np.array([rank]), name="odd", process_set=odd).tolist() == [1, 3, 5]
hvd.allreduce(np.ones(1000), name="sum")
"""

# Local rank and size, cross rank and size, by rank; whether all hosts have equal numbers of ranks.
LAYOUTS = {
    "aabccc": ("0203 1202 0113 0323 1312 2301", False),
    "ababab": ("0302 0312 1302 1312 2302 2312", True),
    "cbacaa": ("0203 0113 0323 1202 1312 2301", False),
    "abcdef": ("0106 0116 0126 0136 0146 0156", True),
    "aaaaaa": ("0601 1601 2601 3601 4601 5601", True),
}


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("hosts", LAYOUTS)
def test_places(launcher: Launcher, hosts: str, by_hand: bool) -> None:
    """All ranks have the same values, whether the starter sets them or not."""
    places, homogeneous = LAYOUTS[hosts]
    rows = [[int(digit) for digit in row] for row in places.split()]
    names = ["LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"]
    given = {name: [row[i] for row in rows] for i, name in enumerate(names)} if by_hand else {}
    result = launcher.run("-np", "6", *launcher.python(PLACES.format(hosts=hosts, given=given)))
    assert result.returncode == 0, result.stderr
    lines = sorted(line.split(": ", 1)[1] for line in result.stdout.splitlines())
    assert lines == [f"{rank} {' '.join(map(str, row))} {homogeneous}" for rank, row in enumerate(rows)]


def test_wrong_numbers_are_errors_on_all_ranks(launcher: Launcher) -> None:
    source = PLACES.format(hosts="aabbcc", given={"LOCAL_RANK": [0, 1, 0, 0, 0, 1]})
    result = launcher.run("-np", "6", *launcher.python(source))
    assert result.returncode != 0
    says = (
        "rank 3 has HOROVOD_LOCAL_RANK=0, but it is 1: local rank 1 of 2 on a host whose first rank is rank 2"
    )
    assert {f"[{rank}]<stderr>: {says}" in result.stderr for rank in range(6)} == {True}, result.stderr
