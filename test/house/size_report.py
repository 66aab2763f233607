"""Prints the size and shape of the tree beside the limits: `python test/house/size_report.py`.

Lines of code, lines of files and functions, cyclomatic complexity, the share of comment lines, and the share
of code lines inside a window of ten lines that occurs more than once. The tests assert the maxima of files
and functions. Where the median function of C is below the aim, there are too many steps.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import lizard

ROOT = Path(__file__).resolve().parents[2]
WINDOW = 10
COMMENT = {
    "C": re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL),
    "Python": re.compile(r'"""(?:.*?)"""|#[^\n]*', re.DOTALL),
}


@dataclass(frozen=True)
class Gates:
    """The longest file and function that the tests allow, and the goals."""

    file_lines: int
    function_lines: int
    median_function: str
    complexity: tuple[float, int]


GATES = {
    "C": Gates(1300, 90, "above 12", (4.0, 10)),
    "Python": Gates(700, 70, "up to 8", (2.7, 8)),
}
FOLDERS = {"C": ("include", "src", "launch"), "Python": ("python",)}
SUFFIXES = {"C": (".c", ".h"), "Python": (".py",)}


@dataclass
class Sizes:
    """What was measured of one language."""

    files: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    complexity: list[int] = field(default_factory=list)
    code: list[list[str]] = field(default_factory=list)
    comment_lines: int = 0

    def add(self, language: str, path: Path) -> None:
        text = path.read_text()
        name = str(path.relative_to(ROOT))
        comments = COMMENT[language].findall(text)
        bare = COMMENT[language].sub("", text)
        self.files[name] = text.count("\n")
        self.code.append([line.strip() for line in bare.splitlines() if line.strip()])
        self.comment_lines += sum(len(re.findall(r"^.*\w.*$", each, re.MULTILINE)) for each in comments)
        self.add_functions(name, lizard.analyze_file.analyze_source_code(name, text).function_list)

    def add_functions(self, name: str, found: list[Any]) -> None:
        for function in found:
            lines = function.end_line - function.start_line + 1
            self.functions[f"{name}:{function.start_line} {function.name}"] = lines
            self.complexity.append(function.cyclomatic_complexity)

    def duplicated(self) -> float:
        """Share of code lines inside a window that occurs more than once in the tree."""
        windows = [
            [tuple(code[at : at + WINDOW]) for at in range(len(code) - WINDOW + 1)] for code in self.code
        ]
        seen = Counter(window for each in windows for window in each)
        covered = 0
        for each in windows:
            covered += len(
                {at + i for at, window in enumerate(each) if seen[window] > 1 for i in range(WINDOW)}
            )
        return covered / max(1, sum(map(len, self.code)))


def measure(language: str) -> Sizes:
    sizes = Sizes()
    for folder in FOLDERS[language]:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES[language]:
                sizes.add(language, path)
    return sizes


def percentile(values: list[int]) -> int:
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)]


def triple(values: list[int]) -> str:
    return f"{median(values):.0f} / {percentile(values)} / {max(values)}"


def report(language: str, sizes: Sizes) -> str:
    gates, lines = GATES[language], sum(map(len, sizes.code))
    commented = sizes.comment_lines / max(1, sizes.comment_lines + lines)
    rows = [
        ("lines of code", str(lines), ""),
        ("files", str(len(sizes.files)), ""),
        ("file lines", triple(list(sizes.files.values())), f"maximum {gates.file_lines}"),
        ("functions", str(len(sizes.functions)), ""),
        (
            "function lines",
            triple(list(sizes.functions.values())),
            f"median {gates.median_function}, maximum {gates.function_lines}",
        ),
        (
            "complexity",
            f"{mean(sizes.complexity):.1f} / {percentile(sizes.complexity)}",
            "<= {} / {}".format(*gates.complexity),
        ),
        ("comments", f"{commented:.0%}", "12 to 25 %"),
        ("duplicated", f"{sizes.duplicated():.1%}", "<= 2 %"),
    ]
    text = [f"{language:16s} {'median / p95 / max':>20s}   gate"]
    text += [f"{name:16s} {value:>20s}   {gate}" for name, value, gate in rows]
    longest_file = max(sizes.files, key=lambda name: sizes.files[name])
    longest_function = max(sizes.functions, key=lambda name: sizes.functions[name])
    return "\n".join([*text, f"longest file: {longest_file}", f"longest function: {longest_function}"])


if __name__ == "__main__":
    for each in GATES:
        print(report(each, measure(each)), end="\n\n")
