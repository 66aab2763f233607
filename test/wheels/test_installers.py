"""The wheel of this machine on each CPython, and by each way of installing."""

from __future__ import annotations

import re
import sys
import time
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest
from trial import SMOKE, VERSIONS, call, interpreter, run_ranks

UV = Path(sys.executable).with_name("uv")
EXTRAS = {
    "torch": {"torch"},
    "pytorch": {"torch"},
    "tensorflow": {"tensorflow"},
    "keras": {"keras", "tensorflow"},
    "jax": {"jax", "optax"},
    "mxnet": {"mxnet"},
    "spark": {"pyspark", "pyarrow", "pandas", "fsspec"},
    "ray": {"ray"},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python(version: str, wheel: Path, tmp_path: Path) -> None:
    call(interpreter(version), "-m", "venv", tmp_path / "venv")
    start = time.monotonic()
    call(tmp_path / "venv/bin/python", "-m", "pip", "install", "-q", "--only-binary=:all:", wheel)
    call(tmp_path / "venv/bin/python", SMOKE)
    print(f"from pip install to the first allreduces: {time.monotonic() - start:.1f} s")
    run_ranks(tmp_path / "venv/bin", [tmp_path / "venv/bin/python"])


def test_a_folder_with_blanks(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a folder with blanks"
    call(sys.executable, "-m", "venv", folder)
    call(folder / "bin/python", "-m", "pip", "install", "-q", "--only-binary=:all:", wheel)
    run_ranks(folder / "bin", [folder / "bin/python"])


def test_uv(wheel: Path, tmp_path: Path) -> None:
    call(UV, "venv", "-q", "--no-config", "--python", sys.executable, tmp_path / "venv")
    call(UV, "pip", "install", "-q", "--python", tmp_path / "venv/bin/python", wheel)
    run_ranks(tmp_path / "venv/bin", [tmp_path / "venv/bin/python"])


def test_target(wheel: Path, tmp_path: Path) -> None:
    call(sys.executable, "-m", "pip", "install", "-q", "--target", tmp_path, wheel)
    run_ranks(tmp_path / "bin", [sys.executable], PYTHONPATH=str(tmp_path))


def test_user(wheel: Path, tmp_path: Path) -> None:
    python = interpreter(f"{sys.version_info[0]}.{sys.version_info[1]}")
    call(
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--user",
        "--ignore-installed",
        wheel,
        PYTHONUSERBASE=str(tmp_path),
    )
    run_ranks(tmp_path / "bin", [python], PYTHONUSERBASE=str(tmp_path))


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_can_be_installed(extra: str, wheel: Path, tmp_path: Path) -> None:
    """An installer finds versions that go together; without installing them."""
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"horovod[{extra}] @ {wheel.as_uri()}\n")
    chosen = call(UV, "pip", "compile", "-q", "--no-config", "--no-annotate", "--python-version=3.11", wanted)
    names = {re.split("==| @ ", line)[0] for line in chosen.stdout.splitlines()}
    assert names >= {"horovod", "numpy", "cloudpickle", *EXTRAS[extra]}


def test_no_extra_is_left_out(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(name))
    assert set(metadata.get_all("Provides-Extra", [])) == set(EXTRAS)
