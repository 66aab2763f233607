"""Compares collectives of this engine, from C and PyTorch, with Gloo, Open MPI, MPICH and the original
Horovod.

    python bench/collectives.py                 needs horovodrun in PATH and `make build`

It times float32 sums in place of 4 B to 64 MiB, the last one also in memory that the ranks share
(hvd_shared_alloc), as many elements of 16 bits as 64 MiB have of 32, and the other collectives at 4 MiB,
blocking, with 2 and 4 ranks on this host. Bytes are those of one rank's input.
"""

from __future__ import annotations

import sys

import bound
import compare
import publish

SIZES = {
    "tiny": [4, 1 << 16],
    "quick": [4, 1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26],
    "full": [4, *(1 << shift for shift in range(10, 27, 2))],
}
HALVES = ("float16", "bfloat16")
OTHERS = ("allgather", "broadcast", "alltoall", "reducescatter")
MIDDLE = 4 << 20


def case_text(case: str) -> str:
    what, count, *dtype = case.split(":")
    what, _, how = what.partition("-")
    return " ".join([what, publish.byte_text(int(count)), *dtype, how]).strip()


def all_cases(effort: str) -> list[str]:
    """As bench/protocol.c reads them: operation, bytes or elements, type."""
    largest, other_size = SIZES[effort][-1], 1 << 16 if effort == "tiny" else MIDDLE
    return [
        *(f"allreduce:{size}" for size in SIZES[effort]),
        f"allreduce-shared:{largest}",
        *(f"allreduce:{largest // 2}:{dtype}" for dtype in HALVES),
        *(f"{what}:{other_size}" for what in OTHERS),
    ]


def draw(
    comparison: compare.Comparison, peers: list[compare.Peer], ranks: list[int], sizes: list[int], path: str
) -> None:
    figure, axes = publish.figure(len(ranks))
    for each, count in zip(axes, ranks, strict=True):
        for peer in peers:
            times = [comparison.median(count, peer.name, f"allreduce:{size}") for size in sizes]
            known = [(size, value) for size, value in zip(sizes, times, strict=True) if value]
            if known:
                each.loglog(*zip(*known, strict=True), "o-", markersize=4, label=peer.name)
        each.set(title=f"allreduce, {count} ranks", xlabel="bytes", ylabel="µs (median)")
        each.grid(alpha=0.3)
        each.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=170)
    cases = all_cases(args.effort)
    ranks = [2] if args.effort == "tiny" else [2, 4]
    peers = compare.all_peers(args.output, original=args.effort != "tiny")
    machine = bound.machine_of(args.output)

    comparison = compare.Comparison("collectives", compare.EFFORTS[args.effort], args.seconds)
    comparison.run([(peer, count, cases) for count in ranks for peer in peers])

    parts = []
    for count in ranks:
        head = [f"{count} ranks, µs", "bound", *(peer.name for peer in peers)]
        rows = []
        for case in cases:
            what, size, *_ = case.split(":")
            least = publish.number(machine.bound(what, count, int(size)))
            cells = [publish.cell(comparison, count, peer, case) for peer in peers]
            rows.append([case_text(case), least, *cells])
        parts.append(publish.table(head, rows))
    draw(comparison, peers, ranks, SIZES[args.effort], str(args.output / "collectives.png"))
    return publish.write(comparison, args.output, "\n\n".join(parts))


if __name__ == "__main__":
    sys.exit(main())
