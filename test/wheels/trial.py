"""The wheels of dist/, interpreters, and root trees of other systems, which stay in build/trees."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "test/wheels/smoke.py"
TREES = ROOT / "build/trees"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

sys.path.insert(0, str(ROOT / "tools"))

import bundle  # noqa: E402
import release  # noqa: E402


def wheel_of(architecture: str) -> Path:
    name = f"horovod-{release.version()}-*_{architecture}.whl"
    found = sorted((ROOT / "dist").glob(name))
    if len(found) != 1:
        pytest.fail(f"dist/ has {len(found)} of {name}: run `make wheels`")
    return found[0]


def interpreter(version: str) -> str:
    """One on the PATH, or of pyenv, or of uv."""
    pyenv = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    candidates = [*map(str, pyenv), shutil.which(f"python{version}") or ""]
    for path in candidates:
        if path and call(path, "-c", "import venv, ensurepip", check=False).returncode == 0:
            return path
    pytest.skip(f"there is no CPython {version} with venv on the PATH or in ~/.pyenv")


def call(
    *words: str | Path, check: bool = True, seconds: float = 300, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Runs a command outside of any virtual environment; its output is in the error if it fails."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CMAKE_")}
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"):
        variables.pop(name, None)
    variables |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    for name, value in environment.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    line = [str(word) for word in words]
    done = subprocess.run(
        line,
        env=variables,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    if check:
        assert done.returncode == 0, f"{' '.join(line)}\n{done.stdout}{done.stderr}"
    return done


def run_ranks(folder: Path, python: Sequence[str | Path], np: int = 2, **environment: str | None) -> None:
    """Two ranks with the horovodrun of that folder, and what --check-build says."""
    path = f"{folder}:{os.environ['PATH']}"
    done = call(folder / "horovodrun", "-np", str(np), *python, SMOKE, PATH=path, **environment)
    assert f"smoke: {np} ranks" in done.stdout, done.stdout + done.stderr
    print(done.stdout, end="")
    said = call(folder / "horovodrun", "--check-build", PATH=path, **environment).stdout
    assert "[X] NumPy" in said and "[X] shm" in said


def tree(name: str, suite: str, packages: Sequence[str], *options: str) -> Path:
    """A root tree of Debian, made once."""
    folder = TREES / name
    if (folder / "made").exists():
        return folder
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        pytest.skip("root trees need root and mmdebstrap: tools/deps.sh wheels")
    shutil.rmtree(folder, ignore_errors=True)
    TREES.mkdir(parents=True, exist_ok=True)
    (mirror, *_) = [each for each in bundle.mirrors() if "security" not in each]
    call(
        "mmdebstrap",
        "--mode=root",
        f"--include={','.join(packages)}",
        *options,
        suite,
        folder,
        mirror,
        seconds=600,
    )
    (folder / "made").touch()
    return folder


def download(version: str, to: Path, *wanted: str | Path) -> None:
    """These and what they need, as pip chooses it for another Python and glibc 2.28 or older."""
    names = [f"manylinux{each}_{platform.machine()}" for each in ("2014", "_2_17", "_2_27", "_2_28")]
    call(
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--only-binary=:all:",
        f"--python-version={version}",
        "--implementation=cp",
        *(f"--platform={name}" for name in names),
        "-d",
        to,
        *wanted,
    )
