"""What the tree says of the driver and NCCL, compared with NVIDIA's own headers where they are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kernels
import pytest

ROOT = Path(__file__).resolve().parents[2]


def cuda_home() -> Path:
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    if not (home / "include/cuda.h").exists():
        pytest.skip(f"there is no cuda.h in {home / 'include'}; CUDA_HOME names CUDA's folder")
    return home


def cuda_tool(name: str) -> Path:
    tool = cuda_home() / "bin" / name
    if not tool.exists():
        pytest.skip(f"there is no {tool}")
    return tool


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


def run_kernels(ptx: str, folder: Path) -> None:
    """The kernels, by the interpreter, do what the processor does."""
    program = ROOT / "build/test/unit_test_kernels"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    path = folder / "kernels.ptx"
    path.write_text(ptx)
    variables = {"HOROVOD_TEST_PTX": str(path), "HOROVOD_TEST_FILTER": "test_bits*"}
    subprocess.run([program], env=os.environ | variables, check=True, timeout=120)


def test_kernels_are_made_from_their_source() -> None:
    if not shutil.which(kernels.CLANG):
        pytest.skip(f"there is no {kernels.CLANG}")
    assert kernels.PAGE.read_text() == kernels.page(kernels.ptx_by_clang(kernels.CLANG)), (
        "run python tools/kernels.py"
    )


def kept_ptx() -> str:
    lines = re.findall(r'^    "(.*)\\n";?$', kernels.PAGE.read_text(), re.MULTILINE)
    return "\n".join(lines) + "\n"


def test_kernels_are_assembled_for_every_gpu(tmp_path: Path) -> None:
    ptxas = cuda_tool("ptxas")
    path = tmp_path / "kernels.ptx"
    path.write_text(kept_ptx())
    listed = [cuda_tool("nvcc"), "--list-gpu-code"]
    targets = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    assert targets
    for target in targets:
        if int(re.sub(r"\D", "", target)) >= 60:
            command = [ptxas, f"-arch={target}", "--warning-as-error", path, "-o", tmp_path / "out"]
            subprocess.run(command, check=True)


def test_kernels_by_other_compilers_do_the_same(tmp_path: Path) -> None:
    nvcc = cuda_tool("nvcc")
    made = [nvcc, "-ptx", f"-I{ROOT / 'src'}", kernels.SOURCE, "-o", tmp_path / "nvcc.ptx"]
    subprocess.run(made, check=True, env=os.environ | {"TMPDIR": str(tmp_path)})
    run_kernels((tmp_path / "nvcc.ptx").read_text(), tmp_path)
    if shutil.which("clang"):
        run_kernels(kernels.ptx_by_clang("clang"), tmp_path)
