"""Compares this tree with another build of it, such as the last release: which rows have become worse?

    python bench/before.py ../horovod-before    needs `make install` in both checkouts

All rows of collectives.py and gradients.py that are ours, and the memory of ResNet-50 as in memory.py, the
builds in turns. How fast a core is changes from second to second, by its neighbours, so a ratio is the median
of those of the rounds, in each of which the builds are measured one after the other; a time is the one that a
quarter of the starts stay below. The build from before is measured twice: the ratio of a row to itself shows
the machine's noise. Prints a table; 1 if a ratio is below 0.9.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import collectives
import compare
import gradients
import memory
import publish

LEAST = 0.9
SHORT = compare.Effort(0.02, 100)
NAMES = ("before", "now", "before again")


def build_of(name: str, checkout: Path) -> list[compare.Peer]:
    """The programs of one checkout, from C and from PyTorch."""
    commands = checkout / ".venv" / "bin"
    launcher = (str(commands / "horovodrun"),)
    worker = str(checkout / "build" / "bench" / "bench_peer_horovod")
    python = (str(commands / "python"), str(checkout / "bench" / "peer_torch.py"), "horovod")
    return [compare.Peer(f"C, {name}", launcher, (worker,)), compare.Peer(f"torch, {name}", launcher, python)]


def gradient_starts(effort: str, folder: Path) -> list[tuple[int, list[str]]]:
    """Ranks and cases that one start of a peer measures."""
    starts = []
    for network, all_ranks in gradients.NETWORKS[effort].items():
        path, _, elements = gradients.write_counts(folder, network, effort == "tiny")
        cases = [f"{way}:{path}" for way in ("async", "grouped")]
        starts += [(ranks, cases) for ranks in all_ranks if gradients.fits(network, ranks, elements)]
    return starts


def memory_starts(effort: str, folder: Path) -> list[tuple[int, list[str]]]:
    cases = memory.make_cases("tiny" if effort == "tiny" else "quick", folder)
    return [(ranks, [f"memory:{path}"]) for _, ranks, path in cases]


def quartile(times: dict[int, float]) -> float | None:
    """The time that a quarter of the starts stay below."""
    return statistics.quantiles(times.values(), n=4, method="inclusive")[0] if len(times) > 1 else None


def ratio_of(before: dict[int, float], other: dict[int, float]) -> float | None:
    """The median over the rounds that have both."""
    ratios = [before[each] / other[each] for each in before.keys() & other.keys()]
    return statistics.median(ratios) if ratios else None


def main() -> int:
    """Measures and prints; 1 if a row is worse or a build failed."""
    args = compare.arguments(__doc__, seconds=1200, more=["checkout"])
    checkouts = (args.checkout.absolute(), compare.ROOT, args.checkout.absolute())
    builds = zip(*map(build_of, NAMES, checkouts), strict=True)
    trios = list(builds)  # of C, of PyTorch
    counts = [2] if args.effort == "tiny" else [2, 4]
    parts = [
        [(ranks, collectives.all_cases(args.effort)) for ranks in counts],
        gradient_starts(args.effort, args.output),
        memory_starts(args.effort, args.output),
    ]
    if args.effort == "tiny":  # one start for all
        parts = [[(2, [case for part in parts for _, cases in part for case in cases])]]
    effort = SHORT if args.effort == "full" else compare.EFFORTS[args.effort]
    comparison = compare.Comparison("before", effort, args.seconds / len(parts))
    for starts in parts:
        comparison.run(
            [(peer, ranks, cases) for ranks, cases in starts for trio in trios for peer in trio], whole=True
        )

    rows, below = [], [0, 0]
    for ranks, cases in [start for part in parts for start in part]:
        for trio in trios:
            for case in cases:
                before, *others = (comparison.by_round(ranks, peer.name, case) for peer in trio)
                ratios = [ratio_of(before, other) for other in others]
                for i, ratio in enumerate(ratios):
                    below[i] += ratio is not None and ratio < LEAST
                way, _, what = case.partition(":")
                text = f"{trio[0].name.split(',')[0]}, {ranks} ranks, {way} {Path(what).stem}"
                rows.append([text, *map(publish.number, [quartile(before), quartile(others[0]), *ratios])])
    heads = [
        "row",
        *(f"{name}, µs or KiB" for name in NAMES[:2]),
        *(f"before / {name}" for name in NAMES[1:]),
    ]
    print(publish.table(heads, rows))
    print(f"{below[0]} of {len(rows)} rows are below {LEAST}, {below[1]} of the build compared with itself.")
    print(comparison.conditions())
    comparison.write_csv(args.output / "before.csv")
    return 1 if below[0] or comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
