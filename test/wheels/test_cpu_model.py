"""What zig compiles finds out what the processor can do, though zig's own library does not know."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
import trial

PROGRAM = """
#include <stdio.h>
__attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
double twice(double x) { return x + x; }
#define SAY(name) if (__builtin_cpu_supports(#name)) puts(#name)
int main(void)
{
    SAY(avx); SAY(avx2); SAY(f16c); SAY(avx512f); SAY(avx512bw); SAY(avx512dq); SAY(avx512bf16);
    SAY(x86-64-v2); SAY(x86-64-v3); SAY(x86-64-v4);
    return twice(1) != 2;
}
"""
LEVELS = {
    "x86-64-v2": "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has levels")
def test_all_features_are_found(tmp_path: Path) -> None:
    ziglang = pytest.importorskip("ziglang", reason="no ziglang: pip install -r requirements-release.txt")
    (tmp_path / "program.c").write_text(PROGRAM)
    sources = ["program.c", trial.ROOT / "src/device/cpu_model.c"]
    words = ["cc", "-O1", "-DHVD_OWN_CPU_MODEL", f"-I{trial.ROOT}/src", *sources, "-o", "program"]
    zig = Path(str(ziglang.__file__)).parent / "zig"
    subprocess.run([zig, *words], cwd=tmp_path, check=True, timeout=300)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True, timeout=60)
    (line,) = {line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")}
    flags = set(line.replace("avx512_bf16", "avx512bf16").split())
    known = {"avx", "avx2", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512bf16"} & flags
    for level, names in LEVELS.items():
        if not set(names.split()) <= flags:
            break
        known.add(level)
    assert set(done.stdout.split()) == known
