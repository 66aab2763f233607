"""Prints files that call each other in a ring: `python test/house/call_circles.py FOLDER...`.

A file calls another one where the body of one of its functions names a function that the other one defines.
Static functions belong to their own file; calls through pointers are not seen. Files have to be formatted by
clang-format: definitions, and the braces around their bodies, are at the start of a line.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

HEAD = r"^([A-Za-z_](?:(?!\n\n)[^;{}=#])*?[\s*])(\w+)\((?:(?!\n\n)[^;{}])*\)"
FUNCTION = re.compile(HEAD + r"\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
NOT_CODE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)

Calls = dict[str, dict[str, set[str]]]


def calls(folder: Path) -> Calls:
    """For each file of the folder and each other file that it calls: the names of the called functions."""
    named: dict[str, set[str]] = {}
    public: dict[str, str] = {}
    for path in sorted(folder.glob("*.c")):
        functions = FUNCTION.findall(NOT_CODE.sub("", path.read_text()))
        bodies = [set(re.findall(r"(?<![.>\w])[a-z_]\w*", body)) for _, _, body in functions]
        own = {name for _, name, _ in functions}
        named[path.name] = set().union(*bodies) - own
        public |= {name: path.name for head, name, _ in functions if "static" not in head.split()}
    found: Calls = {name: defaultdict(set) for name in named}
    for name, words in named.items():
        for word in words & public.keys():
            found[name][public[word]].add(word)
    return found


def reached(graph: Calls, start: str) -> set[str]:
    """All files that `start` calls, directly or indirectly."""
    seen: set[str] = set()
    left = list(graph[start])
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += graph[name]
    return seen


def circles(graph: Calls) -> list[list[str]]:
    """The sets of files in which every file calls every other one, directly or indirectly."""
    below = {name: reached(graph, name) for name in graph}
    rings = {tuple(sorted(b for b in below[a] if a in below[b])) for a in graph}
    return [list(ring) for ring in sorted(rings) if len(ring) > 1]


def report(folder: Path) -> str:
    """Empty when no files of the folder call each other in a ring."""
    graph = calls(folder)
    lines = []
    for ring in circles(graph):
        lines.append(f"{folder}: {len(ring)} files call each other: {' '.join(ring)}")
        for name in ring:
            for other in sorted(graph[name].keys() & set(ring)):
                lines.append(f"  {name} -> {other}: {', '.join(sorted(graph[name][other]))}")
    return "\n".join(lines)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        if text := report(Path(each)):
            print(text)
