"""The workflow files: their schema, and zizmor's rules for their safety."""

from __future__ import annotations

import sys
from pathlib import Path

from trial import ROOT, call

WORKFLOWS = ROOT / ".github/workflows"
TOOLS = Path(sys.executable).parent


def test_schema() -> None:
    call(TOOLS / "check-jsonschema", "--builtin-schema=vendor.github-workflows", *WORKFLOWS.glob("*.yml"))


def test_safety() -> None:
    call(TOOLS / "zizmor", "--offline", "--no-progress", WORKFLOWS)


def test_commands_exist() -> None:
    """A target that a workflow makes is one of the Makefile's."""
    makefile = (ROOT / "Makefile").read_text()
    for path in WORKFLOWS.glob("*.yml"):
        for line in path.read_text().splitlines():
            word, _, target = line.strip().removeprefix("- run: ").partition(" ")
            assert word != "make" or f"\n{target}:" in makefile, f"{path.name}: make {target}"
