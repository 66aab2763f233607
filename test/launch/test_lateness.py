"""A rank that is late at each step: horovodrun --status says which, by how much and why."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from conftest import Launcher, OnHosts, wait_until
from test_status import job_of

pytestmark = pytest.mark.usefixtures("nothing_left")
HOSTS = ("a", "b")

# A step takes 20 ms, and one rank needs 30 ms more. The rest is sleep, so that tests beside it count less.
PROGRAM = """
import sys, time
import numpy as np
import horovod as hvd

late, cause = int(sys.argv[1]), sys.argv[2]
gradients = [np.ones(1000, np.float32) for _ in range(20)]

def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

hvd.init()
while True:
    time.sleep(0.02)
    if hvd.rank() == late:
        time.sleep(0.03) if cause == "sleep" else compute(0.03)
    for handle in [hvd.allreduce_async(g, name=f"grad.{i}") for i, g in enumerate(gradients)]:
        hvd.synchronize(handle)
"""


OVERLOADED = r"rank \d waits for a processor for \d+ % of the time: host \S+ has "


def survey_after(launcher: Launcher, steps: int, verdict: str) -> dict[str, Any]:
    """What --status says of the job after that many steps, once it has this verdict, or the machine is
    overloaded: a look may fall into a moment in which some ranks stand still."""
    last: dict[str, Any] = {}

    def has_made_them() -> bool:
        job = job_of(launcher)
        if job:
            result = launcher.run("--status", job, "--json", env=launcher.environment(), seconds=30)
            last.update(json.loads(result.stdout) if result.stdout else {})
        if not last or last["job"]["steps"] < steps:
            return False
        return re.match(f"{OVERLOADED}|{verdict}", last["verdict"]["text"]) is not None

    assert wait_until(has_made_them), last
    return last


def check_late(survey: dict[str, Any], late: int, state: str) -> None:
    """This rank is blamed for at least half of what it lost on purpose."""
    ranks = survey["ranks"]
    assert survey["verdict"]["exit"] == 3
    assert ranks[late]["late_ms_per_step"] > 15, ranks
    assert max(ranks, key=lambda rank: rank["late_ms_per_step"])["rank"] == late, ranks
    assert max(ranks, key=lambda rank: rank["program"][state])["rank"] == late, ranks


@pytest.mark.parametrize("size", [2, 3, 4])
def test_late_rank(launcher: Launcher, size: int) -> None:
    late = size - 1 if size != 3 else 0
    launcher.start("-np", str(size), *launcher.python(PROGRAM), str(late), "sleep")
    verdict = rf"rank {late} .*ms step; it is blocked \(it reads, sleeps or waits for a lock\) for "
    check_late(survey_after(launcher, 150, verdict), late, "blocked")
    launcher.end()


def test_rank_that_computes(launcher: Launcher) -> None:
    launcher.start("-np", "2", *launcher.python(PROGRAM), "1", "compute")
    # Beside other tests it may wait for a processor for longer than it has one.
    verdict = r"rank 1 .*ms step; it (computes|waits for a processor) for "
    check_late(survey_after(launcher, 150, verdict), 1, "running")
    launcher.end()


@pytest.mark.parametrize("late", [1, 2, 3])
def test_late_rank_of_several_hosts(launcher: Launcher, on_hosts: OnHosts, late: int) -> None:
    on_hosts.start("-H", "a:2,b:2", *launcher.python(PROGRAM), str(late), "sleep")
    survey = survey_after(launcher, 150, rf"rank {late} \(host {'ab'[late // 2]}\) costs ")
    assert len(survey["hosts"]) == 2
    check_late(survey, late, "blocked")
    launcher.end()
