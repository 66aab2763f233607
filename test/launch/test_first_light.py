"""The script for a machine with a GPU runs here: the driver's part on the stand-in, the others on the CPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DEADLINE

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "test/gpu/first_light.py"
BUILD = Path(os.environ.get("HVD_BUILD", ROOT / "build"))


def first_light(call: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (wheel,) = (BUILD / "wheels").glob("*.whl")
    shutil.copy(wheel, folder)
    words = [sys.executable, str(SCRIPT), call, "--device", "cpu", "--ranks", "2", "--folder", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, timeout=5 * DEADLINE)


def test_operations_of_the_driver(tmp_path: Path) -> None:
    for name in ("group_test_join-cuda", "group_test_cuda", "unit_test_kernels"):
        (tmp_path / name).symlink_to(BUILD / "test" / name)
    (tmp_path / "group_test_wrong-cuda").write_text("#!/bin/sh\necho what is wrong\nexit 3\n")
    (tmp_path / "group_test_wrong-cuda").chmod(0o755)
    done = first_light("driver", tmp_path)
    assert done.returncode == 1, done
    for words in (
        r"^horovod of this tree +ok .* GPUs: ",
        r"^operations in C, group_test_cuda +ok .* \d+ tests$",
        r"^operations in C, unit_test_kernels +ok .* 4 tests$",
        r"^operations in C, group_test_join-cuda +ok .* \d+ tests$",
        r"^operations in C, group_test_wrong-cuda +FAILED .* exit code 3: what is wrong$",
        r"^memcheck +skipped .* needs compute-sanitizer and a GPU$",
        r"^[45] passed, 1 failed$",
    ):
        assert re.search(words, done.stdout, re.MULTILINE), (words, done.stdout)


@pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")
@pytest.mark.parametrize("call", ["frameworks", "speed"])
def test_pytorch(call: str, tmp_path: Path) -> None:
    done = first_light(call, tmp_path)
    assert done.returncode == 0 and "2 passed, 0 failed" in done.stdout, done


def test_nothing_was_collected(tmp_path: Path) -> None:
    words = [sys.executable, str(SCRIPT), "driver", "--folder", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1
    assert "`make first-light` collects one" in done.stdout
