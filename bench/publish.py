"""Turns figures into Markdown tables and plots, and renews the sections of the pages on performance."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compare import EFFORTS, ROOT, Comparison, Peer

DOCS = ROOT / "docs"
WIDTH = 120


def number(value: float | None) -> str:
    """Three significant digits; a dash for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, all columns but the first to the right."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def cell(
    comparison: Comparison, ranks: int, peer: Peer, case: str, ours: str | None = None, scale: float = 1
) -> str:
    """The median, and in parentheses how many times as long as ours it took."""
    median = comparison.median(ranks, peer.name, case)
    text = number(median and median * scale)
    if peer.beside and median:
        ratio = comparison.ratio(ranks, peer.name, case, peer.beside, ours or case)
        text += f" ({ratio:.2f})" if ratio else ""
    return text


def byte_text(count: int) -> str:
    """4194304 as 4 MiB."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count // size} {unit}"
    return f"{count} B"


def figure(count: int) -> tuple[Any, list[Any]]:
    """A figure with that many axes in a row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    made, axes = pyplot.subplots(1, count, figsize=(6 * count, 4.8), layout="constrained", squeeze=False)
    return made, list(axes[0])


def bars(axes: Any, groups: Sequence[str], series: dict[str, list[float | None]], label: str) -> None:
    """Groups along the axis, one bar in each for every series."""
    width = 0.8 / max(len(series), 1)
    for index, (name, values) in enumerate(series.items()):
        places = [group + (index - (len(series) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(places, [value or 0 for value in values], width, label=name)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(label)
    axes.legend(fontsize=8)
    axes.grid(axis="y", alpha=0.3)


def write(comparison: Comparison, folder: Path, text: str) -> int:
    """Leaves table and CSV in the folder; the exit code says whether every peer ran."""
    comparison.write_csv(folder / f"{comparison.name}.csv")
    text = f"{text}\n\n{comparison.conditions()}\n"
    (folder / f"{comparison.name}.md").write_text(text)
    print(f"\n{text}\nwritten to {folder}/{comparison.name}.*", flush=True)
    return 1 if comparison.failures else 0


def two_ranks(args: Any, name: str, peers: Sequence[Peer], cases: dict[str, str]) -> int:
    """Measures the cases, given with their texts, on 2 ranks of each peer; writes a row for each."""
    comparison = Comparison(name, EFFORTS[args.effort], args.seconds)
    comparison.run([(peer, 2, list(cases)) for peer in peers])
    rows = [
        [
            f"{text}, {byte_text(int(case.split(':')[1]))}",
            *(cell(comparison, 2, peer, case) for peer in peers),
        ]
        for case, text in cases.items()
    ]
    return write(comparison, args.output, table(["2 ranks, µs", *(peer.name for peer in peers)], rows))


def pages(docs: Path) -> list[Path]:
    """The summary and its subpages, in the folder of all pages."""
    return [docs / "performance.md", *sorted((docs / "performance").glob("*.md"))]


def renew(docs: Path, section: str, text: str) -> None:
    """Replaces the text between the markers of the section, which exactly one page has.

    Prose is wrapped at the width of the pages; rows of tables stay whole.
    """
    lines = [
        line if line.startswith("|") else textwrap.fill(line, WIDTH) for line in text.strip().split("\n")
    ]
    text = "\n".join(lines)
    pattern = re.compile(rf"(<!-- begin {section} -->\n).*?(<!-- end {section} -->)", re.DOTALL)
    texts = {page: page.read_text() for page in pages(docs)}
    found = [page for page, old in texts.items() for _ in pattern.findall(old)]
    if len(found) != 1:
        raise ValueError(f"the pages have {len(found)} sections {section}, and should have one")
    found[0].write_text(pattern.sub(lambda match: f"{match[1]}{text}\n{match[2]}", texts[found[0]]))
