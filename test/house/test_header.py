"""The public header compiles as plain C11 and as C++17, with every warning an error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize(
    ("compiler", "standard", "source"), [("cc", "c11", "header.c"), ("c++", "c++17", "header.cpp")]
)
def test_public_header(compiler: str, standard: str, source: str) -> None:
    options = [
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-fsyntax-only",
        f"-I{HERE.parents[1] / 'include'}",
    ]
    words = [compiler, f"-std={standard}", *options, str(HERE / source)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
