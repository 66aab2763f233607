"""Condenses the last run into the table of docs/performance.md: python bench/summary.py, after the others.

It reads their CSV files. Each row shows this engine and, of every kind of peer, the one nearest to it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import compare
import goals
import publish

HEAD = ("2 ranks on one host", "this engine", "nearest MPI", "PyTorch on Gloo", "nearest Horovod 0.28")


@dataclass
class Row:
    """A figure of this engine and those of its peers, all in the unit that the text names."""

    text: str
    benchmark: str
    ours: str  # the peer of ours that the others are compared with
    case: str
    scale: float = 1
    gloo: str = goals.GLOO
    ways: tuple[str, ...] = ()  # other cases that do the same work, for peers
    ranks: int = 2
    compared: bool = True  # shows how many times as long each peer took

    def cells(self, figures: goals.Figures) -> list[str]:
        of = figures.of[self.benchmark]

        def nearest(peers: list[str]) -> str:
            cases = (self.case, *self.ways)
            rivals = [(peer, case) for peer in peers for case in cases]
            found = of.nearest(self.ranks, rivals, self.ours, self.case)
            if not found:
                return "-"
            ratio, peer, case = found
            value = of.median(self.ranks, peer, case)
            return publish.number(value and value * self.scale) + (f" ({ratio:.2f})" if self.compared else "")

        own = of.median(self.ranks, self.ours, self.case)
        peers = (goals.MPIS, [], []) if self.ours == goals.C else ([], [self.gloo], goals.HOROVODS)
        return [self.text, publish.number(own and own * self.scale), *map(nearest, peers)]


def rows(figures: goals.Figures) -> list[Row]:
    """What the page shows."""
    folder = figures.folder
    resnet, *ways = (f"{way}:{folder / 'resnet50.counts'}" for way in goals.WAYS)
    both = (("from C", goals.C), ("from PyTorch", goals.TORCH))
    made = [
        Row(f"allreduce of {publish.byte_text(size)}, {text}, µs", "collectives", peer, f"allreduce:{size}")
        for size in (4, 4 << 20, 64 << 20)
        for text, peer in both
    ]
    made += [
        Row(f"ResNet-50's gradients, {text}, ms", "gradients", peer, resnet, 1e-3, ways=tuple(ways))
        for text, peer in both
    ]
    made += [
        Row(f"a training step, {text}, ms", "train", "horovod.torch", case, 1e-3, gloo="DDP")
        for text, case in (("MLP with 5.8 M parameters", "mlp:64"), ("ResNet-18", "resnet18:16"))
    ]
    made += [
        Row("initialization, ms", "startup", "horovod", "init"),
        Row("idle, 4 ranks, % of a core each", "startup", "horovod", "idle", ranks=4, compared=False),
    ]
    return made


def main() -> int:
    """Writes summary.md."""
    args = compare.arguments(__doc__, seconds=0)
    figures = goals.Figures(args.output)
    text = publish.table(HEAD, [row.cells(figures) for row in rows(figures)])
    (args.output / "summary.md").write_text(text + "\n")
    print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
