"""Collectives between hosts, beside Gloo and Open MPI and the least time that the network allows.

    python bench/hosts.py [--layouts 2x1,2x2,2x4,4x1,4x2] [--rate 1gbit] [--links 1] [--seconds 300]

Needs root, sshd, iproute2 and iperf3: the hosts are network namespaces of this machine, with links of this
rate, ssh between them, and one bridge. HOSTSxRANKS says how many ranks each has. The bound of an allreduce is
2 (hosts - 1) / hosts of its bytes, that of a broadcast its bytes, over the goodput that iperf3 shows between
two hosts, times the number of links between them; with two, a column shows ours over one. "cpu" rows show the
CPU time of a rank in an allreduce. The load of others counts the ranks of all hosts but the first, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import compare
import publish

sys.path.insert(0, str(compare.ROOT / "tools"))
import virtual_hosts

LAYOUTS = "2x1,2x2,2x4,4x1,4x2"
SIZE = 64 << 20
SMALL = 4
GATHERED = 4 << 20


def goodput(hosts: virtual_hosts.VirtualHosts) -> float:
    """Bytes a second from the second host to the first one."""
    server = subprocess.Popen([*hosts.enter(hosts.names[0]), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    words = [*hosts.enter(hosts.names[1]), "iperf3", "-c", hosts.names[0], "-t", "3", "-O", "1", "-J"]
    try:
        output = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    finally:
        server.kill()
        server.wait()
    return float(json.loads(output)["end"]["sum_received"]["bits_per_second"]) / 8


def peers_on(hosts: virtual_hosts.VirtualHosts, count: int, ranks: int, folder: Path) -> list[compare.Peer]:
    """The same workers as on one host, started from the first of `count` hosts."""
    layout = ",".join(f"{name}:{ranks}" for name in hosts.names[:count])
    enter = hosts.enter(hosts.names[0], compare.ROOT)
    horovodrun = shutil.which("horovodrun")
    assert horovodrun, "horovodrun is not in PATH"
    ours = (*enter, horovodrun, "-H", layout)
    gloo = ("env", "GLOO_SOCKET_IFNAME=eth0", sys.executable, str(compare.BENCH / "peer_torch.py"), "gloo")
    peers = [
        compare.Peer(compare.C_PEER.name, ours, compare.C_PEER.worker),
        compare.Peer(compare.GLOO_PEER.name, ours, gloo, compare.C_PEER.name),
    ]
    if hosts.links > 1:
        one = (*ours, "--sockets-per-peer", "1")
        peers.append(compare.Peer("over one link", one, compare.C_PEER.worker, compare.C_PEER.name))
    for peer in compare.mpi_peers(folder):
        if peer.name == "Open MPI":
            options = ("--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0")
            launcher = (*enter, *peer.launcher, "--bind-to", "none", *options, "-H", layout)
            peers.append(compare.Peer(peer.name, launcher, peer.worker, compare.C_PEER.name))
    return peers


def least(case: str, count: int, ranks: int, rate: float) -> float | None:
    """Microseconds that the busiest link needs for its bytes; None: something else bounds it."""
    what, size, *_ = case.split(":")
    factors = {
        "allreduce": 2 * (count - 1) / count,
        "reducescatter": (count - 1) / count,
        "allgather": (count - 1) * ranks,
        "broadcast": 1,
        "alltoall": ranks * (count - 1) / count,
    }
    bounded = what in factors and int(size) > 1 << 16
    return int(size) * factors[what] / rate * 1e6 if bounded else None


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(
        __doc__, seconds=300, options={"layouts": LAYOUTS, "rate": "1gbit", "links": "1"}
    )
    layouts = [tuple(map(int, each.split("x"))) for each in args.layouts.split(",")]
    size = 1 << 20 if args.effort == "tiny" else SIZE
    cases = [f"allreduce:{SMALL}", f"allreduce:{size}", f"cpu:{size}", f"broadcast:{size}"]
    cases += [f"{what}:{min(size, GATHERED)}" for what in ("allgather", "alltoall", "reducescatter")]
    try:
        hosts = virtual_hosts.make([f"h{i}" for i in range(1, 1 + max(count for count, _ in layouts))])
    except virtual_hosts.UnavailableError as reason:
        print(f"hosts: left out: {reason}", flush=True)
        return 0
    try:
        for _ in range(1, int(args.links)):
            hosts.add_link(virtual_hosts.SECOND)
        hosts.limit(args.rate)
        rate = goodput(hosts) * hosts.links
        suffix = f"-{hosts.links}-links" if hosts.links > 1 else ""
        head = ["", "bound, ms"]
        rows = []
        failed = 0
        for count, ranks in layouts:
            comparison = compare.Comparison(
                f"hosts-{count}x{ranks}{suffix}", compare.EFFORTS[args.effort], args.seconds / len(layouts)
            )
            peers = peers_on(hosts, count, ranks, args.output)
            head = ["hosts x ranks", "bound, ms", *(f"{peer.name}, ms" for peer in peers), "ours / bound"]
            comparison.run([(peer, count * ranks, cases) for peer in peers])
            for case in cases:
                bound = least(case, count, ranks, rate)
                own = comparison.median(count * ranks, peers[0].name, case)
                what, number = case.split(":")
                cells = [publish.cell(comparison, count * ranks, peer, case, scale=1e-3) for peer in peers]
                rows.append(
                    [f"{count} x {ranks}, {what} {publish.byte_text(int(number))}",
                     publish.number(bound and bound / 1e3), *cells,
                     f"{own / bound:.2f}" if own and bound else "-"]
                )  # fmt: skip
            conditions = f"iperf3: {rate * 8 / 1e6:.0f} Mbit/s, {hosts.links} link(s) of {args.rate}."
            text = f"{conditions}\n\n{publish.table(head, rows)}"
            failed |= publish.write(comparison, args.output, text)
        return failed
    finally:
        hosts.end()
        shutil.rmtree(hosts.folder)


if __name__ == "__main__":
    sys.exit(main())
