"""horovodrun --status beside jobs that mpirun, srun or torchrun has started: no launcher can be asked, so it
finds the ranks of this host by itself, and those of other hosts with -H."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from conftest import OnHosts, free_port, wait_until
from slurm import Slurm
from starter import OPEN_MPI, Starter

PROGRAM = """
import time
import numpy as np
import horovod as hvd
hvd.init()
value = np.ones(3, np.float32)
for step in range(20):
    hvd.allreduce(value, name="layer")
if hvd.rank() == 1:
    time.sleep(3600)
hvd.allreduce(value, name="loss")
"""
SLEEPS = r"sleeps: \S+\.py:10 in <module>: time\.sleep\(3600\)"


def status_until(on_hosts: OnHosts, pattern: str, *words: str, host: str = "a") -> str:
    """What --status says once it says that, with the code of a late rank and without a complaint."""
    result: list[subprocess.CompletedProcess[str]] = []

    def says() -> bool:
        result[:] = [on_hosts.run("--status", *words, host=host, seconds=30)]
        return re.search(pattern, result[0].stdout, re.MULTILINE) is not None

    assert wait_until(says), result
    assert (result[0].returncode, result[0].stderr) == (3, ""), result
    return result[0].stdout


def start(starter: Starter, on_hosts: OnHosts, *words: str, host: str = "a") -> None:
    if not shutil.which(words[0]):
        pytest.skip(f"there is no {words[0]}")
    starter.start(on_hosts.hosts.enter(host, starter.folder), *words, *starter.launcher.python(PROGRAM))


@pytest.mark.parametrize("words", [OPEN_MPI, ["mpirun.mpich"], ["torchrun", "--no-python", "--standalone"]])
def test_on_one_host(starter: Starter, on_hosts: OnHosts, words: list[str]) -> None:
    start(starter, on_hosts, *words, "--nproc-per-node" if words[0] == "torchrun" else "-np", "3", host="b")
    late = rf"^rank 1 {SLEEPS}; ranks 0, 2 wait for it in allreduce\.loss, for"
    text = status_until(on_hosts, late, host="b")
    assert re.search(r"^job \S+  3 ranks on host b  up ", text, re.MULTILINE), text
    assert re.search(r"^rank 1, thread \d+, .*\n.*:10 +<module> +time\.sleep\(3600\)$", text, re.MULTILINE)
    [job] = re.findall(r"^job (\S+) ", text, re.MULTILINE)
    assert status_until(on_hosts, late, job, host="b"), "the job by its id"


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_mpirun_on_two_hosts(starter: Starter, on_hosts: OnHosts, kind: str) -> None:
    """By node: the ranks of a host are not side by side."""
    where = {
        "openmpi": [*OPEN_MPI, "-H", "a:2,b:1", "--map-by", "node", "-x", "HOME", "-x", "PATH"],
        "mpich": ["mpirun.mpich", "-hosts", "a,b", "-ppn", "1", "-genvall"],
    }
    start(starter, on_hosts, *where[kind], "-np", "3")
    late = rf"^rank 1 \(host b\) {SLEEPS}; ranks 0, 2 wait for it in allreduce\.loss, for"
    text = status_until(on_hosts, late, "-H", "a,b")
    assert re.search(r"^job \S+  3 ranks on 2 hosts  up ", text, re.MULTILINE), text
    assert re.search(r"^links .* a->b ", text, re.MULTILINE), text
    assert "unseen" not in text
    text = status_until(on_hosts, r"^ranks 0, 2 wait for ranks that can't be seen here ")
    assert re.search(r"^job \S+  2 of its 3 ranks on host a  ", text, re.MULTILINE), text
    assert re.search(r"^unseen +1 rank: ended, or on other hosts; -H a,b,\.\.\. asks ", text, re.MULTILINE)
    assert on_hosts.run("--status", host="c").returncode == 1


def test_watch_keeps_its_connections(starter: Starter, on_hosts: OnHosts) -> None:
    start(starter, on_hosts, "mpirun.mpich", "-hosts", "a,b", "-ppn", "1", "-genvall", "-np", "2")
    status_until(on_hosts, rf"^rank 1 \(host b\) {SLEEPS}", "-H", "a,b")
    path = starter.folder / "watched"
    with path.open("w") as file:
        watching = on_hosts.start("--status", "-H", "a,b", "--watch", "0.1", stdout=file)
    assert wait_until(
        lambda: len(re.findall(r"^\d\d:\d\d:\d\d\nrank 1 ", path.read_text(), re.MULTILINE)) > 4
    )
    assert watching.poll() is None
    watching.kill()


def test_srun_on_three_hosts(starter: Starter, slurm: Slurm, on_hosts: OnHosts) -> None:
    """Dealt out in turn: two ranks on a and b. In the allocation each host is also asked without ssh."""
    words = ["srun", "-N3", "-n5", "-m", "cyclic", *starter.launcher.python(PROGRAM)]
    starter.start(slurm.enter(starter.folder), *words)
    late = rf"^rank 1 \(host b\) {SLEEPS}; ranks 0, 2-4 wait for it in allreduce\.loss, for"
    text = status_until(on_hosts, late, "-H", "a,b,c")
    assert re.search(r"^0, 2-4 +3 hosts .* waits in allreduce\.loss", text, re.MULTILINE), text
    job = slurm.call("a", "squeue", "--noheader", "--format=%A").split()[0]
    step = ["srun", "--overlap", f"--jobid={job}"]
    result = starter.launcher.run("--status", inside=[*slurm.enter(starter.folder), *step])
    seen = re.findall(r"^job \S+  (\d) of its 5 ranks on host (\w) ", result.stdout, re.MULTILINE)
    assert sorted(seen) == [("1", "c"), ("2", "a"), ("2", "b")], result


def test_torchrun_on_two_hosts(starter: Starter, on_hosts: OnHosts) -> None:
    rendezvous = ["--master-addr", "a", "--master-port", str(free_port())]
    for rank, name in enumerate("ab"):
        words = ["--nnodes", "2", "--nproc-per-node", "2", "--node-rank", str(rank), "--no-python"]
        start(starter, on_hosts, "torchrun", *words, *rendezvous, host=name)
    late = rf"^rank 1 \(host a\) {SLEEPS}; ranks 0, 2, 3 wait for it in allreduce\.loss, for"
    text = status_until(on_hosts, late, "-H", "a,b")
    assert re.search(r"^job \S+  4 ranks on 2 hosts  up ", text, re.MULTILINE), text
