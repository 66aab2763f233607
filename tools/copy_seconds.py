"""Copies what each kind of tests took from build/results/summary into the table of CONTRIBUTING.md.

python tools/copy_seconds.py     after `make test` on two otherwise idle cores
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    summary = (ROOT / "build/results/summary").read_text()
    page = ROOT / "CONTRIBUTING.md"
    text = page.read_text()
    for kind, seconds in re.findall(r"(?m)^(\w+) +\d+ +\d+ +\d+ +([\d.]+)", summary):
        row = re.compile(rf"(?m)^(\| `make test-{kind}` \|.*\| )\d+ \|$")
        text, count = row.subn(rf"\g<1>{float(seconds):.0f} |", text)
        if count != 1:
            raise SystemExit(f"CONTRIBUTING.md has {count} rows for {kind}")
    page.write_text(text)


if __name__ == "__main__":
    main()
