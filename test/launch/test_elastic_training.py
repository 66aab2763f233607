"""Real processes train with PyTorch while ranks are killed, added and taken out; no step is lost."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher
from elastic_starter import ElasticJob, Forks

torch = pytest.importorskip("torch")

from elastic_trainer import PHASES  # noqa: E402

PACE = {"PACE": "0.01"}
EXPECTED = "import sys, elastic_trainer; print(elastic_trainer.expected(int(sys.argv[1])))"


@functools.cache
def expected(steps: int) -> str:
    """The hash of training without faults."""
    words = [sys.executable, "-c", EXPECTED, str(steps)]
    folder = Path(__file__).parent
    return subprocess.run(
        words, cwd=folder, timeout=DEADLINE, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    launcher = Launcher("", tmp_path_factory.mktemp("forks"))
    yield Forks(launcher)
    launcher.end()


@pytest.fixture
def job(forks: Forks, tmp_path: Path) -> Iterator[ElasticJob]:
    made = ElasticJob(forks, tmp_path, 12)
    yield made
    made.close()


def check(job: ElasticJob, killed: set[str]) -> None:
    """All processes but those that were killed end well, with the bits of training without faults."""
    for slot in job.processes:
        assert job.code(slot) == (-signal.SIGKILL if slot in killed else 0), job.text()
    for slot in job.members:
        ((steps, chain),) = job.lines(slot, "END")
        assert chain == expected(int(steps)), job.text()


def test_a_job_shrinks_and_grows(job: ElasticJob) -> None:
    """3 ranks become 2, then 4; survivors stay the same processes, and one of the four leaves on request."""
    job.steps = 100_000
    timeline = {"HOROVOD_TIMELINE": str(job.folder / "timeline.json")}
    job.start(3, {0: timeline, 1: timeline | {"KILL": "3 backward"}, 2: timeline})
    job.until(lambda: job.epoch == 1 and job.made() > 6)
    assert job.members == ["0", "2"]
    added = job.add(2)
    job.until(lambda: job.epoch == 2 and len(job.lines(added[1], "STEP")) > 3)
    assert job.members == ["0", "2", *added]
    job.exclude("2")
    job.until(lambda: job.epoch == 3 and not job.lives("2"))
    assert job.code("2") == 0 and not job.lines("2", "END")
    assert "this process leaves the job" in job.files["2"].read_text()
    sizes = [line[2] for line in job.lines("0", "BEGIN")]
    assert sizes == ["3", "2", "4", "3"] and len(job.lines("0", "READY")) == 1
    assert [line[3] for line in job.lines("0", "BEGIN")][1] == "3"  # the step in which the rank was killed
    assert [line[4] for line in job.lines("0", "BEGIN")] == sizes
    assert [line[1:3] for line in job.lines(added[0], "READY")] == [["2", "4"]]  # its planned place
    job.stop()
    job.finish()
    check(job, {"1"})
    cost = json.loads(" ".join(job.lines("0", "COST")[0]))
    assert cost["resets"] == {"lost": 1, "removed": 1, "added": 1, "mixed": 0}
    assert (cost["ranks_lost"], cost["ranks_added"]) == (2, 2)
    assert [each["ranks"] for each in cost["sizes"]] == [3, 2, 4, 3]
    assert [each["cause"] for each in cost["sizes"]] == ["", "lost", "added", "removed"]
    assert cost["bytes_sent"] > 6 * 16 * 16 * 8 and cost["bytes_received"] == 0 and cost["seconds_lost"] > 0
    trace = json.loads((job.folder / "timeline.json").read_text())
    marks = [each["name"] for each in trace if each.get("name", "").startswith("epoch ")]
    assert marks == [
        "epoch 0: 3 ranks",
        "epoch 1: 2 ranks, ranks were lost, or an operation failed",
        "epoch 2: 4 ranks, ranks were added",
        "epoch 3: 3 ranks, ranks were removed",
    ]
    received = json.loads(" ".join(job.lines(added[0], "COST")[0]))
    assert received["bytes_received"] > 0 and received["ranks_added"] == 0


@pytest.mark.parametrize("phase", PHASES)
def test_a_rank_is_killed(job: ElasticJob, phase: str) -> None:
    """Rank 0 dies in each part of a step; the next one takes its place."""
    job.start(3, {0: {"KILL": f"5 {phase}"}})
    job.finish()
    check(job, {"0"})
    assert job.epoch == 1 and job.members == ["1", "2"]


def test_the_last_rank_that_is_left_goes_on(job: ElasticJob) -> None:
    job.start(2, {0: {"KILL": "4 update"}})
    job.until(lambda: job.epoch == 1)
    job.finish()
    check(job, {"0"})


def test_a_newcomer_dies_before_it_is_ready(job: ElasticJob) -> None:
    """The others never stop for it."""
    job.steps = 100_000
    job.start(2)
    (added,) = job.add()
    job.kill(added)
    job.until(lambda: not job.lives(added) and job.made() > 3)
    job.stop()
    job.finish()
    check(job, {added})
    assert job.epoch == 0


def test_a_rank_that_gets_sigterm_leaves(job: ElasticJob) -> None:
    """With its next commit, by itself; nothing is repeated."""
    job.steps = 100_000
    job.start(3)
    job.until(lambda: job.is_in_step() and job.made() > 2)
    os.kill(job.processes["1"], signal.SIGTERM)
    job.until(lambda: job.epoch == 1 and not job.lives("1"))
    assert job.members == ["0", "2"] and job.code("1") == 0, job.text()
    assert "this process leaves the job" in job.files["1"].read_text()
    begun = [int(line[3]) for line in job.lines("0", "BEGIN")]
    assert begun[1] == len(job.lines("1", "STEP")), job.text()
    job.until(lambda: job.made() > begun[1] + 2)
    job.stop()
    job.finish()
    check(job, set())


def test_steps_without_a_commit_reach_a_newcomer(job: ElasticJob) -> None:
    """Also if the commit before them was interrupted by the loss of a rank."""
    job.steps = 100_000
    seldom = {"COMMITS": "40"}
    job.start(3, {0: seldom, 1: seldom | {"KILL": "40 commit"}, 2: seldom})
    job.until(lambda: job.epoch == 1 and job.made() > 42)
    (added,) = job.add(**seldom)
    job.until(lambda: job.epoch == 2 and len(job.lines(added, "STEP")) > 3)
    job.stop()
    job.finish()
    check(job, {"1"})


def test_process_sets_go_on(job: ElasticJob) -> None:
    """With their ids, without the members that are lost, renumbered or computed, also on one that joins."""
    job.program = "use_sets"
    job.start(3)
    job.until(lambda: job.made() > 2)
    job.kill("0")
    job.until(lambda: job.epoch == 1 and job.members == ["1", "2"])
    (added,) = job.add()
    job.until(lambda: job.epoch == 2 and len(job.lines(added, "STEP")) > 2)
    job.stop()
    job.finish()
    lives = [" ".join(line) for line in job.lines("1", "SETS")]
    again = '3 {"0": [], "2": [0, 1], "3": [0, 2], "4": [0], "5": [2]}'
    assert lives == [
        '1 3 {"1": [0], "2": [1, 2], "3": [0, 2], "4": [0, 1], "5": [2]}',
        '0 2 {"0": [], "2": [0, 1], "3": [0], "4": [0]}',
        f"0 {again}",
    ]
    assert [" ".join(line) for line in job.lines(added, "SETS")] == [f"2 {again}"]
    assert [job.code(slot) for slot in job.members] == [0, 0, 0], job.text()


def test_many_resets_use_no_more(job: ElasticJob) -> None:
    """Files, threads and memory of a process stay the same; `make soak` resets it 200 times."""
    resets, settled = 200 if "HOROVOD_TEST_FULL" in os.environ else 40, 10
    job.program = "reset_often"
    job.start(2)
    for epoch in range(1, resets + 1):
        job.interrupt()
        job.until(lambda epoch=epoch: job.epoch == epoch)
    job.until(lambda: len(job.lines("0", "USED")) == resets + 1)
    job.stop()
    job.finish()
    used = [[int(word) for word in line] for line in job.lines("0", "USED")]
    # The least of five: a thread that was joined may still be seen for a moment.
    before, after = ([*map(min, zip(*part, strict=True))] for part in (used[settled:][:5], used[-5:]))
    assert after[:2] == before[:2], used
    assert after[2] - before[2] < 1000, used


def kill_at_random(job: ElasticJob, kills: int, seed: int) -> None:
    """Kills processes at random moments, and adds one for each, until that many have been killed."""
    draw = random.Random(seed)
    job.start(3, dict.fromkeys(range(3), PACE))
    killed: set[str] = set()
    while len(killed) < kills:
        wanted = job.made() + draw.randint(0, 3)
        job.until(lambda wanted=wanted: job.is_in_step() and job.made() >= wanted)
        time.sleep(draw.random() * 0.02)  # the kill may come in any part of a step
        most = min(2, len(job.alive()) - 1, kills - len(killed))
        for victim in draw.sample(job.alive(), draw.randint(1, most)):
            killed.add(victim)
            job.kill(victim)
            job.add(**PACE)
    job.stop()
    job.finish()
    check(job, killed)


def stop_at_random(job: ElasticJob, stops: int, seed: int) -> None:
    """Stops processes at random moments, some for so long that the others go on without them.

    Of these, some are killed, and others continue when they are in no epoch any more.
    """
    draw = random.Random(seed)
    more = PACE | {"HOROVOD_TIMEOUT_SECONDS": "2"}
    job.start(3, dict.fromkeys(range(3), more))
    killed: set[str] = set()
    for _ in range(stops):
        wanted = job.made() + draw.randint(1, 3)
        job.until(lambda wanted=wanted: job.is_in_step() and job.made() >= wanted)
        time.sleep(draw.random() * 0.02)
        epoch, victim, fate = job.epoch, draw.choice(job.alive()), draw.choice(("goes on", "dies", "is late"))
        os.kill(job.processes[victim], signal.SIGSTOP)
        if fate == "goes on":
            end = time.monotonic() + draw.random() * 0.4
            job.until(lambda end=end: time.monotonic() > end)
        else:
            job.until(lambda victim=victim: job.all_wait_for(victim))
            job.add(**more)
            if fate == "dies":
                killed.add(victim)
                job.kill(victim)
            else:
                job.drop(victim)
            job.until(lambda epoch=epoch: job.epoch > epoch)
        if fate != "dies":
            os.kill(job.processes[victim], signal.SIGCONT)
    job.stop()
    job.finish()
    check(job, killed)


def test_random_stops(job: ElasticJob) -> None:
    """`make soak` stops 100."""
    job.steps = 100_000
    stops = int(os.environ.get("HOROVOD_TEST_KILLS", "3"))
    stop_at_random(job, stops, int(os.environ.get("HOROVOD_TEST_SEED", "1")))


def test_random_kills(job: ElasticJob) -> None:
    """`make soak` kills 100."""
    job.steps = 100_000
    kills = int(os.environ.get("HOROVOD_TEST_KILLS", "6"))
    kill_at_random(job, kills, int(os.environ.get("HOROVOD_TEST_SEED", "1")))
