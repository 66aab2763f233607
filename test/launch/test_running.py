"""The commands of docs/running.md and docs/mpi.md as they stand there, on hosts and in containers. Long: for
the soak run.

jsrun is a stand-in, and so is what gives the pods of a Job of Kubernetes their index and names.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Launcher, virtual_hosts_or_skip
from slurm import Slurm
from virtual_hosts import VirtualHosts

pytestmark = pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")

ROOT = Path(__file__).resolve().parents[2]
PAGE = "".join((ROOT / "docs" / name).read_text() for name in ("running.md", "mpi.md"))
SECONDS = 250.0  # of one command; pytest's own limit is 300
STARTERS = r"(horovodrun|mpirun\S*|torchrun|srun|jsrun|salloc|sbatch|docker|HOROVOD_\w+=\S+) "

TRAIN = """
import os, socket, sys
import torch
import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
x = torch.rand(100, 4)
model = torch.nn.Linear(4, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for _ in range(5):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
weights = torch.cat([each.detach().flatten() for each in model.parameters()])[None]
equal = bool((hvd.allgather(weights) == weights).all())
total = int(hvd.allreduce(torch.tensor(hvd.rank() + 1), op=hvd.Sum))
words = [hvd.rank(), hvd.size(), total, equal, os.environ.get("SET_UP", "-"), socket.gethostname()]
sys.stdout.write(" ".join(map(str, ["trained", *words])) + "\\n")
hvd.shutdown()
"""

JSRUN = """#!{python}
import argparse, os, shlex, subprocess
parser = argparse.ArgumentParser()
parser.add_argument("-n", "--nrs", type=int)
parser.add_argument("-a", "--tasks_per_rs", type=int)
parser.add_argument("-c", "--cpu_per_rs", type=int)
parser.add_argument("words", nargs=argparse.REMAINDER)
given = parser.parse_args()
size = given.nrs * given.tasks_per_rs
ranks = []
for rank in range(size):
    more = {{"JSM_NAMESPACE_RANK": rank, "JSM_NAMESPACE_SIZE": size, "LSB_JOBID": 17}}
    names = [f"{{name}}={{value}}" for name, value in (os.environ | more).items()]
    command = shlex.join(["env", "-C", os.getcwd(), *names, *given.words])
    ranks.append(subprocess.Popen(["ssh", "ab"[rank // given.tasks_per_rs], command]))
raise SystemExit(max(each.wait() for each in ranks))
"""


def blocks() -> Iterator[list[tuple[str, str]]]:
    """Commands, each with its host: those that run at once, else one by one on host a."""
    for text in re.findall(r"^```\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        if not re.match(f"(# on host .*\n)?{STARTERS}", text):
            continue
        at_once = re.findall(r"# on host (\w+)\n((?:(?!#).*\n)+)", text)
        lines = [("a", line) for line in text.replace("\\\n", " ").splitlines()]
        yield from [at_once] if at_once else [[line] for line in lines]


COMMANDS = list(blocks())
NAMES = [block[0][1].strip().splitlines()[0][:70] for block in COMMANDS]
ON_HOSTS = [block for block in COMMANDS if not block[0][1].startswith("docker")]
IN_CONTAINERS = [block for block in COMMANDS if block[0][1].startswith("docker")]


def test_no_command_is_missed() -> None:
    words = {name.split()[0].split("=")[0] for name in NAMES}
    assert {"horovodrun", "torchrun", "srun", "salloc", "sbatch", "jsrun", "mpirun.openmpi"} <= words
    assert {"mpirun.mpich", "docker", "HOROVOD_RANK", "HOROVOD_CPU_OPERATIONS"} <= words
    assert len(IN_CONTAINERS) == 1


def code(start: str) -> str:
    """The block of the page that begins so."""
    return next(
        text
        for text in re.findall(r"^```\w*\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        if text.startswith(start)
    )


class Reader:
    """Does what the page says: in one folder of all hosts, with one home folder."""

    def __init__(self, hosts: VirtualHosts, launcher: Launcher) -> None:
        self.hosts = hosts
        self.launcher = launcher
        self.folder = launcher.folder
        (self.folder / "train.py").write_text(TRAIN)
        self.home = hosts.folder / "home"
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        folders = [str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]
        more = [
            "OMPI_ALLOW_RUN_AS_ROOT",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
            "OMPI_MCA_rmaps_base_oversubscribe",
        ]
        self.environment = launcher.environment(
            HOME=str(self.home),
            PATH=os.pathsep.join(folders),
            OMP_NUM_THREADS="1",
            **dict.fromkeys(more, "1"),
        )
        self.call("a", code("(umask"))

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def start(self, host: str, command: str) -> subprocess.Popen[str]:
        first, *rest = [*self.hosts.enter(host, self.folder), "bash", "-c", command]
        return self.launcher.start(*rest, program=first, env=self.environment)

    def call(self, host: str, command: str) -> str:
        return self.finish([self.start(host, command)])

    def finish(self, processes: list[subprocess.Popen[str]]) -> str:
        outs = []
        for process in processes:
            out, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, out[-1000:] + err[-3000:]
            outs.append(out)
        return "".join(outs)

    def run(self, block: list[tuple[str, str]]) -> str:
        return self.finish([self.start(host, command) for host, command in block])


def trained(out: str, size: int | None = None, jobs: int = 1) -> list[str]:
    """All ranks of a job have learnt the same; what else they said, in their order."""
    found = sorted(
        re.findall(r"trained (\d+) (\d+) (\d+) (\w+) (\S+) (\S+)", out), key=lambda words: int(words[0])
    )
    assert found, out
    number = int(found[0][1])
    assert size in (number, None), out
    assert number > 1
    assert [int(words[0]) for words in found] == sorted([*range(number)] * jobs), out
    for words in found:
        assert words[1:4] == (str(number), str(number * (number + 1) // 2), "True"), out
    return [" ".join(words[4:]) for words in found]


def prepare_hosts(hosts: VirtualHosts) -> None:
    """A home folder of the test's own, and a second user `me`."""
    home = hosts.folder / "home"
    (home / "env" / "bin").mkdir(parents=True)
    (home / "env" / "bin" / "activate").write_text("export SET_UP=yes\n")
    lines = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")]
    users = [f"{name}:*:0:0::{home}:/bin/bash" for name in ("root", "me")]
    hosts.write("passwd", "\n".join([*users, *lines, ""]))
    for name in hosts.names:
        assert hosts.inside(name, "mount", "--bind", str(hosts.folder / "passwd"), "/etc/passwd") == 0


@pytest.fixture
def reader(hosts: VirtualHosts, launcher: Launcher) -> Reader:
    return Reader(hosts, launcher)


@pytest.mark.parametrize("block", ON_HOSTS, ids=[name for name in NAMES if not name.startswith("docker")])
def test_a_command(reader: Reader, block: list[tuple[str, str]], request: pytest.FixtureRequest) -> None:
    command = block[0][1]
    if command.startswith(("salloc", "sbatch", "srun")):
        slurm: Slurm = request.getfixturevalue("slurm")
        reader.environment["SLURM_CONF"] = str(slurm.folder / "slurm.conf")
    program = re.sub(r"^(\w+=\S+ )*", "", command).split()[0]
    if program == "jsrun":
        reader.program("jsrun", JSRUN.format(python=sys.executable))
    elif not shutil.which(program, path=reader.environment["PATH"]):
        pytest.skip(f"there is no {program}")
    out = reader.run(block)
    out += "".join(path.read_text() for path in reader.folder.glob("slurm-*.out"))
    asked = re.search(r"(?:-np|-n|--nproc-per-node) (\d+)", command)
    size = int(asked[1]) if asked and program not in ("jsrun", "torchrun") else None
    notes = trained(out, size)
    if "--host-setup" in command:
        assert all(note.startswith("yes") for note in notes), notes


def test_the_file_of_hosts(reader: Reader, hosts: VirtualHosts) -> None:
    (reader.folder / "hosts").write_text(code("# two forms"))
    key = " ".join((hosts.folder / "host_key.pub").read_text().split()[:2])
    with (hosts.folder / "known_hosts").open("a") as known:
        known.write(f"[c]:2222 {key}\n")
    assert hosts.inside("c", "/usr/sbin/sshd", "-f", str(hosts.folder / "sshd_config"), "-p", "2222") == 0
    notes = trained(reader.call("a", "horovodrun --hostfile hosts python train.py"), 10)
    assert [note[-1] for note in notes] == list("aaaabbbbcc")


def test_a_function_on_hosts(reader: Reader) -> None:
    """The page's function, first here, then with the hosts that the page gives."""
    source = code("import horovod\n").replace(
        "    ...\n", f"    accuracy = rate\n    exec({TRAIN!r}, {{}})\n"
    )
    (given,) = set(re.findall(r'horovod\.run\(fn, (hosts="\S+")\)', PAGE))
    for where, size in (("np=2", 2), (given, 8)):
        text = f"{source}\nprint(accuracies)\n".replace("np=2", where)
        assert where in text
        (reader.folder / "function.py").write_text(text)
        out = reader.call("a", "python function.py")
        trained(out, size)
        assert str([0.1] * size) in out


def test_communicators_of_mpi(reader: Reader) -> None:
    pytest.importorskip("mpi4py")
    if not shutil.which("mpirun.openmpi"):
        pytest.skip("there is no mpirun.openmpi")
    source = code("from mpi4py") + TRAIN.replace("\nhvd.init()", "")
    (reader.folder / "halves.py").write_text(source)
    trained(reader.call("a", "mpirun.openmpi -x PATH -H a:2,b:2 -np 4 python halves.py"), 2, jobs=2)


# ---- containers --------------------------------------------------------------------------------------------


class Podman:
    """An engine for each host, in its network. The image has the folders that are mounted into it."""

    IMAGE = "localhost/train"

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader = reader
        self.folder = folder
        cgroups = "runc" if Path("/sys/fs/cgroup/unified").exists() else "crun"
        files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 1 << 20)
        (folder / "containers.conf").write_text(
            f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc=10000:10000"]\n'
            f'[network]\nnetwork_config_dir = "{folder}/networks"\n'
            f'[engine]\nruntime = "{cgroups}"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        if not shutil.which(cgroups):
            pytest.skip(f"there is no {cgroups}")
        reader.environment["CONTAINERS_CONF"] = str(folder / "containers.conf")
        # The same paths as outside, in which Python looks for its packages.
        self.mounts = sorted({"/usr", sys.prefix, sys.base_prefix})
        options = " ".join(f"-v {path}:{path}:ro" for path in self.mounts)
        (folder / "image.tar").write_bytes(self.image())
        (folder / "networks").mkdir()
        for name in "ab":
            # Where the engine writes which addresses it has given away; the hosts have this folder in common.
            mount = "mkdir -p /var/lib/cni && mount -t tmpfs tmpfs /var/lib/cni"
            reader.call(name, f"{mount} && sysctl -q -w net.ipv4.ip_forward=1")
        store = f"{folder}/$(hostname)"
        words = f"podman --root {store}.store --runroot {store}.run --storage-driver vfs"
        reader.program("engine", f'#!/bin/sh\nexec {words} "$@"\n')
        run = f'shift; exec {words} run --rm {options} "$@"'
        reader.program("docker", f'#!/bin/sh\n[ "$1" = run ] || exit 2\n{run}\n')
        changes = [
            f"ENV PATH={Path(sys.executable).parent}:/usr/bin:/bin",
            "ENV OMP_NUM_THREADS=1",
            "WORKDIR /work",
        ]
        flags = " ".join(f"--change {shlex.quote(change)}" for change in changes)
        for name in "ab":
            reader.call(name, f"engine import {flags} {folder}/image.tar {self.IMAGE}")

    def image(self) -> bytes:
        kept = io.BytesIO()
        with tarfile.open(fileobj=kept, mode="w") as tar:
            for name in ("usr", "proc", "sys", "dev", "run", "tmp", "root", "etc", "work"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            for name in ("bin", "sbin", "lib", "lib64"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
                tar.addfile(entry)
            for name, text in {"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "work/train.py": TRAIN}.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text.encode()))
        return kept.getvalue()


@pytest.fixture
def podman(launcher: Launcher) -> Iterator[Podman]:
    """On hosts of its own: its bridges, which have one address on all, are not for every MPI."""
    if not shutil.which("podman"):
        pytest.skip("there is no podman")
    if not Path("/lib").is_symlink():
        pytest.skip("the system's folders are not below /usr")
    folder = Path(tempfile.mkdtemp(prefix="horovod-podman-"))
    with virtual_hosts_or_skip() as hosts:
        prepare_hosts(hosts)
        yield Podman(Reader(hosts, launcher), folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_containers_with_published_ports(podman: Podman) -> None:
    notes = trained(podman.reader.run(IN_CONTAINERS[0]), 2)
    assert len({note.split()[1] for note in notes}) == 2, "each has its host name"


def pod(index: int, mounts: list[str]) -> str:
    """What the controller of Jobs makes of the template of examples/kubernetes/train.yaml, with mounts."""
    text = (ROOT / "examples" / "kubernetes" / "train.yaml").read_text()
    template = text.split("  template:\n")[1].replace("\n    ", "\n").removeprefix("    ")
    template = template.replace("registry.example/train:1", Podman.IMAGE)
    folders = "".join(
        f"    - {{name: f{i}, mountPath: {path}, readOnly: true}}\n" for i, path in enumerate(mounts)
    )
    volumes = "".join(f"  - {{name: f{i}, hostPath: {{path: {path}}}}}\n" for i, path in enumerate(mounts))
    names = "".join(f"  - {{ip: 10.88.7.{i + 1}, hostnames: [train-{i}.train]}}\n" for i in (0, 1))
    variable = f'    - name: JOB_COMPLETION_INDEX\n      value: "{index}"\n'
    head = f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: train-{index}\n"
    # hostname is what the controller sets, too.
    more = (
        f"    volumeMounts:\n{folders}  volumes:\n{volumes}  hostAliases:\n{names}  hostname: train-{index}\n"
    )
    return head + template + variable + more


SECRET = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: train\nstringData:\n  secret: {}\n"


def test_pods_of_an_indexed_job(podman: Podman) -> None:
    if not any(shutil.which("catatonit", path=path) for path in ("/usr/bin", "/usr/libexec/podman")):
        pytest.skip("there is no catatonit, without which podman has no pods")
    reader = podman.reader
    secret = (reader.folder / "secret").read_text().strip()
    (reader.folder / "secret.yaml").write_text(SECRET.format(secret))
    version = re.findall(r"\d+", reader.call("a", "engine --version"))
    if tuple(map(int, version[:2])) < (4, 4):  # it reads a value in another form than it writes the object
        data = json.dumps({"secret": base64.b64encode(secret.encode()).decode()})
        reader.call("a", f"engine secret create train - <<<{shlex.quote(data)}")
    else:
        reader.call("a", "engine kube play secret.yaml")
    for index in (1, 0):
        (reader.folder / f"pod{index}.yaml").write_text(pod(index, podman.mounts))
        reader.call("a", f"engine kube play --network podman --ip 10.88.7.{index + 1} pod{index}.yaml")
    codes = reader.call("a", "engine wait train-0-train train-1-train")
    out = reader.call("a", "engine logs train-0-train; engine logs train-1-train 2>&1")
    assert codes.split() == ["0", "0"], out
    assert trained(out, 2) == ["- train-0", "- train-1"]
