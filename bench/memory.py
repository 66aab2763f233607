"""Measures the memory that a rank holds beyond its tensors, after it has reduced all gradients several times.

    python bench/memory.py                      needs horovodrun in PATH and `make build`

A figure is the memory of initialization and the memory that the gradients then add, on the rank with the
most; pages that several ranks share count divided among them. Every figure is a start of its own. ResNet-50
is measured a second time in ten times as many tensors: memory should hardly depend on their number.
"""

from __future__ import annotations

import sys
from pathlib import Path

import compare
import gradients
import publish

Case = tuple[str, int, str]  # text, ranks, file
NETWORKS = {
    "tiny": {"resnet50": [2]},
    "quick": {"resnet50": [2]},
    "full": {"resnet50": [2, 4], "vgg16": [2, 4], "bert-large": [2]},
}


def write_pieces(whole: Path, pieces: int) -> Path:
    """The file of the same elements in that many times as many tensors."""
    path = whole.with_name(f"pieces.{whole.name}")
    counts = [int(text) for text in whole.read_text().split()]
    parts = [count // pieces + (index < count % pieces) for count in counts for index in range(pieces)]
    path.write_text("\n".join(map(str, parts)) + "\n")
    return path


def make_cases(effort: str, folder: Path) -> list[Case]:
    cases = []
    for network, all_ranks in NETWORKS[effort].items():
        path, tensors, elements = gradients.write_counts(folder, network, effort == "tiny")
        cases += [
            (f"{network}, {ranks} ranks, {tensors} tensors", ranks, str(path))
            for ranks in all_ranks
            if gradients.fits(network, ranks, elements)
        ]
        if network == "resnet50":
            cut = write_pieces(path, 10)
            cases += [
                (f"{network}, {ranks} ranks, {tensors * 10} tensors", ranks, str(cut)) for ranks in all_ranks
            ]
    return cases


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=0)
    cases = make_cases(args.effort, args.output)
    ours = [compare.C_PEER, compare.TORCH_PEER]
    peers = compare.all_peers(args.output, original=True) if args.effort == "full" else ours
    comparison = compare.Comparison("memory", compare.EFFORTS[args.effort], args.seconds)
    comparison.run(
        [
            (peer, ranks, [f"memory:{file}"])
            for index, (_, ranks, file) in enumerate(cases)
            for peer in peers
            if peer in ours or index == 0  # of the others one row is enough
        ],
        whole=True,
    )
    rows = []
    for text, ranks, file in cases:
        held = [comparison.median(ranks, peer.name, f"memory:{file}") for peer in peers]
        rows.append([text, *(publish.number(kibibytes and kibibytes / 1024) for kibibytes in held)])
    return publish.write(
        comparison, args.output, publish.table(["MiB a rank", *(peer.name for peer in peers)], rows)
    )


if __name__ == "__main__":
    sys.exit(main())
