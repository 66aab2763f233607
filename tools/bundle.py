"""Fetches the sources of the libraries that are linked statically, as third_party/libraries.toml names them.

    python tools/bundle.py third_party/sources           all of them
    python tools/bundle.py third_party/sources llhttp    these

They are files of Debian's archive, from the mirror that apt uses, with pinned checksums. Needs apt and
patch, so Debian; what it makes builds everywhere.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tomllib

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "third_party/libraries.toml"
KEPT = ROOT / "build/downloads"


class BundleError(Exception):
    """What can't be had, and what to do about it."""


def libraries() -> dict[str, dict[str, Any]]:
    return tomllib.loads(TABLE.read_text())


def mirrors() -> list[str]:
    """Where apt gets Debian's packages from."""
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise BundleError(f"Debian's sources are fetched by apt, which did not answer: {error}") from error
    if not found:
        raise BundleError("apt knows no mirror of Debian; run `apt-get update` first")
    return list(dict.fromkeys(found))


def fetch(path: str, sha256: str) -> bytes:
    """One file of the archive; it stays in build/downloads."""
    kept = KEPT / path.rpartition("/")[2]
    if kept.exists() and hashlib.sha256(kept.read_bytes()).hexdigest() == sha256:
        return kept.read_bytes()
    KEPT.mkdir(parents=True, exist_ok=True)
    said = ""
    for mirror in mirrors():
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "file"
            words = ["/usr/lib/apt/apt-helper", "-o", "Acquire::Retries=3", "download-file"]
            words += [f"{mirror.rstrip('/')}/{quote(path)}", str(target), f"SHA256:{sha256}"]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode == 0:
                shutil.move(target, kept)
                return kept.read_bytes()
            said = done.stderr.strip()
    raise BundleError(
        f"{path} can't be had from the mirrors of apt; if Debian has replaced it, enter the new file and its "
        f"checksum in third_party/libraries.toml\n{said}"
    )


def unpack(name: str, content: bytes, folder: Path) -> None:
    """All files of a trusted tar archive or Debian package."""
    if name.endswith(".deb"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            words = ["dpkg-deb", "--fsys-tarfile", file.name]
            content = subprocess.run(words, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        if hasattr(tarfile, "data_filter"):  # not in Debian 12; the checksum is known
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)


def patch(tree: Path, patches: Path) -> None:
    for line in (patches / "series").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            path = patches / line.split()[0]
            words = ["patch", "--quiet", "--strip=1", "--no-backup-if-mismatch", f"--input={path}"]
            done = subprocess.run(words, cwd=tree, capture_output=True, text=True)
            if done.returncode:
                raise BundleError(f"{path.name} does not apply: {done.stdout}{done.stderr}")


def bundle(library: dict[str, Any], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        unpack(library["source"], fetch(library["source"], library["sha256"]), work)
        tree = work / library["folder"]
        if patches := library.get("patches"):
            unpack(patches, fetch(patches, library["patches_sha256"]), work)
            patch(tree, work / "debian/patches")
        for pattern in library["keep"]:
            for path in sorted(tree.glob(pattern)):
                target = folder / path.relative_to(tree)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


def bundle_all(folder: Path, names: Sequence[str] = ()) -> None:
    """Fetches the named libraries, or all, each into a folder of its name."""
    known = libraries()
    for name in names or known:
        if name not in known:
            raise BundleError(f"'{name}' is none of {', '.join(known)}")
        shutil.rmtree(folder / name, ignore_errors=True)
        bundle(known[name], folder / name)


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        bundle_all(Path(sys.argv[1]), sys.argv[2:])
    except BundleError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
