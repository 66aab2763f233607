"""Times all gradients of a network, in the fastest way of each library, on 2 and 4 ranks of this host.

    python bench/gradients.py                   needs horovodrun in PATH and `make build`

The networks are ResNet-50 (161 tensors, 98 MiB), VGG-16 (32, 528 MiB) and BERT-large (391, 1.2 GiB), in the
order in which backprop computes their gradients; and 161 single numbers, which cost nothing but coordination.
async: all submitted, then waited for. grouped: one grouped call, for MPI packed into one buffer and unpacked.
one by one: blocking calls. buckets: 25 MiB as DistributedDataParallel sends them, with gradients copied in
and out, or in the buckets from the start.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import bound
import compare
import publish

sys.path.insert(0, str(compare.ROOT / "examples" / "torch"))

NUMBERS = 161
WAYS = ("async", "grouped", "one-by-one", "buckets-copied", "buckets-viewed")


def vision_shapes(name: str) -> list[tuple[int, ...]]:
    import models
    import torch

    with torch.device("meta"):
        return [tuple(parameter.shape) for parameter in models.MODELS[name]().parameters()]


def bert_large_shapes() -> list[tuple[int, ...]]:
    """Devlin et al., 2018: 24 layers, 1024 wide, 30,522 words, with the pooler."""
    wide, words, positions = 1024, 30522, 512
    norm = [(wide,), (wide,)]
    square = [(wide, wide), (wide,)]
    feed_forward = [(4 * wide, wide), (4 * wide,), (wide, 4 * wide), (wide,)]
    layer = [*square * 4, *norm, *feed_forward, *norm]
    return [(words, wide), (positions, wide), (2, wide), *norm, *layer * 24, *square]


def shapes(network: str) -> list[tuple[int, ...]]:
    """Of all parameters; "numbers" has as many as ResNet-50, of one element each."""
    if network == "numbers":
        return [(1,)] * NUMBERS
    return bert_large_shapes() if network == "bert-large" else vision_shapes(network)


NETWORKS = {
    "tiny": {"resnet50": [2]},
    "quick": {"resnet50": [2]},
    "full": {"resnet50": [2, 4], "vgg16": [2, 4], "bert-large": [2], "numbers": [2]},
}


def write_counts(folder: Path, network: str, tiny: bool) -> tuple[Path, int, int]:
    """The file of elements that the workers read, last layer first; how many tensors, and elements in all."""
    counts = [math.prod(shape) for shape in reversed(shapes(network))]
    if tiny:
        counts = [max(count >> 10, 1) for count in counts]
    path = folder / f"{network}.counts"
    path.write_text("\n".join(map(str, counts)) + "\n")
    return path, len(counts), sum(counts)


def best_peers(comparison: compare.Comparison, peers: list[compare.Peer], ranks: int, file: str) -> list[str]:
    """The peers and ways that are nearest to ours, from C and from PyTorch."""
    texts = []
    for ours in (compare.C_PEER.name, compare.TORCH_PEER.name):
        rivals = [(peer.name, f"{way}:{file}") for peer in peers if peer.beside == ours for way in WAYS]
        if nearest := comparison.nearest(ranks, rivals, ours, f"async:{file}"):
            ratio, name, case = nearest
            texts.append(f"to {ours}: {name}, {case.split(':')[0]}, {ratio:.2f}")
    return texts


def fits(network: str, ranks: int, elements: int) -> bool:
    """Whether all ranks can hold the gradients, packed ones, and as much again."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 4 * elements * 3 * ranks < available:
        return True
    print(f"{network} on {ranks} ranks: left out, {available >> 30} GiB of memory are free", flush=True)
    return False


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=130)
    peers = compare.all_peers(args.output, original=args.effort == "full")
    machine = bound.machine_of(args.output)
    starts: list[tuple[compare.Peer, int, list[str]]] = []
    lines: list[tuple[int, str, str, float]] = []  # ranks, text, file, bound in ms
    for network, all_ranks in NETWORKS[args.effort].items():
        path, tensors, elements = write_counts(args.output, network, args.effort == "tiny")
        for ranks in all_ranks:
            if fits(network, ranks, elements):
                text = f"{network}, {ranks} ranks ({tensors} tensors, {4e-6 * elements:,.0f} MB)"
                starts += [(peer, ranks, [f"{way}:{path}" for way in WAYS]) for peer in peers]
                least = 1e-3 * machine.bound("allreduce", ranks, 4 * elements)
                lines.append((ranks, text, str(path), least))

    comparison = compare.Comparison("gradients", compare.EFFORTS[args.effort], args.seconds)
    comparison.run(sorted(starts, key=lambda each: each[1]))

    def milliseconds(peer: compare.Peer, ranks: int, case: str) -> float | None:
        median = comparison.median(ranks, peer.name, case)
        return median and median * 1e-3

    parts = []
    figure, axes = publish.figure(len(lines))
    for each, (ranks, text, file, least) in zip(axes, lines, strict=True):
        rows = []
        for way in WAYS:
            case, ours = f"{way}:{file}", f"async:{file}"
            rows.append([way, *(publish.cell(comparison, ranks, peer, case, ours, 1e-3) for peer in peers)])
        parts.append(publish.table([f"{text}, ms", *(peer.name for peer in peers)], rows))
        nearest = "; ".join(best_peers(comparison, peers, ranks, file))
        parts.append(f"Bound: {publish.number(least)} ms. Nearest peer {nearest}.")
        times = {peer.name: [milliseconds(peer, ranks, f"{way}:{file}") for way in WAYS] for peer in peers}
        publish.bars(each, WAYS, times, "ms (median)")
        each.set_title(text, fontsize=10)
        each.tick_params(axis="x", rotation=20)
    figure.savefig(args.output / "gradients.png", dpi=110)
    return publish.write(comparison, args.output, "\n\n".join(parts))


if __name__ == "__main__":
    sys.exit(main())
