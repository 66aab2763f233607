"""The files for batch systems and clouds: by a real Slurm; the others by their variables, and stand-ins."""

from __future__ import annotations

import json
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
from conftest import Shell, needs

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


def nodes(variables: Mapping[str, str], rank: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """A variable `rank` with the number of each of two nodes."""
    common = {**variables, "HOROVOD_SECRET": SECRET}
    return {host: ([], {**common, rank: str(index)}) for index, host in enumerate("ab")}


ADDRESSES = [f"{virtual_hosts.SUBNET}.{each}" for each in (1, 2)]
ONE_A_NODE = {
    "skypilot": (
        block("skypilot/train.yaml", "run"),
        {
            "SKYPILOT_NUM_NODES": "2",
            "SKYPILOT_NODE_IPS": "\n".join(ADDRESSES),
            "SKYPILOT_NUM_GPUS_PER_NODE": "0",
        },
        "SKYPILOT_NODE_RANK",
    ),
    "dstack": (
        block("dstack/train.dstack.yml", "commands", 1),
        {
            "DSTACK_NODES_NUM": "2",
            "DSTACK_NODES_IPS": "\n".join(ADDRESSES),
            "DSTACK_MASTER_NODE_IP": ADDRESSES[0],
        },
        "DSTACK_NODE_RANK",
    ),
    "aws-batch": (
        block(
            "aws-batch/job-definition.json",
            "nodeProperties",
            "nodeRangeProperties",
            0,
            "container",
            "command",
        ),
        {"AWS_BATCH_JOB_NUM_NODES": "2", "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0"},
        "AWS_BATCH_JOB_NODE_INDEX",
    ),
}


@pytest.mark.parametrize("system", ONE_A_NODE)
def test_one_command_on_each_node(cluster: Cluster, system: str) -> None:
    text, variables, rank = ONE_A_NODE[system]
    jobs = {host: (shell(text), more) for host, (_, more) in nodes(variables, rank).items()}
    if system == "aws-batch":  # which the main node itself does not get
        jobs["b"][1]["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] = ADDRESSES[0]
    trained(cluster.together(jobs), {"a": 4, "b": 4})


def test_azure_machine_learning(cluster: Cluster) -> None:
    """It starts each rank by itself, with torchrun's variables."""
    text = block("azure/azureml.yaml", "command")
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "HOROVOD_SECRET": SECRET}
    common |= {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "6105"}
    jobs = {host: (shell(text), {**common, "RANK": str(index)}) for index, host in enumerate("ab")}
    trained(cluster.together(jobs), {"a": 1, "b": 1})


def test_azure_batch(cluster: Cluster) -> None:
    cluster.hosts.know_hosts("host_key")
    variables = {
        "AZ_BATCH_HOST_LIST": ",".join(ADDRESSES),
        "AZ_BATCH_NODE_LIST": ";".join(ADDRESSES),
        "AZ_BATCH_TASK_SHARED_DIR": str(cluster.folder),
    }
    out = cluster.run("a", shell(block("azure/batch-task.json", "commandLine")), variables)
    trained(out, {"a": 2, "b": 2})


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


def test_aws_knows_all_names_of_the_job_definition() -> None:
    loaders = pytest.importorskip("botocore.session", reason="pip install botocore")
    validate = pytest.importorskip("botocore.validate")
    service = loaders.get_session().get_service_model("batch")
    definition = json.loads((DEPLOY / "aws-batch" / "job-definition.json").read_text())
    shape = service.operation_model("RegisterJobDefinition").input_shape
    report = validate.ParamValidator().validate(definition, shape)
    assert not report.has_errors(), report.generate_report()


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
            assert set(found) <= {"on_create", "openssl", "horovod", "secretName"}, (path, found)


@needs("podman")
def test_the_definition_of_apptainer(shell: Shell) -> None:
    """spython reads it; its files, %post and %test run in a container, as in one that Apptainer builds."""
    parsers = pytest.importorskip("spython.main.parse.parsers", reason="pip install spython")
    path = DEPLOY / "apptainer" / "horovod.def"
    recipe = parsers.SingularityParser(str(path)).recipe["spython-base"]
    assert recipe.fromHeader == "debian:bookworm-slim" and recipe.files == ["horovod-*.whl /tmp/wheels/"]
    [wheel] = (ROOT / "build" / "wheels").glob("*.whl")
    shutil.copy(wheel, shell.folder)
    (shell.folder / "post").write_text("\n".join(["set -e", *recipe.install]))
    lines = [f"FROM docker.io/library/{recipe.fromHeader}", f"COPY {recipe.files[0]}", "COPY post /"]
    lines += ["RUN sh /post", *(f"ENV {each}" for each in recipe.environ)]
    (shell.folder / "Dockerfile").write_text("\n".join([*lines, ""]))
    shell.out("podman build -t apptainer .", 280)
    shell.out(f"podman run --rm apptainer {recipe.test}")
