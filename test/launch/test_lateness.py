"""A rank that is late at each step: horovodrun --status says which, by how much and why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Launcher, OnHosts, wait_until

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


def job_of(launcher: Launcher) -> str:
    """The id of the job that the test has started; other jobs of this user may run beside it."""
    for process in launcher.alive():
        for entry in (Path("/proc") / str(process) / "environ").read_bytes().split(b"\0"):
            if entry.startswith(b"HOROVOD_JOB="):
                return entry.split(b"=")[1].decode()
    return ""


def survey_after(launcher: Launcher, steps: int) -> dict[str, Any]:
    """What --status says of the job after that many steps."""
    last: dict[str, Any] = {}

    def has_made_them() -> bool:
        job = job_of(launcher)
        if job:
            result = launcher.run("--status", job, "--json", env=launcher.environment(), seconds=30)
            last.update(json.loads(result.stdout) if result.stdout else {})
        return bool(last) and last["job"]["steps"] >= steps

    assert wait_until(has_made_them), last
    return last


def check_late(survey: dict[str, Any], late: int, cause: str, state: str) -> None:
    """This rank is blamed for at least half of what it lost on purpose, unless the machine is overloaded."""
    text = survey["verdict"]["text"]
    ranks = survey["ranks"]
    overloaded = re.match(r"rank \d waits for a processor for \d+ % of the time: host \S+ has ", text)
    assert overloaded or re.match(rf"rank {late} .*{cause}", text), text
    assert survey["verdict"]["exit"] == 3
    assert ranks[late]["late_ms_per_step"] > 15, ranks
    assert max(ranks, key=lambda rank: rank["late_ms_per_step"])["rank"] == late, ranks
    assert max(ranks, key=lambda rank: rank["program"][state])["rank"] == late, ranks


@pytest.mark.parametrize("size", [2, 3, 4])
def test_late_rank(launcher: Launcher, size: int) -> None:
    late = size - 1 if size != 3 else 0
    launcher.start("-np", str(size), *launcher.python(PROGRAM), str(late), "sleep")
    survey = survey_after(launcher, 150)
    check_late(
        survey, late, r"ms step; it is blocked \(it reads, sleeps or waits for a lock\) for ", "blocked"
    )
    launcher.end()


def test_rank_that_computes(launcher: Launcher) -> None:
    launcher.start("-np", "2", *launcher.python(PROGRAM), "1", "compute")
    # Beside other tests it may wait for a processor for longer than it has one.
    check_late(
        survey_after(launcher, 150), 1, r"ms step; it (computes|waits for a processor) for ", "running"
    )
    launcher.end()


@pytest.mark.parametrize("late", [1, 2, 3])
def test_late_rank_of_several_hosts(launcher: Launcher, on_hosts: OnHosts, late: int) -> None:
    on_hosts.start("-H", "a:2,b:2", *launcher.python(PROGRAM), str(late), "sleep")
    survey = survey_after(launcher, 150)
    assert len(survey["hosts"]) == 2
    check_late(survey, late, rf"\(host {'ab'[late // 2]}\) costs ", "blocked")
    launcher.end()
