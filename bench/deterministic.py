"""Measures the cost of the deterministic mode: the C interface with and without it, in turns.

    python bench/deterministic.py               needs horovodrun in PATH and `make build`

The cases are float32 sums in place, and ResNet-50's gradients submitted all at once. In parentheses: how many
times as long it takes as without the mode.
"""

from __future__ import annotations

import dataclasses
import sys

import compare
import gradients
import publish

SIZES = [4 << 10, 64 << 10, 4 << 20, 64 << 20]


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=60)
    is_tiny = args.effort == "tiny"
    path, tensors, elements = gradients.write_counts(args.output, "resnet50", is_tiny)
    texts = {
        f"allreduce:{size}": f"allreduce {publish.byte_text(size)}"
        for size in (SIZES[:2] if is_tiny else SIZES)
    } | {f"async:{path}": f"ResNet-50: {tensors} tensors, {4e-6 * elements:,.0f} MB"}
    ranks = [3] if is_tiny else [2, 4]
    plain = compare.C_PEER
    ordered = dataclasses.replace(
        plain, name="deterministic", launcher=(*plain.launcher, "--deterministic"), beside=plain.name
    )

    comparison = compare.Comparison("deterministic", compare.EFFORTS[args.effort], args.seconds)
    comparison.run([(peer, count, list(texts)) for count in ranks for peer in (plain, ordered)])
    parts = []
    for count in ranks:
        head = [f"{count} ranks, µs", "default", ordered.name]
        rows = [
            [text, *(publish.cell(comparison, count, peer, case) for peer in (plain, ordered))]
            for case, text in texts.items()
        ]
        parts.append(publish.table(head, rows))
    return publish.write(comparison, args.output, "\n\n".join(parts))


if __name__ == "__main__":
    sys.exit(main())
