"""What the tree says of the driver and NCCL, compared with NVIDIA's own headers where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def cuda_home() -> Path:
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    if not (home / "include/cuda.h").exists():
        pytest.skip(f"there is no cuda.h in {home / 'include'}; CUDA_HOME names CUDA's folder")
    return home


def compile_calls(source: str, *includes: Path) -> str:
    """The compiler's errors; an empty text: there are none."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("there is no C compiler")
    folders = [f"-I{each}" for each in (ROOT / "src", ROOT / "test", *includes)]
    return subprocess.run(
        [compiler, "-std=c17", "-fsyntax-only", "-Werror", *folders, "-x", "c", "-"],
        input=source,
        capture_output=True,
        text=True,
    ).stderr


def test_functions_of_the_driver_are_declared_as_in_cuda_h() -> None:
    include = cuda_home() / "include"
    source = (ROOT / "test/standin/calls_of_cuda_h.c").read_text()
    assert not compile_calls(source, include)
    assert "incompatible" in compile_calls(source + "SAME(wrong, cuMemFree_v2, (void *address))\n", include)
    assert "differs" in compile_calls(source + "SAME_VALUE(CUDA_OK, CUDA_ERROR_UNKNOWN)\n", include)


def nccl_folder() -> Path:
    """That of nccl.h: NCCL_HOME's, or the one of the package nvidia.nccl."""
    homes = [os.environ.get("NCCL_HOME", "/usr"), *(f"{each}/nvidia/nccl" for each in sys.path)]
    for home in homes:
        if (Path(home) / "include/nccl.h").exists():
            return Path(home) / "include"
    pytest.skip("there is no nccl.h; NCCL_HOME names NCCL's folder")


def test_functions_of_nccl_are_declared_as_in_nccl_h() -> None:
    include = cuda_home() / "include"
    source = (ROOT / "test/standin/nccl/calls_of_nccl_h.c").read_text()
    folder = nccl_folder()
    assert not compile_calls(source, include, folder)
    wrong = "SAME(ncclResult_t, wrong, ncclCommAbort, (int comm))\n"
    assert "incompatible" in compile_calls(source + wrong, include, folder)
    assert "differs" in compile_calls(source + "SAME_VALUE(NCCL_OK, ncclSystemError)\n", include, folder)
