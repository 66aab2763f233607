"""What the installed extension needs and offers: one file for every CPython from 3.10 on, no framework."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import horovod
from horovod import _core

pytestmark = pytest.mark.own_process
PATH = Path(str(_core.__file__))
TENSORFLOW = PATH.parent / "libhorovod_tensorflow.so"


def symbols(*options: str, path: Path = PATH) -> list[str]:
    words = ["nm", "--dynamic", *options, str(path)]
    lines = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return [line.split()[-1] for line in lines]


def test_stable_interface() -> None:
    assert PATH.name == "_core.abi3.so"
    assert PATH.stat().st_size < 2_000_000


@pytest.mark.parametrize("path", [PATH, TENSORFLOW], ids=["core", "tensorflow"])
def test_needs_only_libc_and_python(path: Path) -> None:
    harmless = r".*@GLIBC_[\d.]+|_ITM_\w+|__gmon_start__|__cxa_finalize"
    if path is PATH:
        harmless += r"|_?Py\w+"
    needed = symbols("--undefined-only", path=path)
    assert not [symbol for symbol in needed if not re.fullmatch(harmless, symbol)]


def test_offers_only_the_public_interface() -> None:
    offered = symbols("--defined-only", "--extern-only")
    assert "hvd_init" in offered and "PyInit__core" in offered
    assert not [symbol for symbol in offered if not re.match(r"hvd_|PyInit__core$", symbol)]


def test_the_operations_of_tensorflow_offer_only_their_entry() -> None:
    assert symbols("--defined-only", "--extern-only", path=TENSORFLOW) == ["horovod_tensorflow_bind"]


def test_loads_neither_a_framework_nor_the_launcher() -> None:
    """The launcher is imported when it is first used."""
    unwanted = ["torch", "tensorflow", "jax", "numpy", "cloudpickle", "horovod.runner"]
    code = (
        f"import horovod, sys; print([name for name in {unwanted} if name in sys.modules]);"
        "print(horovod.run is sys.modules['horovod.runner'].run, horovod.runner.__name__)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout == "[]\nTrue horovod.runner\n", result.stderr


def test_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import horovod.torch"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install torch" in result.stderr.splitlines()[-1]


def test_carries_its_licences() -> None:
    files = [path.name for path in metadata.files("horovod") or [] if "dist-info" in str(path)]
    assert {"LICENSE", "THIRD-PARTY-NOTICES"} <= set(files)


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", horovod.__version__)
