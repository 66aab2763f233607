"""The wheel for aarch64 by qemu: Python's basics on two ranks, and the unit tests."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import wheels
from trial import ROOT, SMOKE, call, tree, wheel_of

BUILD = ROOT / "build/aarch64"
QEMU = "qemu-aarch64-static"
# What each file tests is its name. Not shm_link: qemu has no process_vm_readv, and programs do without.
UNITS = (
    "reduce",
    "adasum",
    "finite",
    "types",
    "wire",
    "coordinator",
    "handshake",
    "request",
    "tree",
    "topology",
    "ring",
    "tls",
    "rendezvous",
    "execute",
)


@pytest.fixture(scope="session")
def root() -> Path:
    """Debian 12 for aarch64; nothing runs while it is made."""
    if not shutil.which(QEMU):
        pytest.skip(f"{QEMU} is missing: tools/deps.sh wheels")
    packages = [
        "python3.11-minimal",
        "libpython3.11-stdlib",
        "libcmocka-dev",
        "libc6-dev",
        "openssl",
        "libstdc++6",
    ]
    return tree("debian-12-aarch64", "bookworm", packages, "--variant=extract", "--architectures=arm64")


@pytest.fixture(scope="session")
def python(root: Path) -> list[str]:
    """Its Python, with what pip chose for it in a folder."""
    packages = BUILD / "packages"
    wheel = wheel_of("aarch64")
    shutil.rmtree(packages, ignore_errors=True)
    call(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--only-binary=:all:",
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--abi=abi3",
        "--abi=none",
        "--target",
        packages,
        *(f"--platform=manylinux{each}_aarch64" for each in ("2014", "_2_17", "_2_27", "_2_28")),
        wheel,
    )
    return [
        "env",
        f"PYTHONHOME={root}/usr",
        f"PYTHONPATH={packages}",
        QEMU,
        "-L",
        str(root),
        str(root / "usr/bin/python3.11"),
    ]


def test_python(python: list[str]) -> None:
    code = "import horovod, numpy, platform; print(platform.machine(), horovod.__version__)"
    assert call(*python, "-c", code).stdout.startswith("aarch64 ")


def test_two_ranks(root: Path, python: list[str]) -> None:
    launcher = [QEMU, "-L", str(root), str(BUILD / "packages/bin/horovodrun")]
    said = call(*launcher, "-np", "2", *python, SMOKE).stdout
    assert "smoke: 2 ranks of aarch64" in said
    print(said, end="")


def test_over_tcp(root: Path, python: list[str]) -> None:
    launcher = [QEMU, "-L", str(root), str(BUILD / "packages/bin/horovodrun")]
    assert "passed" in call(*launcher, "-np", "2", *python, SMOKE, HOROVOD_TRANSPORT="tcp").stdout


@pytest.fixture(scope="session")
def units(root: Path) -> Path:
    """Build folder of the tests."""
    work = BUILD / "tests"
    if not (work / "build.ninja").exists():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        wheels.write_tools(work / "tools")
        wheels.copy_headers(work / "include")
        source = work / "tree"
        wheels.copy_tree(source)
        wheels.bundle.bundle_all(source / "third_party/sources")
        toolchain = wheels.write_toolchain("aarch64", source, work, glibc="2.36")  # that of cmocka there
        options = [
            "-DHVD_BUNDLED=ON",
            f"-DPython_INCLUDE_DIR={work}/include",
            f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
            f"-DCMOCKA={root}/usr/lib/aarch64-linux-gnu/libcmocka.so",
            f"-DCMAKE_C_FLAGS=-idirafter {root}/usr/include",
        ]
        call("cmake", "-G", "Ninja", "-S", source, "-B", work, *options)
    caches = {name: str(work / "zig-cache") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    call("ninja", "-C", work, *(f"unit_test_{name}" for name in UNITS), seconds=1200, **caches)
    return work


@pytest.mark.parametrize("name", UNITS)
def test_units(name: str, root: Path, units: Path) -> None:
    done = call(QEMU, "-L", root, units / f"test/unit_test_{name}", seconds=600)
    print(done.stderr.strip().rpartition("\n")[2] or done.stdout.strip().rpartition("\n")[2])
