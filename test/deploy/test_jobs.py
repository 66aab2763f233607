"""The files for batch systems and clouds: by a real Slurm; the others by their variables, and stand-ins."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
sys.path.append(str(ROOT / "test" / "launch"))

import virtual_hosts  # noqa: E402
from slurm import Slurm  # noqa: E402

yaml = pytest.importorskip("yaml", reason="pip install pyyaml")

PROGRAMS = ROOT / ".venv" / "bin"  # where horovodrun is installed, and its Python
SECRET = "5" * 32
TRAIN = """
import socket, numpy
import horovod as hvd

hvd.init()
total = hvd.allreduce(numpy.full(1000, hvd.rank() + 1.0), op=hvd.Sum)
assert (total == hvd.size() * (hvd.size() + 1) / 2).all()
print("trained", hvd.rank(), hvd.size(), hvd.local_rank(), socket.gethostname(), flush=True)
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[virtual_hosts.VirtualHosts]:
    try:
        made = virtual_hosts.make()
    except virtual_hosts.UnavailableError as reason:
        pytest.skip(str(reason))
    yield made
    made.end()
    shutil.rmtree(made.folder)


class Cluster:
    """Hosts with one folder, in which train.py is, and with a folder of programs that is first on PATH."""

    def __init__(self, hosts: virtual_hosts.VirtualHosts, folder: Path) -> None:
        if not (PROGRAMS / "horovodrun").exists():
            pytest.skip("horovodrun is not installed in .venv: make install")
        self.hosts = hosts
        self.folder = folder
        self.programs = folder / "programs"
        self.programs.mkdir()
        (folder / "train.py").write_text(TRAIN)
        (folder / "home").mkdir(mode=0o700)

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def start(self, host: str, words: list[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
        known = {
            "PATH": f"{self.programs}:{PROGRAMS}:/usr/local/bin:/usr/bin:/bin:/usr/sbin",
            "HOME": str(self.folder / "home"),
            "HOROVOD_LOG_LEVEL": "INFO",
        }
        settings = [f"{name}={value}" for name, value in (known | dict(variables)).items()]
        return subprocess.Popen(
            [*self.hosts.enter(host, self.folder), "env", "-i", *settings, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, host: str, words: list[str], variables: Mapping[str, str]) -> str:
        return self.together({host: (words, variables)})

    def together(self, jobs: Mapping[str, tuple[list[str], Mapping[str, str]]]) -> str:
        """The output of commands that run at once, one on each host; all must succeed."""
        started = [self.start(host, *job) for host, job in jobs.items()]
        try:
            out = [each.communicate(timeout=120)[0] for each in started]
        finally:
            for each in started:
                each.kill()
        assert [each.returncode for each in started] == [0] * len(started), "\n".join(out)
        return "".join(out)


@pytest.fixture
def cluster(hosts: virtual_hosts.VirtualHosts) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="horovod-jobs-"))
    yield Cluster(hosts, folder)
    shutil.rmtree(folder)


def trained(out: str, each: Mapping[str, int]) -> None:
    """All ranks have run, so many on each host, and agree on their number."""
    found = re.findall(r"trained (\d+) (\d+) (\d+) (\w+)", out)
    size = sum(each.values())
    assert sorted(int(rank) for rank, *_ in found) == list(range(size)), out
    assert {int(total) for _, total, *_ in found} == {size}
    assert {host: [name for *_, name in found].count(host) for host in each} == dict(each), out


# ---- Slurm -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slurm(hosts: virtual_hosts.VirtualHosts) -> Iterator[Slurm]:
    made = Slurm(hosts)
    yield made
    made.end()


# What Apptainer and Pyxis would do, without a container.
APPTAINER = '#!/bin/sh\ntest "$1" = exec && test "$2" = horovod.sif || exit 2\nshift 2\nexec "$@"\n'
SRUN = """#!/usr/bin/env python3
import os, sys
own = ("--container-image=", "--container-mounts=", "--container-workdir=")
assert all(any(word.startswith(name) for word in sys.argv) for name in own)
os.execv("/usr/bin/srun", ["srun", *(word for word in sys.argv[1:] if not word.startswith(own))])
"""


@pytest.mark.parametrize("name", ["train", "apptainer", "pyxis"])
def test_slurm(slurm: Slurm, cluster: Cluster, name: str) -> None:
    cluster.program("apptainer", APPTAINER)
    if name == "pyxis":
        cluster.program("srun", SRUN)
    variables = {"SLURM_CONF": f"{slurm.folder}/slurm.conf", "IMAGE": "horovod.sif"}
    out = cluster.folder / "out"
    words = [
        "sbatch",
        "--wait",
        "--time=1",
        f"--output={out}",
        str(DEPLOY / "slurm" / f"{name}.sbatch"),
        "train.py",
    ]
    cluster.run("a", words, variables)
    trained(out.read_text(), {"a": 2, "b": 2})


# ---- by their variables ------------------------------------------------------------------------------------


def block(path: str, *keys: Any) -> str:
    """A command of a YAML or JSON file."""
    thing = yaml.safe_load((DEPLOY / path).read_text())
    for key in keys:
        thing = thing[key]
    return thing if isinstance(thing, str) else shlex.join(thing)


def shell(text: str) -> list[str]:
    return ["bash", "-euc", text]


ADDRESSES = [f"{virtual_hosts.SUBNET}.{each}" for each in (1, 2)]


def test_azure_machine_learning(cluster: Cluster) -> None:
    """It starts each rank by itself, with torchrun's variables."""
    text = block("azure/azureml.yaml", "command")
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "HOROVOD_SECRET": SECRET}
    common |= {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "6105"}
    jobs = {host: (shell(text), {**common, "RANK": str(index)}) for index, host in enumerate("ab")}
    trained(cluster.together(jobs), {"a": 1, "b": 1})


def test_lsf(cluster: Cluster) -> None:
    cluster.hosts.know_hosts("host_key")
    (cluster.folder / "hosts").write_text("a\na\nb\nb\n")
    variables = {
        "LSB_JOBID": "17",
        "LSB_DJOB_RANKFILE": str(cluster.folder / "hosts"),
        "LSB_MCPU_HOSTS": "a 2 b 2",
    }
    trained(cluster.run("a", ["bash", str(DEPLOY / "lsf" / "train.bsub")], variables), {"a": 2, "b": 2})


# ---- the files themselves ----------------------------------------------------------------------------------


def test_scripts_are_well_formed() -> None:
    scripts = [*DEPLOY.glob("slurm/*"), *DEPLOY.glob("lsf/*")]
    assert len(scripts) >= 4
    for path in scripts:
        result = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert "set -eu" in path.read_text()


def test_no_file_contains_a_secret_or_password() -> None:
    """A value of a variable of that name would be one."""
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix != ".png":
            text = path.read_text()
            found = re.findall(r"(?i)(?:secret|password|token)['\"]?\s*[:=]\s*['\"]?([\w+/]{6,})", text)
            assert not [each for each in found if each not in ("on_create", "openssl")], (
                path,
                found,
            )
