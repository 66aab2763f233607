"""The measurement of scaling in deploy/reference, on two ranks of this host; test/deploy has it on four."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from conftest import Launcher

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "deploy" / "reference" / "shared" / "evaluate.py"


def test_it_writes_a_table_and_a_plot(launcher: Launcher) -> None:
    (launcher.folder / "HOSTLIST").write_text("# this host\nlocalhost slots=2 # two ranks\n")
    words = ["--hostfile", "HOSTLIST", "--models", "resnet8", "--batch-size", "2", "--steps", "1"]
    result = launcher.run(str(PROGRAM), *words, program=sys.executable, seconds=120)
    assert result.returncode == 0, result.stdout + result.stderr
    folder = launcher.folder / "results"
    table = (folder / "scaling.md").read_text()
    assert re.search(r"^\| resnet8 \| 1 \| 2 \| \d+ \| \d+ to \d+ \| 100% \|$", table, re.MULTILINE), table
    assert "share its cores" not in table and table in result.stdout
    [row] = json.loads((folder / "scaling.json").read_text())
    assert row["lowest"] <= row["images_per_second"] <= row["highest"] and row["machines"] == 1
    assert (folder / "scaling.png").read_bytes().startswith(b"\x89PNG")
