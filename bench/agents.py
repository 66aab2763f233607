"""Measures the start of a job on many hosts.

    python bench/agents.py [--agents 100,300,1000] [--ranks 8] [--hosts 8]     needs horovodrun in PATH

As root it first starts hosts, which are network namespaces with sshd, with ranks of build/examples/c/pi on
each by ssh, until their only allreduce is done. Then it starts that many agents, with one rank of `true`
each, by a stand-in for ssh that runs the agent here. It prints the time of the launcher from start to end,
its seconds of a core, and the largest amounts of memory and descriptors that it holds at once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import virtual_hosts  # noqa: E402

DEADLINE = 300.0
PROGRAM = ROOT / "build" / "examples" / "c" / "pi"
STAND_IN = """#!/bin/sh
# As ssh: a host, then a command for its shell.
export HOROVOD_HOST_ID=$1
shift
exec sh -c "$*"
"""


@dataclass
class Look:
    """What a process has used so far: MiB at most, descriptors now, seconds of a core."""

    memory: float = 0.0
    descriptors: int = 0
    processor: float = 0.0

    def add(self, pid: int) -> None:
        """Keeps the larger values."""
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
            self.descriptors = max(self.descriptors, len(os.listdir(f"/proc/{pid}/fd")))
        except OSError:
            return
        memory = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
        self.memory = max(self.memory, *(each / 1024 for each in memory), 0.0)
        self.processor = max(self.processor, ticks / os.sysconf("SC_CLK_TCK"))


def launcher_of(pid: int) -> int:
    """The first process only guards the second one, which does the work."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    except (OSError, IndexError):
        return pid


def run(words: list[str], deeper: int = 0) -> str:
    """Runs a launcher, which other programs may start; its row."""
    start = time.monotonic()
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    most = Look()
    try:
        while process.poll() is None and time.monotonic() < start + DEADLINE:
            pid = process.pid
            for _ in range(1 + deeper):
                pid = launcher_of(pid)
            most.add(pid)
            time.sleep(0.01)
    finally:
        process.kill()
    seconds = time.monotonic() - start
    code = process.wait()
    return (
        f"{seconds:8.2f} s; launcher {most.processor:6.2f} s of a core, {most.memory:6.1f} MiB, "
        f"{most.descriptors} descriptors; exit code {code}"
    )


def main() -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", default="100,300,1000")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=8)
    args = parser.parse_args()
    horovodrun = shutil.which("horovodrun")
    assert horovodrun, "horovodrun is not in PATH"
    if args.hosts:
        try:
            hosts = virtual_hosts.make([f"h{i}" for i in range(1, 1 + args.hosts)])
        except virtual_hosts.UnavailableError as reason:
            print(f"hosts: left out: {reason}", flush=True)
        else:
            try:
                layout = ",".join(f"{name}:{args.ranks}" for name in hosts.names)
                words = [*hosts.enter(hosts.names[0], ROOT), horovodrun, "-H", layout, str(PROGRAM)]
                print(
                    f"{args.hosts} hosts, {args.ranks} ranks each, by ssh: {run(words, deeper=1)}", flush=True
                )
            finally:
                hosts.end()
                shutil.rmtree(hosts.folder)
    with tempfile.TemporaryDirectory() as folder:
        stand_in = Path(folder) / "stand-in"
        stand_in.write_text(STAND_IN)
        stand_in.chmod(0o755)
        for count in map(int, filter(None, args.agents.split(","))):
            hostfile = Path(folder) / "hosts"
            hostfile.write_text("".join(f"n{i:04} slots=1\n" for i in range(count)))
            words = [horovodrun, "--rsh-agent", str(stand_in), "--hostfile", str(hostfile), "true"]
            print(f"{count:5d} agents: {run(words)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
