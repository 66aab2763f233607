"""A real Slurm cluster: its daemons on the virtual hosts, two processors each, the controller on host a."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from virtual_hosts import NAMES, VirtualHosts, wait_until

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "salloc", "sbatch")

CONFIGURATION = """
ClusterName=test
SlurmctldHost=a
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
InactiveLimit=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SwitchType=switch/none
PropagateResourceLimits=NONE
NodeName={names} CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=30 State=UP
"""


class Slurm:
    """A cluster on these hosts; `end` stops its daemons."""

    def __init__(self, hosts: VirtualHosts) -> None:
        for program in PROGRAMS:
            if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin"):
                pytest.skip(f"there is no {program}: install slurmd, slurmctld, slurm-client and munge")
        self.hosts = hosts
        self.folder = Path(tempfile.mkdtemp(prefix="horovod-slurm-"))
        self.folder.chmod(0o755)  # else munged refuses it
        for name in ("state", *(f"spool.{name}" for name in NAMES)):
            (self.folder / name).mkdir()
        text = CONFIGURATION.format(folder=self.folder, names=",".join(NAMES))
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        self.start()

    def start(self) -> None:
        for name in NAMES:
            # One daemon a host, at the socket where every library looks for it.
            self.call(name, "sh", "-c", "mkdir -p /run/munge && mount -t tmpfs -o mode=755 munge /run/munge")
            files = {"pid-file": "pid", "log-file": "log", "seed-file": "seed"}
            words = [f"--{option}={self.folder}/munged.{name}.{file}" for option, file in files.items()]
            self.call(name, "munged", "--force", f"--key-file={self.folder}/munge.key", *words)
        self.call("a", "slurmctld", "-c")
        for name in NAMES:
            self.call(name, "slurmd", "-N", name)
        assert wait_until(self.is_up, 60), self.log()

    def environment(self) -> list[str]:
        return ["env", f"SLURM_CONF={self.folder}/slurm.conf", f"PATH={os.environ['PATH']}:/usr/sbin"]

    def call(self, name: str, *words: str) -> str:
        line = [*self.hosts.enter(name), *self.environment(), *words]
        with (self.folder / "calls.log").open("ab") as errors:
            done = subprocess.run(
                line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=60
            )
        assert done.returncode == 0, self.log()
        return done.stdout

    def is_up(self) -> bool:
        states = self.call("a", "sinfo", "--noheader", "--Node", "--format=%t").split()
        return states == ["idle"] * len(NAMES)

    def log(self) -> str:
        return "".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("*.log")))

    def enter(self, folder: Path) -> list[str]:
        """The words that run what follows them on host a, as a user of the cluster."""
        return [*self.hosts.enter("a", folder), *self.environment()]

    def end(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
