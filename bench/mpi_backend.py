"""The back end mpi beside plain calls of the same MPI, for each MPI of this machine.

    python bench/mpi_backend.py                 needs `make build`, mpirun and mpicc of an MPI

float32 sums in place of 64 KiB to 64 MiB, a broadcast and an allgather of 4 MiB, with 2 ranks. In brackets:
the back end's time as a multiple of the plain call's.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import compare
import publish

SIZES = {
    "tiny": [1 << 16],
    "quick": [1 << 20, 1 << 24],
    "full": [1 << shift for shift in (16, 20, 22, 24, 26)],
}


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=120)
    plain = [replace(peer, beside=None) for peer in compare.mpi_peers(args.output)]
    ours = [
        compare.Peer(
            f"back end, {peer.name}",
            ("env", "HOROVOD_CPU_OPERATIONS=mpi", *peer.launcher),
            compare.C_PEER.worker,
            beside=peer.name,
        )
        for peer in plain
    ]
    cases = [f"allreduce:{size}" for size in SIZES[args.effort]]
    if args.effort == "full":
        cases += [f"broadcast:{4 << 20}", f"allgather:{4 << 20}"]
    peers = [peer for pair in zip(plain, ours, strict=True) for peer in pair]
    comparison = compare.Comparison("mpi", compare.EFFORTS[args.effort], args.seconds)
    comparison.run([(peer, 2, cases) for peer in peers])
    head = ["2 ranks, µs", *(peer.name for peer in peers)]
    rows = [[case, *(publish.cell(comparison, 2, peer, case) for peer in peers)] for case in cases]
    return publish.write(comparison, args.output, publish.table(head, rows))


if __name__ == "__main__":
    sys.exit(main())
