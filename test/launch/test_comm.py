"""init(comm=[ranks]): jobs of some of the ranks that one launcher has started; threads on cores."""

from __future__ import annotations

import os

import pytest
from conftest import Launcher

GROUPS = """
import os, sys
import numpy as np
import horovod as hvd
world = int(os.environ["HOROVOD_RANK"])
for round in range(3):
    hvd.init(comm=next(group for group in {groups} if world in group))
    total = hvd.allreduce(np.array([10.0 ** world]), name="x", op=hvd.Sum)[0]
    place = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()
    if round == 2:
        print(world, place, int(total), hvd.is_homogeneous())
    hvd.shutdown()
"""


def lines(launcher: Launcher, ranks: int, source: str) -> list[str]:
    result = launcher.run("-np", str(ranks), *launcher.python(source))
    assert result.returncode == 0, result.stderr
    return sorted(line.split(": ", 1)[1] for line in result.stdout.splitlines())


def test_disjoint_groups_under_one_launcher(launcher: Launcher) -> None:
    assert lines(launcher, 3, GROUPS.format(groups="([0, 2], [1])")) == [
        "0 (0, 2, 0, 2, 0, 1) 101 True",
        "1 (0, 1, 0, 1, 0, 1) 10 True",
        "2 (1, 2, 1, 2, 0, 1) 101 True",
    ]


def test_two_groups_of_two(launcher: Launcher) -> None:
    assert lines(launcher, 4, GROUPS.format(groups="([3, 0], (1, 2))")) == [
        "0 (1, 2, 1, 2, 0, 1) 1001 True",
        "1 (0, 2, 0, 2, 0, 1) 110 True",
        "2 (1, 2, 1, 2, 0, 1) 110 True",
        "3 (0, 2, 0, 2, 0, 1) 1001 True",
    ]


def test_everybody(launcher: Launcher) -> None:
    for groups in ["([0, 1],)", "(np.arange(2),)"]:
        assert [line.split(") ")[1] for line in lines(launcher, 2, GROUPS.format(groups=groups))] == [
            "11 True"
        ] * 2


WRONG = """
import horovod as hvd
try:
    hvd.init(comm={comm})
except ValueError as error:
    print(error)
assert not hvd.is_initialized()
"""


@pytest.mark.parametrize(
    ("comm", "problem"),
    [
        ("[1, 2]", "rank 0 of the world is not in the list of ranks '1,2'"),
        ("[0, 0]", "rank 0 stands twice in the list of ranks '0,0'"),
        ("[0, 3]", "'0,3' is no list of ranks of a world of 1"),
        ("[0, -1]", "'0,-1' is no list of ranks"),
        (
            "['a']",
            "init(comm=['a']): expected a list of ranks, e.g. [0, 2], a communicator of mpi4py, or None",
        ),
        ("7", "init(comm=7): expected a list of ranks"),
    ],
)
def test_lists_that_make_no_sense(launcher: Launcher, comm: str, problem: str) -> None:
    if comm == "[1, 2]":
        result = launcher.run("-np", "3", "sh", "-c", 'test $HOROVOD_RANK != 0 || exec "$@"', "-",
                              *launcher.python(WRONG.format(comm=comm)))  # fmt: skip
    else:
        result = launcher.run("-np", "1", *launcher.python(WRONG.format(comm=comm)))
    assert problem in result.stdout, result.stderr
    assert result.returncode == 0


THREADS = """
import contextlib, os, time
import horovod as hvd
allowed = os.sched_getaffinity(0)
hvd.init()
deadline = time.monotonic() + {seconds}
bound = []
while not bound and time.monotonic() < deadline:  # the thread binds itself, once it runs
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            bound += [sorted(cores) for cores in [os.sched_getaffinity(int(name))] if cores != allowed]
    time.sleep(0.01)
print(hvd.rank(), *bound)
"""


def test_engine_threads_on_cores(launcher: Launcher) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("a single core has no choice")
    given = f"{cores[1]},{cores[0]}"
    result = launcher.run(
        "-np", "2", "--thread-affinity", given, *launcher.python(THREADS.format(seconds=30))
    )
    shown = sorted(line.split(": ", 1)[1] for line in result.stdout.splitlines())
    assert shown == [f"0 [{cores[1]}]", f"1 [{cores[0]}]"], result.stderr


def test_too_few_cores_are_ignored(launcher: Launcher) -> None:
    core = min(os.sched_getaffinity(0))
    result = launcher.run(
        "-np", "2", "--thread-affinity", str(core), *launcher.python(THREADS.format(seconds=0))
    )
    assert result.returncode == 0
    assert result.stderr.count("it has to name one core for each of the 2 ranks of this host") == 2
