"""The wheel of this machine, and the sdist, in root trees of an older and of newer Debians."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import bundle
import pytest
import tomllib
from trial import ROOT, SMOKE, call, download, tree

# Debian 11 has CPython 3.9, which is too old: 3.11 of Debian 12 is compiled there.
PYTHON = "pool/main/p/python3.11/python3.11_3.11.2.orig.tar.gz"
PYTHON_SHA256 = "2411c74bda5bbcfcddaf4531f66d1adc73f247f529aee981b029513aefdbf849"
COMPILE = """
set -e
cd /python/*/
./configure -q --prefix=/usr/local --with-ensurepip=install --disable-test-modules CFLAGS=-O1
make -s -j2 >/python/log 2>&1
make -s install >>/python/log 2>&1
"""


def old_debian() -> Path:
    packages = ["gcc", "cmake", "libc6-dev", "make", "zlib1g-dev", "libffi-dev"]
    folder = tree("debian-11", "bullseye", packages, "--variant=apt")
    if not (folder / "usr/local/bin/python3.11").exists():
        shutil.rmtree(folder / "python", ignore_errors=True)
        bundle.unpack(PYTHON, bundle.fetch(PYTHON, PYTHON_SHA256), folder / "python")
        call("chroot", folder, "sh", "-c", COMPILE, seconds=1200)
    return folder


def newer(name: str, suite: str, *more: str) -> Path:
    late = '--aptopt=Acquire::Check-Valid-Until "false"'  # a mirror may lag behind
    return tree(name, suite, ["python3", "python3-venv", *more], "--variant=apt", late)


def needed_by(package: Path) -> list[str | Path]:
    """What pip must find, for it to install a wheel or to build an sdist where CMake is and Ninja is not."""
    if package.suffix == ".whl":
        return [package]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [*project["project"]["dependencies"], *project["build-system"]["requires"], "ninja"]


def run_in(folder: Path, python: str, package: Path) -> str:
    """Installs into a virtual environment there, without a network, and starts two ranks."""
    inside = ["chroot", str(folder)]
    version = call(*inside, python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()
    shutil.rmtree(folder / "try", ignore_errors=True)
    (folder / "try").mkdir()
    download(version, folder / "try/wheels", *needed_by(package))
    shutil.copy(package, folder / "try/wheels")
    shutil.copy(SMOKE, folder / "try/smoke.py")
    mounted = not (folder / "proc/self").exists()
    if mounted:
        call("mount", "-t", "proc", "proc", folder / "proc")
        call("mount", "-t", "tmpfs", "tmpfs", folder / "dev/shm")
    try:
        call(*inside, python, "-m", "venv", "/try/venv")
        call(
            *inside,
            "/try/venv/bin/pip",
            "install",
            "-q",
            "--no-index",
            "--find-links",
            "/try/wheels",
            "horovod",
            seconds=900,
        )
        inside += ["env", "PATH=/try/venv/bin:/usr/bin:/bin", "horovodrun"]
        said = call(*inside, "-np", "2", "python", "/try/smoke.py").stdout
        check = call(*inside, "--check-build").stdout
    finally:
        if mounted:
            call("umount", folder / "dev/shm")
            call("umount", folder / "proc")
    assert "[X] NumPy" in check
    print(said, end="")
    return said


def test_debian_11(wheel: Path) -> None:
    assert "glibc 2.31" in run_in(old_debian(), "/usr/local/bin/python3.11", wheel)


@pytest.mark.parametrize(("name", "suite"), [("debian-13", "trixie"), ("debian-forky", "forky")])
def test_newer_debians(name: str, suite: str, wheel: Path) -> None:
    assert f"smoke: 2 ranks of {platform.machine()}" in run_in(newer(name, suite), "python3", wheel)


def test_the_sdist_where_a_compiler_and_cmake_are(sdist: Path) -> None:
    folder = newer("debian-13-gcc", "trixie", "gcc", "libc6-dev", "cmake", "libpython3-dev")
    for header in ("sodium.h", "uv.h", "yaml.h", "xxhash.h"):
        assert not (folder / "usr/include" / header).exists()
    assert f"smoke: 2 ranks of {platform.machine()}" in run_in(folder, "python3", sdist)


def test_the_sdist_on_debian_11(sdist: Path) -> None:
    assert "glibc 2.31" in run_in(old_debian(), "/usr/local/bin/python3.11", sdist)
