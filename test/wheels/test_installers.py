"""The wheel of this machine on each CPython, and by each way of installing."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from trial import SMOKE, VERSIONS, call, interpreter, run_ranks

UV = Path(sys.executable).with_name("uv")


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


def test_extras(wheel: Path, tmp_path: Path) -> None:
    """What the extras would install, without installing it."""
    from email import message_from_bytes
    from zipfile import ZipFile

    with ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(name))
    assert {"torch", "pytorch", "tensorflow", "keras", "jax", "mxnet"} == set(
        metadata.get_all("Provides-Extra", [])
    )
    assert 'torch; extra == "torch"' in [
        text.replace("'", '"') for text in metadata.get_all("Requires-Dist", [])
    ]
