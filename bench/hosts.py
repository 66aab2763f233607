"""Compares collectives between hosts with Gloo and with the least time and bytes that the network allows.

    python bench/hosts.py --docs docs                       all of it, about 12 minutes; renews the page
    python bench/hosts.py --runs "2x1@1gbit 1,3,2,2@100mbit" [--links 2] [--peers gloo,mpi] [--seconds 60]
    python bench/hosts.py --runs "2x1@1gbit 2x1@unshaped" --peers encrypted     compared with the same by TLS
    python bench/hosts.py --runs "2x1@1gbit" --hogs 2       beside that many busy programs
    python bench/hosts.py --runs "2x1@500us 4x2@500us" --table hosts-delay     with delayed frames

It needs root, sshd, iproute2, iperf3 and qperf: the hosts are network namespaces of this machine, with links
of this rate, ssh between them, and one bridge. Congestion control is Linux's default, whatever this machine's
is; `--congestion bbr` chooses another. A run is a layout, HOSTSxRANKS or the ranks of each host, at a rate,
or "unshaped". The bound of a time is that of the busiest link, by the goodput that iperf3 shows between two
hosts, times the number of links between them; with two links, a column compares them with one. The bound of a
small allreduce is one round trip of blocking sockets, as qperf shows it. The last column is the payload of
the busiest host in the busier direction, by the counters of its interfaces, divided by the least possible.
"cpu" rows show the CPU time of a rank in an allreduce. The load of other programs includes the ranks of all
hosts except the first.

A run may have a delay of each frame instead of a rate: then a program forwards the frames (bench/delay.c), no
rate is set, and there are small allreduces only. Such runs need a command of their own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import compare
import gradients
import publish

sys.path.insert(0, str(compare.ROOT / "tools"))
import virtual_hosts

ALL = "2x1 2x2 2x4 4x1 4x2 4x4 1,3,2,2 8x1 8x2 8x4"
RUNS = " ".join(
    [f"{layout}@100mbit" for layout in ALL.split()]
    + [f"{layout}@{'500mbit' if layout[0] == '8' else '1gbit'}" for layout in ALL.split()]
    + ["2x1@2.5gbit", "2x2@2.5gbit"]
)
SMALL = 4
DELAYED = (SMALL, 256, 4 << 10)
OPERATIONS = ("allreduce", "broadcast", "allgather", "alltoall", "reducescatter", "adasum")
HEAD = ("hosts x ranks, rate", "bound, ms")


@dataclass(frozen=True)
class Case:
    """As the workers know it, and as the page does; operation and bytes of a rank if the rate bounds it."""

    name: str
    text: str
    operation: str = ""
    size: int = 0


def allreduce_of(size: int) -> Case:
    """An allreduce of few bytes, which a round trip bounds."""
    return Case(f"allreduce:{size}", f"allreduce {publish.byte_text(size)}", size=size)


@dataclass(frozen=True)
class Wire:
    """Between two hosts: microseconds there and back, and bytes a second over all links where measured."""

    round_trip: float
    goodput: float = 0

    def __str__(self) -> str:
        rate = f"{self.goodput * 8 / 1e6:.0f} Mbit/s and " if self.goodput else ""
        return f"{rate}{self.round_trip:.0f} µs"


@dataclass(frozen=True)
class Run:
    """The number of ranks on each host, and the rate of its links as tc has it, or their delay: "500us"."""

    ranks: tuple[int, ...]
    rate: str

    def __str__(self) -> str:
        hosts, first = len(self.ranks), self.ranks[0]
        equal = self.ranks == (first,) * hosts
        return f"{hosts} x {first}" if equal else ", ".join(map(str, self.ranks))

    @property
    def delay(self) -> str:
        """In microseconds; empty without."""
        return self.rate.removesuffix("us") if self.rate.endswith("us") else ""

    def cases(self, args: compare.argparse.Namespace) -> list[Case]:
        """What is measured."""
        if self.delay:
            return [allreduce_of(size) for size in DELAYED]
        long = 8 << 20 if self.rate == "100mbit" else 64 << 20
        short = long >> 4
        if args.effort == "tiny":
            long = short = 1 << 18
        made = [allreduce_of(SMALL)]
        for what in OPERATIONS:
            size = long if what in OPERATIONS[:2] else short
            made.append(Case(f"{what}:{size}", f"{what} {publish.byte_text(size)}", what, size))
        if self.rate != "100mbit":
            path, tensors, elements = gradients.write_counts(args.output, "resnet50", args.effort == "tiny")
            made.append(
                Case(f"async:{path}", f"allreduce of ResNet-50, {tensors} tensors", "allreduce", 4 * elements)
            )
            if max(self.ranks) == 1:
                made.append(Case(f"cpu:{long}", f"cpu {publish.byte_text(long)}"))
        return made

    def least(self, operation: str) -> float:
        """What the busiest link has to carry in one direction, in units of a rank's input."""
        hosts, total = len(self.ranks), sum(self.ranks)
        return {
            "allreduce": 2 * (hosts - 1) / hosts,
            "broadcast": 1,
            "allgather": total - min(self.ranks),
            "alltoall": max(own * (total - own) / total for own in self.ranks),
            "reducescatter": (total - min(self.ranks)) / total,
            "adasum": 2 * (hosts - 1) / hosts,
        }[operation]


def run_of(text: str) -> Run:
    """As on the command line: 2x4@1gbit, 1,3,2,2@100mbit, 2x1@500us."""
    layout, rate = text.split("@")
    if "x" not in layout:
        return Run(tuple(map(int, layout.split(","))), rate)
    hosts, ranks = map(int, layout.split("x"))
    return Run((ranks,) * hosts, rate)


def between(hosts: virtual_hosts.VirtualHosts, server: list[str], client: list[str]) -> str:
    """What a client on the second host prints about its server on the first one."""
    served = subprocess.Popen([*hosts.enter(hosts.names[0]), *server], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        words = [*hosts.enter(hosts.names[1]), *client]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    finally:
        served.kill()
        served.wait()


def wire_of(hosts: virtual_hosts.VirtualHosts, run: Run) -> Wire:
    client = ["qperf", hosts.names[0], "-t", "2", "-m", str(SMALL), "--unify_units", "tcp_lat"]
    latency = float(between(hosts, ["qperf"], client).split("latency")[1].split()[1])
    if run.delay:
        return Wire(2e-3 * latency)
    client = ["iperf3", "-c", hosts.names[0], "-t", "3", "-O", "1", "-J"]
    received = json.loads(between(hosts, ["iperf3", "-s", "-1"], client))["end"]["sum_received"]
    return Wire(2e-3 * latency, hosts.links * received["bits_per_second"] / 8)


def peers_on(
    hosts: virtual_hosts.VirtualHosts, run: Run, names: list[str], folder: Path
) -> list[compare.Peer]:
    """The same workers as on one host, started from the first of the hosts."""
    layout = ",".join(f"{name}:{ranks}" for name, ranks in zip(hosts.names, run.ranks, strict=False))
    enter = hosts.enter(hosts.names[0], compare.ROOT)
    horovodrun = shutil.which("horovodrun")
    assert horovodrun, "horovodrun is not in PATH"
    ours = (*enter, horovodrun, "-H", layout)
    peers = [compare.Peer(compare.C_PEER.name, ours, compare.C_PEER.worker)]
    if "gloo" in names:
        words = (
            "env",
            "GLOO_SOCKET_IFNAME=eth0",
            sys.executable,
            str(compare.BENCH / "peer_torch.py"),
            "gloo",
        )
        peers.append(compare.Peer(compare.GLOO_PEER.name, ours, words, compare.C_PEER.name))
    if "encrypted" in names:
        peers.append(
            compare.Peer("encrypted", (*ours, "--encryption"), compare.C_PEER.worker, compare.C_PEER.name)
        )
    if hosts.links > 1:
        one = (*ours, "--sockets-per-peer", "1")
        peers.append(compare.Peer("over one link", one, compare.C_PEER.worker, compare.C_PEER.name))
    for peer in compare.mpi_peers(folder) if "mpi" in names else ():
        if peer.name == "Open MPI":
            options = ("--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0")
            launcher = (*enter, *peer.launcher, "--bind-to", "none", *options, "-H", layout)
            peers.append(compare.Peer(peer.name, launcher, peer.worker, compare.C_PEER.name))
    return peers


def row(
    run: Run, comparison: compare.Comparison, peers: list[compare.Peer], case: Case, wire: Wire
) -> list[str]:
    """Milliseconds of all peers; the ratios of ours to the bound, and of its bytes to the least."""
    ranks, ours = sum(run.ranks), peers[0].name
    names = (case.name, f"carried-{case.name}")
    own, carried = (comparison.median(ranks, ours, name) for name in names)
    least = case.size * run.least(case.operation) if case.operation else None
    bound = least / wire.goodput * 1e6 if least else wire.round_trip if case.size else None
    return [
        f"{run} at {run.rate}, {case.text}",
        publish.number(bound and bound / 1e3),
        *(publish.cell(comparison, ranks, peer, case.name, scale=1e-3) for peer in peers),
        f"{own / bound:.2f}" if own and bound else "-",
        f"{carried / least:.3f}" if carried and least else "-",
    ]


def measure(
    hosts: virtual_hosts.VirtualHosts, run: Run, wire: Wire, seconds: float, args: compare.argparse.Namespace
) -> tuple[compare.Comparison, list[str], list[list[str]]]:
    """The figures of a run, and its head and rows of the table."""
    cases, ranks = run.cases(args), sum(run.ranks)
    name = re.sub("[ ,]+", "-", f"hosts {str(run).replace(' ', '')} {run.rate}")
    name += f"-{hosts.links}-links" if hosts.links > 1 else ""
    comparison = compare.Comparison(name, compare.EFFORTS[args.effort], seconds)
    peers = peers_on(hosts, run, args.peers.split(","), args.output)
    comparison.run([(peer, ranks, [case.name for case in cases]) for peer in peers], whole=True)
    carried = [f"carried-{case.name}" for case in cases if case.operation]
    if carried:
        comparison.round(0, [(peers[0], ranks, carried)])
    comparison.write_csv(args.output / f"{name}.csv")
    head = [*HEAD, *(f"{peer.name}, ms" for peer in peers), "ours / bound", "bytes / least"]
    return comparison, head, [row(run, comparison, peers, case, wire) for case in cases]


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    options = {"runs": RUNS, "links": "1", "peers": "gloo", "congestion": "cubic", "hogs": "0"}
    options |= {"table": "hosts", "docs": ""}
    args = compare.arguments(__doc__, seconds=600, options=options)
    runs = [run_of(text) for text in args.runs.split()]
    delays = {run.delay for run in runs}
    if len(delays) > 1:
        sys.exit("hosts: runs with a delay, with another one and without need a command each")
    missing = [tool for tool in ("iperf3", "qperf") if not compare.installed(tool)]
    if missing:
        sys.exit(f"hosts: needs {' and '.join(missing)}; run `tools/deps.sh peers` first")
    names = [f"h{i}" for i in range(1, 1 + max(len(run.ranks) for run in runs))]
    delayed = [[str(compare.BUILD / "bench" / "bench_delay"), delay] for delay in delays if delay]
    try:
        hosts = virtual_hosts.make(names, *delayed)
    except virtual_hosts.UnavailableError as reason:
        print(f"hosts: left out: {reason}", flush=True)
        return 0
    whole = compare.Comparison(args.table, compare.EFFORTS[args.effort], 0)
    wires: dict[str, Wire] = {}
    head, rows = [""], []
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(int(args.hogs))]
    try:
        for _ in range(1, int(args.links)):
            hosts.add_link(virtual_hosts.SECOND)
        hosts.control(args.congestion)
        for run in runs:
            if not run.delay:
                hosts.limit(run.rate)
            wire = wires[run.rate] = wires.get(run.rate) or wire_of(hosts, run)
            comparison, head, more = measure(hosts, run, wire, args.seconds / len(runs), args)
            rows += more
            whole.samples += comparison.samples
            whole.failures += comparison.failures
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        hosts.end()
        shutil.rmtree(hosts.folder)
    shown = ", ".join(f"{wire} at {name}" for name, wire in wires.items())
    measured = "qperf" if delayed else "iperf3 and qperf"
    text = f"{publish.table(head, rows)}\n\n{measured} on {hosts.links} link(s): {shown}."
    if hogs:
        text += f" {len(hogs)} other programs were always busy."
    failed = publish.write(whole, args.output, text)
    if args.docs:
        publish.renew(Path(args.docs), args.table, (args.output / f"{args.table}.md").read_text())
    return failed


if __name__ == "__main__":
    sys.exit(main())
