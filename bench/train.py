"""Measures images per second of training with this engine, DistributedDataParallel and the original Horovod.

    python bench/train.py                       needs horovodrun in PATH

The models are a small convolutional network, ResNet-18 for small images, and a multilayer perceptron whose
steps are mostly communication; SGD on random data, on 1 and 2 ranks. The ceiling is two processes that train
at the same time and exchange nothing. Idle is one rank that has called hvd.init() and trains as if it had
not.
"""

from __future__ import annotations

import sys

import compare
import publish

CASES = {
    "cnn:64": "CNN, batch 64, 1.2 M",
    "mlp:64": "MLP, batch 64, 5.8 M",
    "resnet18:16": "ResNet-18, batch 16, 11 M",
}
OURS: list[tuple[str, compare.Peer, int]] = [
    ("1 rank", compare.python_peer("alone", "peer_train.py", "apart"), 1),
    ("1 rank, hvd idle", compare.python_peer("idle", "peer_train.py", "idle"), 1),
    ("2 ranks, horovod.torch", compare.python_peer("horovod.torch", "peer_train.py", "horovod"), 2),
    ("2 ranks, DDP on Gloo", compare.python_peer("DDP", "peer_train.py", "ddp", beside="horovod.torch"), 2),
    ("2 ranks, ceiling", compare.python_peer("apart", "peer_train.py", "apart"), 2),
]


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=100)
    original = compare.original_peers("peer_train.py", "horovod") if args.effort == "full" else []
    columns = [*OURS, *((f"2 ranks, {peer.name}", peer, 2) for peer in original)]
    cases = list(CASES)[: {"tiny": 1, "quick": 2, "full": 3}[args.effort]]
    comparison = compare.Comparison("train", compare.EFFORTS[args.effort], args.seconds)
    comparison.run([(peer, ranks, cases) for _, peer, ranks in columns])

    def rate(peer: compare.Peer, ranks: int, case: str) -> float | None:
        step = comparison.median(ranks, peer.name, case)
        return step and 1e6 * ranks * int(case.split(":")[1]) / step

    rows = []
    for case in cases:
        rivals = [(peer.name, case) for _, peer, _ in columns if peer.beside]
        nearest = comparison.nearest(2, rivals, "horovod.torch", case)
        cells = [publish.number(rate(peer, ranks, case)) for _, peer, ranks in columns]
        rows.append([CASES[case], *cells, f"{nearest[0]:.2f} ({nearest[1]})" if nearest else "-"])
    head = ["images a second", *(text for text, _, _ in columns), "horovod.torch / best peer"]

    figure, axes = publish.figure(len(cases))
    for each, case in zip(axes, cases, strict=True):
        series = {text: [rate(peer, ranks, case)] for text, peer, ranks in columns}
        publish.bars(each, [CASES[case]], series, "images a second")
    figure.savefig(args.output / "train.png", dpi=110)
    return publish.write(comparison, args.output, publish.table(head, rows))


if __name__ == "__main__":
    sys.exit(main())
