"""Slow targets of the Makefile, and the scripts behind them, without their work."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
DEADLINE = 60.0

# Stands for `python` in bench/original.sh: notes every call and leaves what the real one would.
PYTHON = """#!/bin/sh
echo "$(pwd): $*" >>"$CALLS"
here=$(cd "$(dirname "$0")/.." && pwd)
case "$*" in
"-m venv "*) mkdir -p "$3/bin" "$3/site" && cp "$0" "$3/bin/python" ;;
*" download "*)
    release=horovod-${*##*==}
    while [ "$1" != -d ]; do shift; done
    mkdir -p "$2/$release/horovod/torch"
    echo 'set(CMAKE_CXX_STANDARD 14)' | tee "$2/$release/CMakeLists.txt" >"$2/$release/horovod/torch/CMakeLists.txt"
    tar -C "$2" -czf "$2/$release.tar.gz" "$release" && rm -r "$2/$release"
    ;;
*" install "*.) grep -h STANDARD CMakeLists.txt horovod/torch/CMakeLists.txt >>"$CALLS" ;;
*purelib*) echo "$here/site" ;;
esac
"""


def test_the_original_is_built_in_a_relative_folder(tmp_path: Path) -> None:
    """As `make bench-original` calls the script; all is real but Python."""
    python, calls = tmp_path / "stub" / "python", tmp_path / "calls"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    done = subprocess.run(
        ["sh", BENCH / "original.sh", "build/original"],
        cwd=tmp_path, env=os.environ | {"CALLS": str(calls), "PATH": f"{python.parent}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = calls.read_text().splitlines()
    (built,) = (number for number, line in enumerate(lines) if line.endswith("--no-build-isolation ."))
    assert lines[built].startswith(f"{tmp_path}/build/original/sources/horovod-")
    assert lines[built + 1 : built + 3] == 2 * ["set(CMAKE_CXX_STANDARD 20)"]
    assert "import horovod.torch" in lines[-1]
    assert not (tmp_path / "build/original/sources").exists()
