"""Measures how long after a fault the others raise an error, and collects the texts; needs horovodrun.

    python bench/faults.py [rounds]     4 ranks of this host, one killed: the slowest survivor of each round
    python bench/faults.py hosts        as root: 4 hosts (network namespaces) with 2 ranks each

The ranks reduce forever, between hosts 64 MiB. Meanwhile one is killed or stopped, or its host loses its
cable, or crashes, which is both: its connections do not end. HOROVOD_TIMEOUT_SECONDS is 4 between hosts.
Finally one of the job's own processes is killed: the launcher's, a connection's, an agent's.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import virtual_hosts  # noqa: E402

WORKER = ROOT / "test" / "launch" / "fault_worker.py"
WORKER_OF_HOSTS = ROOT / "test" / "launch" / "cause_worker.py"
RANKS = 8
OWN_PROCESSES = (
    ("horovodrun", "launcher", "horovodrun"),
    ("its child", "launcher", "hvd-job"),
    ("a connection's ssh", "launcher", "ssh"),
    ("an agent", "b", "horovodrun"),
    ("its child", "b", "hvd-job"),
)
DEADLINE = 100.0


def slowest_survivor(transport: str, victim: int) -> float:
    """Milliseconds from the death to the last exception."""
    command = ["horovodrun", "-np", "4", sys.executable, str(WORKER), "SIGKILL", str(victim)]
    environment = os.environ | {"HOROVOD_TRANSPORT": transport}
    output = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, check=False
    ).stdout
    (died,) = re.findall(r"VICTIM ([\d.]+)", output)
    raised = re.findall(rf"RAISED ([\d.]+) .*\brank {victim}\b", output)
    assert len(raised) == 3, output
    return (max(map(float, raised)) - float(died)) * 1e3


def on_one_host(rounds: int) -> None:
    print("transport  victim  median ms  slowest ms")
    for transport in ("shm", "tcp"):
        for victim in (0, 1, 3):
            times = [slowest_survivor(transport, victim) for _ in range(rounds)]
            print(f"{transport:9}  {victim:6}  {statistics.median(times):9.1f}  {max(times):10.1f}")


def kill(folder: Path, ranks: Iterable[int]) -> None:
    """These ranks of the job that runs in the folder."""
    marks = {f"HOROVOD_RANK={rank}".encode() for rank in ranks}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (process / "environ").read_bytes().split(b"\0")
            if (process / "cwd").readlink() == folder and marks.intersection(environment):
                os.kill(int(process.name), 9)


@contextlib.contextmanager
def job(hosts: virtual_hosts.VirtualHosts, victim: int, own: str) -> Iterator[Path]:
    """Its folder, once all ranks are under way; afterwards it has ended, and its output is there."""
    folder = Path(tempfile.mkdtemp(prefix="faults-")).resolve()
    horovodrun = shutil.which("horovodrun")
    assert horovodrun, "horovodrun is not in PATH"
    layout = ",".join(f"{name}:2" for name in hosts.names[1:])
    words = [*hosts.enter(hosts.names[0], folder), horovodrun, "--timeout-seconds", "20", "-H", layout]
    words += ["env", "HOROVOD_TIMEOUT_SECONDS=4", sys.executable, str(WORKER_OF_HOSTS), str(victim), own]
    words += [f"{random.uniform(0, 200):.0f}", "raise"]
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        busy = virtual_hosts.wait_until(lambda: len(list(folder.glob("*.busy"))) == RANKS)
        assert busy, (folder / "output").read_text()
        if own == "nothing":
            time.sleep(random.uniform(0, 0.2))
        yield folder
    finally:
        kill(folder, range(RANKS))
        process.wait(DEADLINE)
        shutil.rmtree(folder)


def until_errors(hosts: virtual_hosts.VirtualHosts, fault: str, victim: int) -> str:
    """When the first and the last survivor get an error, and the texts."""
    host = victim // 2
    own = fault if fault.startswith("SIG") else "nothing"
    lost = range(host * 2, host * 2 + 2) if own == "nothing" else range(victim, victim + 1)
    port = f"ip link set p0-{hosts.names[1 + host]}"
    with job(hosts, victim, own) as folder:
        begin = folder / f"{victim}.fault"
        try:
            if own == "nothing":
                hosts.run("switch", f"{port} down")
                begin.write_text(repr(time.monotonic()))
                if fault == "crash":
                    kill(folder, lost)
            errors = [folder / f"{rank}.error" for rank in range(RANKS) if rank not in lost]
            assert virtual_hosts.wait_until(lambda: all(error.read_text() for error in errors), DEADLINE)
        finally:
            hosts.run("switch", f"{port} up")
        raised = [error.read_text().partition(" ") for error in errors]
        times = [float(when) - float(begin.read_text()) for when, _, _ in raised]
    return f"{min(times):7.3f} to {max(times):7.3f}  {' | '.join({text for *_, text in raised})}"


def processes(hosts: virtual_hosts.VirtualHosts, names: Sequence[str], program: str = "") -> list[int]:
    """All on these hosts, or those of a program."""
    spaces = [os.readlink(f"/proc/{hosts.processes[name].pid}/ns/net") for name in names]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "ns/net") in spaces:
                found += [int(process.name)] * (program in ("", (process / "comm").read_text().strip()))
    return sorted(found)


def until_nothing(hosts: virtual_hosts.VirtualHosts, name: str, program: str) -> str:
    """One of the job's own processes on a host is killed: how long until none is left on any of them."""
    before = processes(hosts, hosts.names)
    with job(hosts, 0, "nothing"):
        os.kill(processes(hosts, [name], program)[0], signal.SIGKILL)
        begin = time.monotonic()
        left = lambda: set(processes(hosts, hosts.names)) - set(before)  # noqa: E731
        assert virtual_hosts.wait_until(lambda: not left(), DEADLINE), left()
        return f"{time.monotonic() - begin:7.3f}"


def main() -> None:
    """Prints the table."""
    if sys.argv[1:] != ["hosts"]:
        on_one_host(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
        return
    hosts = virtual_hosts.make(("launcher", "a", "b", "c", "d"))
    try:
        print("fault    victim  s until the others raise; their texts")
        for fault in ("SIGKILL", "SIGSTOP", "cable", "crash"):
            for victim in (0, 2, 5):
                print(f"{fault:8} {victim:6}  {until_errors(hosts, fault, victim)}", flush=True)
        print("killed by SIGKILL           s until nothing is left on any host")
        for what, name, program in OWN_PROCESSES:
            print(f"{what:26}  {until_nothing(hosts, name, program)}", flush=True)
    finally:
        hosts.end()
        shutil.rmtree(hosts.folder)


if __name__ == "__main__":
    main()
