"""Measures the loss beside busy programs: training and small operations of this engine and of its peers.

    python bench/busy.py [--only small,chains,training,keras] [--before ../horovod-before]
                                                                    needs horovodrun in PATH, about 40 minutes

Each command runs alone and beside 1 and 2 programs (bench/load.py): loops of another job, which always
compute, and data loaders of the same job, which decode images half of the time. Figures are means. The
loss is the time beside the programs divided by the time without, within a round. With --before another
build of this engine is measured as well (`make install` in that checkout).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import compare
import distributed
import graphs
import keras_fit
import publish
import train
import xla

LOADS = {
    "alone": (),
    "1 loop": ("loop", "1"),
    "2 loops": ("loop", "2"),
    "1 loader": ("loader", "1"),
    "2 loaders": ("loader", "2"),
}
SMALL = {f"allreduce:{size}": f"allreduce {publish.byte_text(size)}" for size in (4, 4 << 10)}
STEP = f"step-ddp:{distributed.WEIGHTS}"


@dataclass(frozen=True)
class Part:
    """Peers, of which the first is ours, and their cases with the texts of the rows."""

    peers: list[compare.Peer]
    ranks: int
    cases: dict[str, str]

    def starts(self) -> list[tuple[compare.Peer, int, list[str]]]:
        cases = list(self.cases)
        return [(beside(peer, load), self.ranks, cases) for peer in self.peers for load in LOADS]


def beside(peer: compare.Peer, load: str) -> compare.Peer:
    """The same command with these programs: loops beside all of it, loaders as children of the ranks."""
    words = (sys.executable, str(compare.BENCH / "load.py"), *LOADS[load]) if LOADS[load] else ()
    loops, loaders = (words, ()) if "loop" in words else ((), words)
    launcher, worker = ("env", "BENCH_MEAN=1", *loops, *peer.launcher), (*loaders, *peer.worker)
    return replace(peer, name=f"{peer.name}, {load}", launcher=launcher, worker=worker)


def parts_of(name: str, args: compare.argparse.Namespace) -> list[Part]:
    if name == "small":
        c_peers = [
            compare.C_PEER,
            *(peer for peer in compare.mpi_peers(args.output) if peer.name == "Open MPI"),
        ]
        torch_peers = [compare.TORCH_PEER, compare.GLOO_PEER]
        ranks_of = (2,) if args.effort == "tiny" else (2, 4)
        return [Part(peers, ranks, SMALL) for peers in (c_peers, torch_peers) for ranks in ranks_of]
    if name == "chains":
        jit = {"allreduce:4": "jit, allreduce 4 B", "many:4": "jit, 50 allreduces at once"}
        chain = {"chain:4": "tf.function, 50 allreduces in a chain", "many:4": "tf.function, 50 at once"}
        return [Part([xla.ENGINE, xla.GLOO], 2, jit), Part([graphs.ENGINE], 2, chain)]
    if name == "training":
        columns = {peer.name: peer for _, peer, ranks in train.OURS if ranks == 2}
        peers = [columns[name] for name in ("horovod.torch", "DDP", "apart")]
        steps = Part([distributed.ENGINE, distributed.GLOO], 2, {STEP: "step of DDP, 24 MiB"})
        return [Part(peers, 2, {case: f"{text}" for case, text in train.CASES.items()}), steps]
    peers = [keras_fit.ENGINE, keras_fit.STRATEGY, keras_fit.APART]
    return [Part(peers, 2, {keras_fit.CASE: "a step of Keras' fit"})]


def built_before(part: Part, checkout: Path) -> Part:
    """Adds the other build of our program, except in C, where it may print medians instead of means."""
    commands = checkout / ".venv" / "bin"
    ours = part.peers[0]
    if ours == compare.C_PEER:
        return part
    before = replace(
        ours,
        name=f"{ours.name} before",
        launcher=(str(commands / "horovodrun"),),
        worker=(str(commands / "python"), *ours.worker[1:]),
    )
    return replace(part, peers=[ours, before, *part.peers[1:]])


def loss(
    comparison: compare.Comparison, part: Part, peer: compare.Peer, case: str, load: str
) -> float | None:
    busy, alone = (f"{peer.name}, {each}" for each in (load, "alone"))
    return comparison.ratio(part.ranks, busy, case, alone, case)


def rows_of(comparison: compare.Comparison, part: Part) -> list[list[str]]:
    """For each case a row a peer."""
    rows = []
    for case, text in part.cases.items():
        for peer in part.peers:
            cells = [publish.number(comparison.median(part.ranks, f"{peer.name}, alone", case))]
            for load in list(LOADS)[1:]:
                median = comparison.median(part.ranks, f"{peer.name}, {load}", case)
                own = loss(comparison, part, peer, case, load)
                cells.append(f"{publish.number(median)} ({own:.2f})" if own else "-")
            rows.append([f"{text}, {part.ranks} ranks", peer.name, *cells])
    return rows


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(
        __doc__, seconds=2400, options={"only": "small,chains,training,keras", "before": ""}
    )
    names = args.only.split(",") if args.effort == "full" else ["small"]
    parts = [part for name in names for part in parts_of(name, args)]
    if args.before:
        parts = [built_before(part, Path(args.before).absolute()) for part in parts]
    comparison = compare.Comparison("busy", compare.EFFORTS[args.effort], args.seconds)
    comparison.run([start for part in parts for start in part.starts()])
    rows = [row for part in parts for row in rows_of(comparison, part)]
    table = publish.table(["µs", "library", *(f"{load}" for load in LOADS)], rows)
    return publish.write(comparison, args.output, table)


if __name__ == "__main__":
    sys.exit(main())
