"""examples/torch/mnist.py on several hosts, started in every way. Long: for the soak run.

The indexed Job is a stand-in: its variables.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Launcher, virtual_hosts_or_skip
from slurm import Slurm
from virtual_hosts import VirtualHosts

pytestmark = pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")

ROOT = Path(__file__).resolve().parents[2]
MNIST = [sys.executable, str(ROOT / "examples" / "torch" / "mnist.py"), "--epochs", "3"]
SECONDS = 280.0  # of one training; pytest's own limit is 300


HOSTS = ("a", "b", "c", "d")


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    """On three hosts of its own."""
    with virtual_hosts_or_skip() as hosts:
        made = Slurm(hosts)
        yield made
        made.end()


class Training:
    """Commands on the hosts, with a home folder that all of them have."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.folder = launcher.folder
        self.processes: list[subprocess.Popen[str]] = []
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = launcher.environment(HOME=str(self.folder), PATH=path, OMP_NUM_THREADS="1")

    def start(self, enter: list[str], *words: str, **more: str) -> None:
        first, *rest = [*enter, *words, *MNIST]
        self.processes.append(self.launcher.start(*rest, program=first, env=self.environment | more))

    def check(self, ranks: int) -> None:
        """It has learnt, and all ranks the same."""
        lines = []
        for process in self.processes:
            out, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, err[-2000:]
            lines += [line.split("<stdout>: ")[-1] for line in out.splitlines()]
        assert f"{ranks} rank(s), 4000 digits to train on, 1000 held out" in lines
        assert "weights equal on all ranks: yes" in lines
        accuracy = next(line for line in lines if line.startswith("held-out accuracy: "))
        print(accuracy)
        assert float(accuracy.split()[-1].rstrip("%")) > 80, "chance is 10 %"


@pytest.fixture
def training(launcher: Launcher) -> Training:
    return Training(launcher)


@pytest.mark.parametrize("layout", ["a:2,b:2,c:2,d:2", "a:1,b:3,c:2,d:2"])
def test_horovodrun_by_ssh(training: Training, hosts: VirtualHosts, layout: str) -> None:
    enter = hosts.enter("a", training.folder)
    training.start(enter, training.launcher.program, "-np", "8", "-H", layout)
    training.check(8)


def test_slurm_cyclic(training: Training, slurm: Slurm) -> None:
    training.start(slurm.enter(training.folder), "srun", "-N3", "-n5", "-m", "cyclic")
    training.check(5)


def test_open_mpi(training: Training, hosts: VirtualHosts) -> None:
    words = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "8", "-H", "a:2,b:2,c:2,d:2"]
    training.start(hosts.enter("a", training.folder), *words, "--map-by", "node", "-x", "HOME", "-x", "PATH")
    training.check(8)


def test_mpich(training: Training, hosts: VirtualHosts) -> None:
    words = ["mpirun.mpich", "-hosts", "a,b,c,d", "-ppn", "2", "-np", "8", "-genvall"]
    training.start(hosts.enter("a", training.folder), *words)
    training.check(8)


def test_torchrun(training: Training, hosts: VirtualHosts) -> None:
    for number, name in enumerate("abcd"):
        where = ["--nnodes", "4", "--node-rank", str(number), "--master-addr", "a", "--master-port", "29600"]
        words = ["torchrun", "--no-python", "--nproc-per-node", "2", *where]
        training.start(hosts.enter(name, training.folder), *words)
    training.check(8)


def test_variables_of_an_indexed_job(training: Training, hosts: VirtualHosts) -> None:
    secret = training.folder / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    secret.chmod(0o600)
    given = {"HOROVOD_SIZE": "4", "HOROVOD_RENDEZVOUS": "a:29600", "HOROVOD_SECRET_FILE": str(secret)}
    for index, name in enumerate("abcd"):
        training.start(hosts.enter(name, training.folder), **given, JOB_COMPLETION_INDEX=str(index))
    training.check(4)
