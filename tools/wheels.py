"""Builds the sdist, and from it wheels for every Linux with glibc 2.17 or later: `make wheels`.

    python tools/wheels.py                   into dist/
    python tools/wheels.py --to FOLDER --work FOLDER --only aarch64

zig, from the package ziglang, compiles for both architectures on either of them; the libraries that are
linked statically come from the sdist. Each wheel must satisfy auditwheel and stay below 2 MB. The same commit
gives the same bytes in any folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import bundle

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURES = ("x86_64", "aarch64")
POLICY = "manylinux2014"
POLICY_NAMES = "manylinux2014|manylinux_2_17"
LIMIT = 2_000_000  # bytes of a wheel

# zig takes the words of GNU ar and ranlib as words of its own command.
SCRIPT = """#!/bin/sh
exec '{zig}' {tool} "$@"
"""
TOOLCHAIN = """
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {architecture})
set(CMAKE_C_COMPILER "{zig}" cc -target {architecture}-linux-gnu.{glibc})
set(CMAKE_AR "{tools}/ar")
set(CMAKE_RANLIB "{tools}/ranlib")
set(CMAKE_C_FLAGS_INIT "-flto -ffile-prefix-map={source}=. -DHVD_OWN_CPU_MODEL")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${{kind}}_LINKER_FLAGS_INIT "-flto -s")
endforeach()
"""


class WheelError(Exception):
    """What is wrong with what was built, or missing for building."""


def zig() -> Path:
    try:
        import ziglang
    except ImportError as error:
        raise WheelError("ziglang is missing: pip install -r requirements-release.txt") from error
    return Path(str(ziglang.__file__)).parent / "zig"


def run(*words: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """What the command prints; all of it is shown if it fails."""
    line = [str(word) for word in words]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CMAKE_")}
    try:
        done = subprocess.run(line, cwd=cwd, env=variables | environment, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise WheelError(f"{line[0]} is missing: {error}") from error
    if done.returncode:
        raise WheelError(f"{' '.join(line)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def copy_tree(to: Path) -> str:
    """What git tracks or would track; returns the time of the last commit, which all files get."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in names:
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return run("git", "log", "-1", "--format=%ct").strip()


def call_backend(hook: str, cwd: Path, to: Path, settings: dict[str, str], **environment: str) -> Path:
    """Lets scikit-build-core build an sdist or a wheel."""
    code = (
        "import json, sys, scikit_build_core.build as backend;"
        f"print(backend.build_{hook}(sys.argv[1], json.loads(sys.argv[2])))"
    )
    printed = run(sys.executable, "-c", code, to, json.dumps(settings), cwd=cwd, **environment)
    return to / printed.splitlines()[-1]


def build_sdist(work: Path, to: Path) -> tuple[Path, str]:
    tree = work / "tree"
    epoch = copy_tree(tree)
    bundle.bundle_all(tree / "third_party/sources")
    return call_backend("sdist", tree, to, {}, SOURCE_DATE_EPOCH=epoch), epoch


def write_tools(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for tool in ("ar", "ranlib"):
        path = folder / tool
        path.write_text(SCRIPT.format(zig=zig(), tool=tool))
        path.chmod(0o755)
    return folder


def copy_headers(to: Path) -> Path:
    """Python's headers in a folder of their own: that of Debian's are beside those of its libc.

    The limited API reads nothing from pyconfig.h that differs between the architectures.
    """
    shutil.copytree(sysconfig.get_path("include"), to)
    shutil.copyfile(sysconfig.get_config_h_filename(), to / "pyconfig.h")
    return to


def write_toolchain(architecture: str, source: Path, work: Path, glibc: str = "2.17") -> Path:
    values = {
        "architecture": architecture,
        "glibc": glibc,
        "source": source,
        "tools": work / "tools",
        "zig": zig(),
    }
    path = work / f"{architecture}.cmake"
    path.write_text(TOOLCHAIN.format(**values))
    return path


def build_wheel(architecture: str, sdist: Path, work: Path, to: Path, epoch: str) -> Path:
    source = work / architecture
    bundle.unpack(sdist.name, sdist.read_bytes(), source)
    (source,) = source.iterdir()
    settings = {
        "cmake.args": f"-DCMAKE_TOOLCHAIN_FILE={write_toolchain(architecture, source, work)}",
        "cmake.define.HVD_BUNDLED": "ON",
        "cmake.define.Python_INCLUDE_DIR": str(work / "include"),
        "build-dir": str(work / f"build-{architecture}"),
        "install.strip": "false",  # the linker has done it, for any architecture
    }
    environment = {
        "SOURCE_DATE_EPOCH": epoch,
        "_PYTHON_HOST_PLATFORM": f"{POLICY}_{architecture}",
        "ZIG_GLOBAL_CACHE_DIR": str(work / "zig-cache"),
        "ZIG_LOCAL_CACHE_DIR": str(work / "zig-cache"),
    }
    return call_backend("wheel", source, to, settings, **environment)


def audit(wheel: Path) -> str:
    """auditwheel's words, which must name our policy."""
    said = run(sys.executable, "-m", "auditwheel", "show", wheel)
    words = " ".join(said.split())
    if not re.search(rf'platform tag: "({POLICY_NAMES})_', words):
        raise WheelError(f"{wheel.name} is not for {POLICY}:\n{said}")
    if wheel.stat().st_size >= LIMIT:
        raise WheelError(f"{wheel.name} has {wheel.stat().st_size:,} bytes; the limit is {LIMIT:,}")
    return words


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(work: Path, to: Path, architectures: list[str]) -> list[Path]:
    """The sdist and the wheels, in that order; `work` is made anew."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    to.mkdir(parents=True, exist_ok=True)
    write_tools(work / "tools")
    copy_headers(work / "include")
    sdist, epoch = build_sdist(work, to)
    files = [sdist]
    for architecture in architectures:
        print(f"== compiling for {architecture} in {work}", flush=True)
        files.append(build_wheel(architecture, sdist, work, to, epoch))
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the sdist and the wheels.")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="folder of the results (dist)")
    parser.add_argument("--work", type=Path, default=ROOT / "build/release", help="folder for building")
    parser.add_argument("--only", choices=ARCHITECTURES, help="one architecture")
    options = parser.parse_args()
    try:
        architectures = [options.only] if options.only else [*ARCHITECTURES]
        for path in build(options.work.absolute(), options.to.absolute(), architectures):
            if path.suffix == ".whl":
                print(audit(path))
            print(f"{path.name}: {path.stat().st_size:,} bytes, sha256 {sha256(path)}", flush=True)
    except (WheelError, bundle.BundleError) as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
