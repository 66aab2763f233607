"""Compares the back end mpi with plain calls of the same MPI, for each MPI of this machine.

    python bench/mpi_backend.py                 needs `make build`, mpirun and mpicc of an MPI

float32 with 2 ranks; sizes are those of one rank's input. In parentheses: the back end's time as a multiple
of the plain call's. Plain MPI writes into existing memory. So does the back end, except in the rows of "new
memory": there the engine allocates the result, as it does for a user who gives none.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import compare
import publish

SIZES = {
    "tiny": [1 << 16],
    "quick": [1 << 20, 1 << 24],
    "full": [1 << shift for shift in (20, 21, 22, 24, 26)],
}
ALLOCATED = ("allgather", "alltoall", "reducescatter")  # without outputs the engine allocates the result
OTHERS = 1 << 24  # bytes: the most of other operations than allreduce


@dataclass(frozen=True)
class Row:
    """A row of the table: its text, the case of plain MPI, and the case of the back end."""

    text: str
    plain: str
    ours: str


def rows_of(sizes: list[int]) -> list[Row]:
    rows = []
    for operation in ("allreduce", "broadcast", *ALLOCATED):
        for size in sizes:
            if operation != "allreduce" and size > OTHERS:
                continue
            text, plain = f"{operation} {publish.byte_text(size)}", f"{operation}:{size}"
            if operation in ALLOCATED:
                rows.append(Row(text, plain, f"{operation}-into:{size}"))
                rows.append(Row(f"{text}, new memory", plain, plain))
            else:
                rows.append(Row(text, plain, plain))
    return rows


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=240)
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
    rows = rows_of(SIZES[args.effort])
    pairs = list(zip(plain, ours, strict=True))
    starts = []
    for theirs, own in pairs:
        starts.append((theirs, 2, list(dict.fromkeys(row.plain for row in rows))))
        starts.append((own, 2, [row.ours for row in rows]))
    comparison = compare.Comparison("mpi", compare.EFFORTS[args.effort], args.seconds)
    comparison.run(starts)
    table = [["2 ranks, µs", *(peer.name for pair in pairs for peer in pair)]]
    for row in rows:
        table.append([row.text])
        for theirs, own in pairs:
            table[-1].append(publish.cell(comparison, 2, theirs, row.plain))
            table[-1].append(publish.cell(comparison, 2, own, row.ours, ours=row.plain))
    return publish.write(comparison, args.output, publish.table(table[0], table[1:]))


if __name__ == "__main__":
    sys.exit(main())
