"""Writes src/device/cuda_kernels_ptx.c from cuda_kernels.cu: `python tools/kernels.py`.

It needs clang 14, Debian 12's, and nothing of CUDA. The PTX is of the oldest version that has all the kernels
use, since a driver refuses PTX that is newer than itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "device" / "cuda_kernels.cu"
PAGE = SOURCE.with_name("cuda_kernels_ptx.c")
CLANG = "clang-14"  # others write the same kernels in another order

HEAD = """/* cuda_kernels_ptx.c - made from cuda_kernels.cu by tools/kernels.py. */
#include "device/cuda_kernels_ptx.h"

#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif

/* clang-format off */
const char cuda_kernels_ptx[] =
"""


def ptx_by_clang(clang: str) -> str:
    """The kernels for CUDA 9 and later, and for GPUs from Pascal on."""
    target = ["--cuda-gpu-arch=sm_60", "-Xclang", "-target-feature", "-Xclang", "+ptx60"]
    alone = ["--cuda-device-only", "--cuda-path=/nonexistent", "-nocudainc", "-nocudalib"]
    options = ["-x", "cuda", *alone, *target, "-O2", "-ffp-contract=off", "-Wall", "-Werror"]
    folders = [f"-I{ROOT / 'src'}"]
    command = [clang, *options, *folders, "-S", "-o", "-", str(SOURCE)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def page(ptx: str) -> str:
    """The C file: a string with a line for each of the PTX, without comments."""
    lines = [" ".join(line.split("//")[0].split()) for line in ptx.splitlines()]
    return HEAD + "\n".join(f'    "{line}\\n"' for line in lines if line) + ";\n"


if __name__ == "__main__":
    if not shutil.which(CLANG):
        sys.exit(f"{CLANG} is missing: `make deps` installs it beside clang-tidy on Debian 12")
    PAGE.write_text(page(ptx_by_clang(CLANG)))
