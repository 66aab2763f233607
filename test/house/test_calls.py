"""Names and layers of the C files: one header for each file, and no files that call each other in a ring."""

from __future__ import annotations

import re
from pathlib import Path

import call_circles
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(
    {path.parent.relative_to(ROOT) for top in ("src", "launch") for path in (ROOT / top).rglob("*.c")}
)

# Files that are chosen by a table in C, or are public alone, and their header.
ROWS = {
    "src/engine/api.h": {"epochs", "process_sets"},
    "launch/starter.h": {"local"},
    "src/backend/mpi_calls.h": {"mpi_mpich", "mpi_openmpi", "mpi_standard"},
    "src/device/memory.h": {"memory_cuda"},
    "src/device/reduce.h": {"reduce_half", "reduce_neon", "reduce_plain", "reduce_x86"},
}


def named_by_a_table(path: Path) -> bool:
    """A file of rows of a .def table is called as its row, or as the operation that its rows share."""
    for table in path.parent.glob("*.def"):
        for row in re.findall(r"^[A-Z_]+\((\w+)", table.read_text(), re.MULTILINE):
            if path.stem in (table.stem, row) or row.startswith(path.stem + "_"):
                return True
    return False


def has_header(path: Path) -> bool:
    rows = any(path.parent == (ROOT / name).parent and path.stem in stems for name, stems in ROWS.items())
    return path.with_suffix(".h").exists() or rows or named_by_a_table(path) or path.stem == "main"


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_every_c_file_has_its_header(folder: Path) -> None:
    wrong = [path.name for path in sorted((ROOT / folder).glob("*.c")) if not has_header(path)]
    assert not wrong


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_no_files_call_each_other_in_a_ring(folder: Path) -> None:
    found = call_circles.report(ROOT / folder)
    assert not found, found


def test_a_ring_of_files_is_found(tmp_path: Path) -> None:
    """A ring of three files; static functions, comments, strings and members do not count as calls."""
    (tmp_path / "a.c").write_text(
        "void a(void)\n{\n    b();\n}\n\nstatic int d(\n    int x)\n{\n    return x;\n}\n"
    )
    (tmp_path / "b.c").write_text("void b(void)\n{\n    c();\n}\n")
    (tmp_path / "c.c").write_text(
        'int c(void)\n{\n    puts("d()"); /* d() */\n    x->d();\n    return d;\n}\n'
    )
    (tmp_path / "d.c").write_text("void e(void)\n{\n    a();\n}\n")
    assert not call_circles.circles(call_circles.calls(tmp_path))
    (tmp_path / "c.c").write_text("int c(void)\n{\n    return a();\n}\n")
    assert call_circles.circles(call_circles.calls(tmp_path)) == [["a.c", "b.c", "c.c"]]
