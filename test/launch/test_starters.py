"""Ranks that something else than horovodrun starts. jsrun and Kubernetes are stand-ins: their variables."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE, wait_until
from slurm import Slurm
from starter import MEET, OPEN_MPI, Starter
from virtual_hosts import SUBNET, VirtualHosts


def on_one_host(size: int) -> list[str]:
    total = size * (size + 1) // 2
    return [f"{rank} {size} {rank} {size} 0 1 {total}" for rank in range(size)]


@pytest.mark.parametrize("words", [OPEN_MPI, ["mpirun.mpich"], ["torchrun", "--no-python", "--standalone"]])
def test_on_one_host(starter: Starter, words: list[str]) -> None:
    count = "--nproc-per-node" if words[0] == "torchrun" else "-np"
    result = starter.run(*words, count, "3", *starter.program)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == on_one_host(3), result.stderr
    left = starter.home / ".horovod"
    assert not left.exists() or not list(left.iterdir()), "the secret is removed"


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    lines = []
    for process in processes:
        out, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, err
        lines += out.splitlines()
    return lines


VARIABLES: dict[str, dict[str, Any]] = {
    "by hand": {"HOROVOD_RANK": "{}", "HOROVOD_SIZE": "2", "HOROVOD_RENDEZVOUS": "a:29600"},
    "indexed Job": {"JOB_COMPLETION_INDEX": "{}", "HOROVOD_SIZE": "2", "HOROVOD_RENDEZVOUS": "a:29600"},
    "torch": {"RANK": "{}", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29600"},
}


@pytest.mark.parametrize("kind", VARIABLES)
def test_one_command_on_each_host(starter: Starter, hosts: VirtualHosts, kind: str) -> None:
    """Ranks come in any order; the secret is in a file."""
    given = VARIABLES[kind] | starter.secret_file()
    processes = [
        starter.start(hosts.enter(name), **{key: text.format(rank) for key, text in given.items()})
        for rank, name in ((1, "b"), (0, "a"))
    ]
    assert sorted(finish(processes)) == ["0 2 0 1 0 2 3", "1 2 0 1 1 2 3"]


def test_jsrun_by_a_stand_in(starter: Starter, hosts: VirtualHosts) -> None:
    """Its variables, on hosts with a home folder in common; ranks of a host are not side by side."""
    processes = []
    for rank, name in ((2, "b"), (0, "b"), (1, "a")):
        given = {"JSM_NAMESPACE_RANK": str(rank), "JSM_NAMESPACE_SIZE": "3", "LSB_JOBID": "17"}
        given["JSM_NAMESPACE_LOCAL_SIZE"] = "2" if name == "b" else "1"
        processes.append(starter.start(hosts.enter(name), **given))
    assert sorted(finish(processes)) == ["0 3 0 2 0 2 6", "1 3 0 1 1 2 6", "2 3 1 2 0 1 6"]


@pytest.mark.parametrize("words", [OPEN_MPI, ["mpirun.mpich"]])
def test_mpirun_on_two_hosts(starter: Starter, hosts: VirtualHosts, words: list[str]) -> None:
    """By node: the ranks of a host are not side by side."""
    if not shutil.which(words[0]):
        pytest.skip(f"there is no {words[0]}")
    hosts.know_hosts("host_key")
    if words is OPEN_MPI:
        where = ["-H", "a:2,b:1", "--map-by", "node", "-x", "HOME", "-x", "PATH"]
    else:
        where = ["-hosts", "a,b", "-ppn", "1", "-genvall"]
    process = starter.start(hosts.enter("a", starter.folder), *words, *where, "-np", "3", *starter.program)
    assert sorted(finish([process])) == ["0 3 0 2 0 2 6", "1 3 0 1 1 2 6", "2 3 1 2 0 1 6"]


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_horovodrun_mpi_on_two_hosts(starter: Starter, hosts: VirtualHosts, kind: str) -> None:
    mpirun = shutil.which(f"mpirun.{kind}")
    if not mpirun:
        pytest.skip(f"there is no mpirun.{kind}")
    hosts.know_hosts("host_key")
    named = starter.folder / "mpirun"
    named.write_text(f'#!/bin/sh\nexec {mpirun} "$@"\n')
    named.chmod(0o755)
    path = os.pathsep.join([str(starter.folder), starter.environment()["PATH"]])
    words = [*hosts.enter("a", starter.folder), starter.launcher.program, "--mpi", "-H", "a:2,b:1"]
    lines = finish([starter.start(words, PATH=path)])
    places = [" ".join(line.replace(":", " ").split()[-7:]) for line in lines]
    assert sorted(places) == ["0 3 0 2 0 2 6", "1 3 1 2 0 1 6", "2 3 0 1 1 2 6"], lines


CYCLIC = ["0 5 0 2 0 3 15", "1 5 0 2 1 3 15", "2 5 0 1 2 3 15", "3 5 1 2 0 2 15", "4 5 1 2 1 2 15"]


@pytest.mark.parametrize("how", ["home", "munge", "secret", "pmi2"])
def test_srun(starter: Starter, slurm: Slurm, how: str) -> None:
    """On three hosts, dealt out in turn; by home folder, by MUNGE or a secret at the first node, by PMI."""
    words = ["srun", "-N3", "-n5", "-m", "cyclic", *(["--mpi=pmi2"] if how == "pmi2" else [])]
    given = starter.secret_file() if how == "secret" else {}
    if how != "home":
        given["HOME"] = "/proc"  # where no folder can be made
    process = starter.start(slurm.enter(starter.folder), *words, *starter.program, **given)
    assert sorted(finish([process])) == CYCLIC


def test_only_this_user_reads_the_credential(starter: Starter, slurm: Slurm, hosts: VirtualHosts) -> None:
    given = {"WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29600", "HOME": "/proc"}
    zero = starter.start(hosts.enter("a"), RANK="0", **given)
    credential = starter.folder / "credential"
    take = f"cat </dev/tcp/a/29601 >{credential} 2>/dev/null"
    assert wait_until(lambda: hosts.inside("b", "bash", "-c", take) == 0)
    credential.chmod(0o644)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    decode = [*hosts.enter("b"), *as_nobody, "unmunge"]
    refused = subprocess.run(
        decode, stdin=credential.open(), capture_output=True, text=True, timeout=DEADLINE
    )
    assert "Unauthorized credential" in refused.stdout + refused.stderr
    one = starter.start(hosts.enter("b"), RANK="1", **given)
    assert sorted(finish([zero, one])) == ["0 2 0 1 0 2 3", "1 2 0 1 1 2 3"]


def test_a_credential_beside_an_address_that_swallows_packets(
    starter: Starter, slurm: Slurm, hosts: VirtualHosts
) -> None:
    """Of rank 0's addresses the first, as host b sorts them, leads nowhere. On its own host its name means
    loopback, as Debian has it, which is none of the interfaces that are allowed."""
    given = {"WORLD_SIZE": "3", "MASTER_ADDR": "head", "MASTER_PORT": "29600", "HOME": "/proc"}
    given["HOROVOD_NETWORK_INTERFACE"] = f"{SUBNET}.0/24"
    for name, text in {"a": "127.0.1.1 head\n", "b": f"{SUBNET}.3 head\n{SUBNET}.1 head\n"}.items():
        hosts.write(f"hosts.{name}", text)
        assert hosts.inside(name, "mount", "--bind", str(hosts.folder / f"hosts.{name}"), "/etc/hosts") == 0
    neighbour = ["ip", "neigh", "{}", f"{SUBNET}.3", "lladdr", "02:00:00:00:00:99", "dev", "eth0"]
    assert hosts.inside("b", *(word.format("replace") for word in neighbour)) == 0
    try:
        zero = starter.start(hosts.enter("a"), RANK="0", **given)
        up = f"</dev/tcp/{SUBNET}.1/29601"
        assert wait_until(lambda: hosts.inside("b", "bash", "-c", up) == 0)
        one, two = (
            starter.start(hosts.enter(name), RANK=rank, HOROVOD_START_TIMEOUT="20", **given)
            for name, rank in (("b", "1"), ("a", "2"))
        )
        assert sorted(finish([zero, one, two])) == ["0 3 0 2 0 2 6", "1 3 0 1 1 2 6", "2 3 1 2 0 1 6"]
    finally:
        assert hosts.inside("b", *(word.format("del") for word in neighbour)) == 0
        for name in "ab":
            assert hosts.inside(name, "umount", "/etc/hosts") == 0


SERVE = """
import select, socket, sys
listener = socket.create_server(("", 29601))
print("up", flush=True)
while listener in select.select([listener, sys.stdin], [], [])[0]:
    connection, _ = listener.accept()
    connection.sendall(b"MUNGE:" + b"A" * 5000 + b":")
    connection.close()
"""


def test_who_serves_no_credential(starter: Starter, slurm: Slurm, hosts: VirtualHosts) -> None:
    """Something else at that port: it is refused, and the rank says so when its time is over."""
    first, *rest = [*hosts.enter("a"), sys.executable, "-c", SERVE]
    other = starter.launcher.start(*rest, program=first, stdin=subprocess.PIPE)
    assert other.stdout and other.stdout.readline() == "up\n"
    given = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29600", "HOME": "/proc"}
    one = starter.start(hosts.enter("b"), HOROVOD_START_TIMEOUT="2", **given)
    _, err = one.communicate(timeout=DEADLINE)
    other.communicate("\n", timeout=DEADLINE)
    assert "nor by MUNGE: MUNGE refuses the credential: " in err, err[-900:]


def test_a_batch_script_is_no_rank(starter: Starter, slurm: Slurm) -> None:
    script = starter.folder / "job.sh"
    script.write_text(f"#!/bin/bash\n{' '.join(starter.program)} >result; mv result done\n")
    words = ["sbatch", "-N2", "-n4", str(script)]
    finish([starter.start(slurm.enter(starter.folder), *words)])
    done = starter.folder / "done"
    assert wait_until(done.exists), slurm.log()
    assert done.read_text() == "0 1 0 1 0 1 1\n"


def test_horovodrun_in_an_allocation(starter: Starter, slurm: Slurm) -> None:
    """The hosts are Slurm's, and so is the way to them: sshd on b and c would want another name."""
    words = ["salloc", "--quiet", "-N3", "-n5", starter.launcher.program]
    given = {"OMPI_MCA_plm_rsh_args": "-p 1", "SSH_CONNECTION": "10.9.9.9 1 10.9.9.8 22"}
    process = starter.start(slurm.enter(starter.folder), *words, *starter.program, **given)
    lines = [line.split(": ")[-1] for line in finish([process])]
    assert sorted(lines) == BLOCK
    process = starter.start(slurm.enter(starter.folder), *words, "-np", "6", "true")
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2
    assert "-np 6 asks for more ranks than Slurm job " in err
    assert " has slots (5); ask for a larger allocation, or name the hosts" in err


BLOCK = ["0 5 0 2 0 3 15", "1 5 1 2 0 2 15", "2 5 0 2 1 3 15", "3 5 1 2 1 2 15", "4 5 0 1 2 3 15"]


@pytest.mark.parametrize("victim", ["launcher", "hvd-job", "srun", "rank"])
def test_nothing_of_a_job_is_left_in_the_allocation(starter: Starter, slurm: Slurm, victim: str) -> None:
    """The allocation itself stays. Slurm does not always close the stdin of an agent whose srun was killed;
    the agent ends then after 30 s without a heartbeat, three times the limit. Nothing else needs that."""
    timeout = 10 if victim == "srun" else 0
    command = f"{starter.launcher.program} --grace-seconds 1 --timeout-seconds {timeout} -np 3 sleep 300"
    script = f"{command}; touch ended; exec sleep 301"
    words = ["salloc", "--quiet", "-N3", "-n3", "bash", "-c", script]
    process = starter.start(slurm.enter(starter.folder), *words)

    def running(words: str) -> list[int]:
        found = []
        for pid in starter.launcher.alive():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                found += [pid] if words in (name, line.strip()) else []
        return found

    assert wait_until(lambda: len(running("sleep 300")) == 3), slurm.log()
    name = {"launcher": command, "rank": "sleep 300"}.get(victim, victim)
    os.kill(running(name)[0], signal.SIGKILL)
    assert wait_until((starter.folder / "ended").exists, 60), slurm.log()
    assert wait_until(lambda: not running("sleep 300"), 60), "ranks are left"
    assert wait_until(lambda: bool(running("sleep 301")), 20)
    os.kill(running("sleep 301")[0], signal.SIGKILL)
    process.communicate(timeout=DEADLINE)


def test_without_a_starter(starter: Starter) -> None:
    result = starter.run(*starter.program, RANK="1", SLURM_PROCID="0", SLURM_NTASKS="2", SLURM_JOB_ID="1")
    assert (result.stdout, result.stderr) == ("0 1 0 1 0 1 1\n", "")


def test_which_starter_was_read(starter: Starter) -> None:
    result = starter.run(*OPEN_MPI, "-np", "1", *starter.program, HOROVOD_LOG_LEVEL="DEBUG")
    assert "rank 0 of 1, as Open MPI says" in result.stderr


def test_horovodrun_below_a_starter(starter: Starter) -> None:
    """The ranks are those of the inner job, with its secret."""
    words = [*OPEN_MPI, "-np", "1", starter.launcher.program, "-np", "2"]
    result = starter.run(*words, *starter.program, NO_COLOR="1")
    lines = [line.split(": ")[-1] for line in result.stdout.splitlines()]
    assert sorted(lines) == on_one_host(2), result.stderr


FAILS_FIRST = """
import os
home = os.environ["HOME"]
if os.environ["JSM_NAMESPACE_RANK"] == "0":
    import horovod as hvd
    os.environ["HOME"] = "/proc"  # where no folder can be made
    try:
        hvd.init()
    except Exception as error:
        assert "can't make the folder" in str(error), error
    else:
        raise AssertionError("init without a home folder")
    os.environ["HOME"] = home
"""


def test_init_again_after_it_has_failed(starter: Starter) -> None:
    """The ranks meet by the secret of the attempt that succeeds."""
    program = starter.launcher.python(FAILS_FIRST + MEET)
    given = {"JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_LOCAL_SIZE": "2", "LSB_JOBID": "18"}
    ranks = [starter.start([], *program, JSM_NAMESPACE_RANK=str(rank), **given) for rank in range(2)]
    assert sorted(finish(ranks)) == on_one_host(2)


MOVES = """
import os, pathlib
import horovod as hvd
def listened():
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return {int(line.split()[1][-4:], 16) for line in lines if line.split()[3] == "0A"}
for port, secret in ((29611, "one"), (29612, "two")):
    os.environ["HOROVOD_RENDEZVOUS"] = f"127.0.0.1:{port}"
    os.environ["HOROVOD_SECRET"] = secret
    hvd.init()
    assert listened() & {29611, 29612} == {port}, listened()
    hvd.barrier()
    hvd.shutdown()
print("OK")
"""


def test_a_later_life_elsewhere(starter: Starter) -> None:
    """Each is where its own variables say, and nothing stays where the earlier one was."""
    program = starter.launcher.python(MOVES)
    ranks = [
        starter.start([], *program, HOROVOD_RANK=str(rank), HOROVOD_SIZE="2", HOROVOD_START_TIMEOUT="60")
        for rank in range(2)
    ]
    assert finish(ranks) == ["OK", "OK"]


@pytest.mark.parametrize("address", ["127.0.1.1:29613", "[::1]:29614", "localhost:29615"])
def test_a_loopback_address(starter: Starter, address: str) -> None:
    given = {"SIZE": "2", "RENDEZVOUS": address, "SECRET": "secret", "START_TIMEOUT": "60"}
    variables = {f"HOROVOD_{name}": text for name, text in given.items()}
    ranks = [starter.start([], HOROVOD_RANK=str(rank), **variables) for rank in range(2)]
    assert sorted(finish(ranks)) == on_one_host(2)


PORTS = """
import pathlib, sys
import horovod as hvd
def listened():
    lines = [line for name in ("tcp", "tcp6") for line in pathlib.Path("/proc/net", name).open()]
    return {int(line.split()[1].split(":")[1], 16) for line in lines if " 0A " in line}
before = listened()
hvd.init()
ports = sorted(listened() - before)
hvd.barrier()
sys.stdout.write(f"{hvd.rank()} {ports}\\n")
"""


def test_ports(starter: Starter, hosts: VirtualHosts) -> None:
    """What all ranks derive from MASTER_PORT is among them, too."""
    given = VARIABLES["torch"] | starter.secret_file() | {"HOROVOD_PORTS": "21500-21502"}
    program = starter.launcher.python(PORTS)
    processes = [
        starter.start(hosts.enter(name), *program, **{key: text.format(rank) for key, text in given.items()})
        for rank, name in ((1, "b"), (0, "a"))
    ]
    assert sorted(finish(processes)) == ["0 [21500, 21501]", "1 [21500]"]


FAULTS = [
    (
        {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"},
        "rank 0 of 2 (HOROVOD_ variables) has no rendezvous; start the job with horovodrun, or set "
        "HOROVOD_RENDEZVOUS=host:port",
    ),
    (
        {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_RENDEZVOUS": "localhost:29600"},
        "a job of several ranks needs a secret",
    ),
    (
        {
            "HOROVOD_RANK": "0",
            "HOROVOD_SIZE": "2",
            "HOROVOD_RENDEZVOUS": "localhost:0",
            "HOROVOD_SECRET": "x",
        },
        "the rendezvous at localhost:0: '0' is no port; it must be a whole number from 1 to 65535",
    ),
    (
        {
            "RANK": "1",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "a",
            "MASTER_PORT": "1",
            "HOROVOD_START_TIMEOUT": "1",
        },
        "rank 1 of 2 (torchrun) has not met rank 0 within the time to start",
    ),
    (
        {"JOB_COMPLETION_INDEX": "1", "HOROVOD_SIZE": "2"},
        "rank 1 of 2 (a Kubernetes Job) has no rendezvous; ",
    ),
    *(
        (
            {"JSM_NAMESPACE_RANK": rank, "JSM_NAMESPACE_SIZE": "2", "LSB_JOBID": "19", "HOME": "/proc"},
            "set on all ranks HOROVOD_SECRET_FILE and HOROVOD_RENDEZVOUS=host:port, with rank 0's host",
        )
        for rank in "01"
    ),
    ({"PMI_RANK": "2", "PMI_SIZE": "2", "PMI_FD": "9"}, "rank 2 is outside a job of size 2 (PMI_RANK"),
]


@pytest.mark.parametrize(("given", "words"), FAULTS)
def test_what_is_missing_is_said(starter: Starter, given: dict[str, str], words: str) -> None:
    result = starter.run(*starter.program, **given)
    assert result.returncode == 1
    assert words in result.stderr.splitlines()[-1]


def test_an_empty_file_of_the_secret(starter: Starter) -> None:
    given = starter.secret_file()
    (starter.folder / "secret").write_text("\n")
    result = starter.run(*starter.program, **VARIABLES["by hand"] | given | {"HOROVOD_RANK": "0"})
    assert result.returncode == 1
    assert "secret: its first line is empty; it must hold the secret" in result.stderr.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_secret_of_another_user(starter: Starter) -> None:
    given = starter.secret_file()
    os.chown(given["HOROVOD_SECRET_FILE"], 65534, -1)
    result = starter.run(*starter.program, **VARIABLES["by hand"] | given | {"HOROVOD_RANK": "0"})
    assert result.returncode == 1
    assert "secret belongs to user 65534; it must belong to you or to root" in result.stderr


def test_a_port_that_is_taken(starter: Starter, hosts: VirtualHosts) -> None:
    given = VARIABLES["by hand"] | starter.secret_file() | {"HOROVOD_RANK": "0"}
    take = "import socket; s = socket.create_server(('', 29600)); print('up', flush=True); input()"
    first, *rest = [*hosts.enter("c"), sys.executable, "-c", take]
    other = starter.launcher.start(*rest, program=first, stdin=subprocess.PIPE)
    assert other.stdout and other.stdout.readline() == "up\n"
    process = starter.start(hosts.enter("c"), **given)
    _, err = process.communicate(timeout=DEADLINE)
    other.communicate("\n", timeout=DEADLINE)
    assert "rank 0 serves the rendezvous at a:29600, but port 29600 is in use on host c; set" in err


def test_a_file_that_an_earlier_job_has_left(starter: Starter) -> None:
    """It names another secret and address, until rank 0 writes its own."""
    folder = starter.home / ".horovod"
    folder.mkdir(mode=0o700)
    stale = folder / "jsrun-17--"
    stale.write_text("0" * 64 + ",127.0.0.1:1")
    stale.chmod(0o600)
    given = {"JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_LOCAL_SIZE": "2", "LSB_JOBID": "17"}
    one = starter.start([], JSM_NAMESPACE_RANK="1", **given)
    zero = starter.start([], JSM_NAMESPACE_RANK="0", **given)
    assert sorted(finish([one, zero])) == on_one_host(2)


def test_a_folder_that_others_may_write(starter: Starter) -> None:
    (starter.home / ".horovod").mkdir()
    (starter.home / ".horovod").chmod(0o777)
    result = starter.run(*starter.program, JSM_NAMESPACE_RANK="0", JSM_NAMESPACE_SIZE="2", LSB_JOBID="3")
    assert "can be written by others; it must be yours: chmod 700 " in result.stderr
