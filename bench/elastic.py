"""Measures elastic jobs: how soon they go on after a loss, and what newcomers and commits cost the others.

    python bench/elastic.py [--only local,hosts,state,commits] [--rounds 30]

local: a process is killed; until all survivors have ended the next step, also by `torchrun`, which starts
all again, and by torchft if it is installed; the same job grows again, and each newcomer makes the survivors
pause for so long. hosts: the same on 4 hosts (network namespaces, as root) with 1 Gbit/s, with a killed rank,
a crashed host and a crashed host of rank 0. state: 500 MB go to newcomers from one and from three hosts.
commits: 200 MB of state, two ranks. Needs horovodrun in PATH; medians, and the longest in parentheses.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "bench" / "elastic_worker.py"
sys.path.insert(0, str(ROOT / "tools"))
import virtual_hosts  # noqa: E402
from virtual_hosts import VirtualHosts  # noqa: E402

DEADLINE = 120.0
# A store for each attempt. By default all attempts share that of the agent, and processes that were started
# again connect to the addresses of those before them, which are still in it (PyTorch's issue 135712).
TORCHRUN = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
SETTLED = 20  # steps of a whole job before the next fault
GIGABIT = 1e9 / 8 * 1448 / 1538  # bytes a second that TCP carries, of frames of 1500 bytes
ALWAYS = ("--failed-slot", "restart:1000000")


@dataclass(frozen=True)
class Step:
    """The end of a step on one rank, in seconds of the monotonic clock."""

    time: float
    number: int
    size: int


class Job:
    """A job of elastic_worker.py, as the files of its ranks show it."""

    def __init__(self, words: Sequence[str], peer: str, *more: str, inside: Sequence[str] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-elastic-"))
        self.errors = (self.folder / "errors.txt").open("w+")
        worker = [str(WORKER), peer, str(self.folder), *more]
        python = [] if "torchrun" in words[0] else [sys.executable]
        self.process = subprocess.Popen(
            [*inside, *words, *python, *worker], stdin=subprocess.DEVNULL, stdout=self.errors,
            stderr=self.errors, env=os.environ | TORCHRUN | {"OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip

    def steps(self) -> dict[str, list[Step]]:
        """Of each process that has ended a step, in order."""
        found = {}
        for path in self.folder.glob("*-*"):
            lines = [line.split() for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"]
            if lines:
                found[path.name] = [Step(float(t), int(n), int(size)) for t, n, size, _ in lines]
        return found

    def wait_for(self, what: Callable[[dict[str, list[Step]]], bool]) -> dict[str, list[Step]]:
        """The steps, once they are as they should be."""
        end = time.monotonic() + DEADLINE
        while not what(steps := self.steps()):
            if time.monotonic() > end or self.process.poll() is not None:
                self.errors.seek(0)
                raise RuntimeError(f"the job did not come so far:\n{self.errors.read()[-3000:]}")
            time.sleep(0.02)
        return steps

    def settle(self, size: int, after: float = 0) -> dict[str, list[Step]]:
        """Those of the processes of a whole job that has done some steps since then, with that size."""
        members: dict[str, list[Step]] = {}

        def whole(steps: dict[str, list[Step]]) -> bool:
            members.clear()
            for name, own in steps.items():
                if (
                    len([step for step in own[-SETTLED:] if step.size == size and step.time > after])
                    >= SETTLED
                ):
                    members[name] = own
            return len(members) == size

        self.wait_for(whole)
        return members

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(DEADLINE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def running(words: Sequence[str], peer: str, *more: str, inside: Sequence[str] = ()) -> Iterator[Job]:
    job = Job(words, peer, *more, inside=inside)
    try:
        yield job
    finally:
        job.end()


def first_step(steps: list[Step], after: float, size: int) -> float | None:
    """When it ended its first step of that size since then."""
    return next((step.time for step in steps if step.time > after and step.size == size), None)


def milliseconds(values: Sequence[float]) -> str:
    """Their median, and the largest."""
    return f"{1e3 * statistics.median(values):,.0f} ({1e3 * max(values):,.0f})" if values else "-"


def report(text: str, *figures: str) -> None:
    print(" | ".join(["", f"{text:<62}", *figures, ""]).strip(), flush=True)


# ---- faults ------------------------------------------------------------------------------------------------


def pauses_of(survivors: dict[str, list[Step]], begin: float, size: int) -> list[float]:
    """How long each waited between its last step of a smaller job and its first of that size."""
    pauses = []
    for steps in survivors.values():
        found = first_step(steps, begin, size)
        before = [step.time for step in steps if found and step.time < found]
        if found and before:
            pauses.append(found - before[-1])
    return pauses


def lose_and_grow(
    job: Job, size: int, rounds: int, fault: Callable[[str], None]
) -> tuple[list[float], list[float]]:
    """Each round kills one process and waits until a new one has joined.

    Returns seconds until the survivors have gone on, and for which the newcomer made them pause.
    """
    losses, growths, since = [], [], 0.0
    for turn in range(rounds):
        members = job.settle(size, since)
        victim = sorted(members)[turn % size]
        names = members.keys() - {victim}
        begin = time.monotonic()
        fault(victim)

        def went_on(steps: dict[str, list[Step]], begin: float = begin, names: set[str] = names) -> bool:
            return all(first_step(steps[name], begin, size - 1) for name in names)

        steps = job.wait_for(went_on)
        moments = [first_step(steps[name], begin, size - 1) or 0 for name in names]
        losses.append(max(moments) - begin)
        since = max(moments)
        grown = job.settle(size, since)
        assert names <= grown.keys(), "a survivor was started again"
        growths.append(max(pauses_of({name: grown[name] for name in names}, since, size)))
    return losses, growths


def start_again(job: Job, size: int, rounds: int) -> list[float]:
    """As lose_and_grow, where all processes are started again."""
    times = []
    since = 0.0
    for turn in range(rounds):
        members = job.settle(size, since)
        old = job.steps().keys()
        begin = time.monotonic()
        kill(sorted(members)[turn % size])
        steps = job.wait_for(lambda steps, old=old: len(steps.keys() - old) >= size)  # type: ignore[misc]
        since = max(steps[name][0].time for name in steps.keys() - old)
        times.append(since - begin)
    return times


def kill(name: str) -> None:
    os.kill(int(name.rsplit("-", 1)[1]), signal.SIGKILL)


def drain(name: str) -> None:
    os.kill(int(name.rsplit("-", 1)[1]), signal.SIGTERM)


def drained(words: Sequence[str], size: int) -> float:
    """The others' pause when a rank is asked to leave. None of them does a step twice."""
    with running(words, "torch") as job:
        members = job.settle(size)
        names = members.keys() - {victim := min(members)}
        begin = time.monotonic()
        drain(victim)
        steps = job.wait_for(lambda steps: all(first_step(steps[name], begin, size - 1) for name in names))
    for name in names:
        numbers = [step.number for step in steps[name]]
        assert numbers == sorted(set(numbers)), "a step was repeated"
    return max(pauses_of({name: steps[name] for name in names}, begin, size - 1))


def measure_local(args: argparse.Namespace) -> None:
    for peer, size, text in (("numpy", 8, "NumPy, 4 MiB, 8 ranks"), ("torch", 4, "PyTorch, 4 ranks")):
        words = ["horovodrun", "-np", str(size), "--min-np", "1", *ALWAYS]
        with running(words, peer) as job:
            losses, growths = lose_and_grow(job, size, args.rounds, kill)
        report(f"{text}: killed rank, next step of all survivors, ms", milliseconds(losses))
        report(f"{text}: newcomer, pause of the survivors, ms", milliseconds(growths))
    words = ["torchrun", "--standalone", "--nproc-per-node", "4", "--max-restarts", "1000000"]
    with running(words, "ddp") as job:
        again = start_again(job, 4, max(args.rounds // 3, 1))
    report("torchrun, DDP, 4 ranks: killed rank, next step of all, ms", milliseconds(again))
    measure_torchft(max(args.rounds // 3, 1))
    pauses = [
        drained(["horovodrun", "-np", "4", "--min-np", "1"], 4) for _ in range(max(args.rounds // 5, 1))
    ]
    report("PyTorch, 4 ranks: drained rank, pause of the others, ms", milliseconds(pauses))


# Starts its server and four processes, each again some time after it has ended, so that the others go on
# without it. The limits are shorter than the server's own, 5 and 60 s.
REPLICAS = """
export TORCHFT_LIGHTHOUSE=http://127.0.0.1:$0
torchft_lighthouse --bind 127.0.0.1:$0 --min_replicas 1 --heartbeat_timeout_ms 1000 --join_timeout_ms 1000 &
for replica in 1 2 3 4; do
    while :; do "$@"; sleep 8; done &
done
wait
"""


def measure_torchft(rounds: int) -> None:
    text = "torchft, 4 ranks: killed rank, next step of all survivors, ms"
    if not importlib.util.find_spec("torchft"):
        report(text, "not installed")
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running(["sh", "-c", REPLICAS, str(port)], "torchft") as job:
        losses, growths = lose_and_grow(job, 4, rounds, kill)
    report(text, milliseconds(losses))
    report("torchft, 4 ranks: newcomer, pause of the survivors, ms", milliseconds(growths))


# ---- hosts -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def shaped_hosts(names: Sequence[str]) -> Iterator[VirtualHosts]:
    hosts = virtual_hosts.make(names)
    try:
        hosts.limit("1gbit")
        hosts.control("cubic")
        yield hosts
    finally:
        hosts.end()


def processes_of(hosts: VirtualHosts, host: str, pattern: str) -> list[int]:
    """As this machine numbers them: those of a host whose command line has these words."""
    space = os.readlink(f"/proc/{hosts.processes[host].pid}/ns/net")
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if os.readlink(folder / "ns" / "net") == space and re.search(pattern, words):
                found.append(int(folder.name))
    return found


def kill_on(hosts: VirtualHosts, name: str) -> None:
    """The worker with that log: hosts have numbers of their own for their processes."""
    host, inner = name.rsplit("-", 1)
    for process in processes_of(hosts, host, WORKER.name):
        numbers = Path(f"/proc/{process}/status").read_text().split("NSpid:")[1].split("\n")[0].split()
        if numbers[-1] == inner:
            os.kill(process, signal.SIGKILL)


def crash(hosts: VirtualHosts, host: str) -> None:
    """Its connections do not end: the others must find out by themselves."""
    hosts.run(host, "ip link set eth0 down")
    for process in processes_of(hosts, host, f"{WORKER.name}|--agent"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def crash_once(hosts: VirtualHosts, victim: str) -> float:
    """Seconds until the ranks of the other three hosts have gone on."""
    words = ["horovodrun", "-np", "4", "--min-np", "1", "-H", "b:1,c:1,d:1,e:1", "--timeout-seconds", "3"]
    with running(words, "torch", inside=hosts.enter("a", ROOT)) as job:
        members = job.settle(4)
        names = {name for name in members if not name.startswith(f"{victim}-")}
        begin = time.monotonic()
        crash(hosts, victim)
        steps = job.wait_for(lambda steps: all(first_step(steps[name], begin, 3) for name in names))
    hosts.run(victim, "ip link set eth0 up")
    return max(first_step(steps[name], begin, 3) or 0 for name in names) - begin


def measure_hosts(args: argparse.Namespace) -> None:
    rounds = max(args.rounds // 3, 1)
    with shaped_hosts(["a", "b", "c", "d", "e"]) as hosts:
        words = ["horovodrun", "-np", "4", "--min-np", "1", "-H", "b:1,c:1,d:1,e:1", *ALWAYS]
        with running(words, "torch", inside=hosts.enter("a", ROOT)) as job:
            losses, growths = lose_and_grow(job, 4, rounds, lambda name: kill_on(hosts, name))
        report("PyTorch, 4 hosts: killed rank, next step, ms", milliseconds(losses))
        report("PyTorch, 4 hosts: newcomer, pause of the survivors, ms", milliseconds(growths))
        for victim, text in (("e", "crashed host"), ("b", "crashed host of rank 0")):
            times = [crash_once(hosts, victim) for _ in range(max(rounds // 2, 1))]
            report(f"PyTorch, 4 hosts, limit 3 s: {text}, next step, ms", milliseconds(times))


# ---- state -------------------------------------------------------------------------------------------------


def received(hosts: VirtualHosts, host: str) -> int:
    """Bytes that a host has received so far."""
    pid = hosts.processes[host].pid
    table = Path(f"/proc/{pid}/net/dev").read_text()
    return int(table.split("eth0:")[1].split()[0])


def transfer(
    hosts: VirtualHosts, old: Sequence[str], new: Sequence[str], megabytes: float
) -> tuple[float, float]:
    """Newcomers on hosts that are added: the survivors' pause, and the share of a newcomer's wire in it."""
    listing = Path(tempfile.mkdtemp(prefix="bench-elastic-")) / "hosts"
    script = listing.with_name("discover")
    script.write_text(f"#!/bin/sh\ncat {listing}\n")
    script.chmod(0o755)
    listing.write_text("".join(f"{host}:1\n" for host in old))
    words = ["horovodrun", "-np", str(len(old)), "--min-np", "1", "--max-np", str(len(old) + len(new))]
    words += ["--host-discovery-script", str(script)]
    more = ("--state", str(megabytes), "--commits", "50")
    with running(words, "torch", *more, inside=hosts.enter("a", ROOT)) as job:
        job.settle(len(old))
        listing.write_text("".join(f"{host}:1\n" for host in (*old, *new)))
        members = job.settle(len(old) + len(new))
        pauses = pauses_of({name: own for name, own in members.items() if name[0] in old}, 0, len(members))
    shutil.rmtree(listing.parent)
    return max(pauses), megabytes * 1e6 / max(pauses) / GIGABIT


def measure_state(args: argparse.Namespace) -> None:
    with shaped_hosts(["a", "b", "c", "d", "e", "f"]) as hosts:
        for old, new in (("b", "c"), ("bcd", "e"), ("bcd", "ef")):
            found = [transfer(hosts, [*old], [*new], 500) for _ in range(max(args.rounds // 10, 1))]
            pause, share = (statistics.median(column) for column in zip(*found, strict=True))
            report(
                f"500 MB to {len(new)} newcomer(s) from {len(old)} host(s): pause, ms; share of the wire",
                f"{1e3 * pause:,.0f}", f"{share:.2f}",
            )  # fmt: skip


def measure_commits(args: argparse.Namespace) -> None:
    names = ("step", "step with a commit", "commit", "longest commit", "look for changes, µs", "memory, MB")
    words = ["horovodrun", "-np", "2", "--min-np", "1"]
    with running(words, "commit", "--state", "200", "--rounds", str(args.rounds)) as job:
        job.process.wait(DEADLINE)
        job.errors.seek(0)
        output = job.errors.read()
    found = re.search(r"FIGURES (.*)", output)
    if not found:
        raise RuntimeError(output[-3000:])
    for name, value in zip(names, map(float, found[1].split()), strict=True):
        report(f"200 MB of state, 2 ranks: {name}", f"{value:,.2f}")


PARTS = {"local": measure_local, "hosts": measure_hosts, "state": measure_state, "commits": measure_commits}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS), help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=30, help="of the short ones (default 30)")
    args = parser.parse_args()
    for name in args.only.split(","):
        PARTS[name](args)


if __name__ == "__main__":
    main()
