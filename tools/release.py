"""Makes all that a release consists of, in dist/: `make release`.

    python tools/release.py [--unreleased]

The sdist and the wheels (tools/wheels.py), built twice in different folders, which must give the same
bytes; SHA256SUMS; a bill of materials in CycloneDX's format; and the section of CHANGES.md for this version.
A version that CHANGES.md calls "not released" is refused without --unreleased (`make release UNRELEASED=1`),
and so are changes that are not committed and a commit whose tag is of another version. The version is that of
pyproject.toml. Publishing is left to whoever may.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import bundle
import tomllib
import wheels
from wheels import ROOT, WheelError, sha256


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def changes(wanted: str, unreleased: bool) -> str:
    """The section of CHANGES.md, with its title."""
    sections = re.split(r"(?m)^(?=## )", (ROOT / "CHANGES.md").read_text())
    for section in sections:
        title, _, _ = section.partition("\n")
        if re.fullmatch(rf"## {re.escape(wanted)}(,.*)?", title):
            if "not released" in title and not unreleased:
                raise WheelError(
                    f"CHANGES.md says '{title}': write the day in place of 'not released', "
                    "or try it by `make release UNRELEASED=1`"
                )
            return section
    raise WheelError(f"CHANGES.md has no section '## {wanted}'")


def library(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """One of the libraries that are linked statically, as a component."""
    package = row["source"].rsplit("/", 1)[1]
    return {
        "type": "library",
        "bom-ref": name,
        "name": row["title"],
        "version": row["version"],
        "licenses": [{"license": {"id": row["licence"]}}],
        "purl": f"pkg:generic/{row['title'].lower()}@{row['version']}",
        "properties": [
            {"name": "horovod:source", "value": package},
            {"name": "horovod:source:sha256", "value": row["sha256"]},
            *(
                [
                    {"name": "horovod:patches", "value": row["patches"].rsplit("/", 1)[1]},
                    {"name": "horovod:patches:sha256", "value": row["patches_sha256"]},
                ]
                if "patches" in row
                else []
            ),
        ],
    }


def bill_of_materials(files: list[Path]) -> dict[str, Any]:
    """What is in the files: our own code, and the libraries that are linked statically."""
    libraries = bundle.libraries()
    own = f"pkg:pypi/horovod@{version()}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "horovod",
                "version": version(),
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            *(library(name, row) for name, row in libraries.items()),
            *(
                {
                    "type": "file",
                    "bom-ref": path.name,
                    "name": path.name,
                    "hashes": [{"alg": "SHA-256", "content": sha256(path)}],
                }
                for path in files
            ),
        ],
        "dependencies": [{"ref": own, "dependsOn": sorted(libraries)}],
    }


def check_commit() -> None:
    """All is committed, and a tag of a version is that of this one."""
    if changed := wheels.run("git", "status", "--porcelain"):
        raise WheelError(f"changes are not committed:\n{changed}")
    tags = wheels.run("git", "tag", "--points-at", "HEAD", "--list", "v[0-9]*").split()
    if tags and f"v{version()}" not in tags:
        raise WheelError(f"the commit has the tag {tags[0]}, but pyproject.toml says {version()}")


def release(to: Path, unreleased: bool) -> None:
    section = changes(version(), unreleased)
    if not unreleased:
        check_commit()
    shutil.rmtree(to, ignore_errors=True)
    files = wheels.build(ROOT / "build/release", to, [*wheels.ARCHITECTURES])
    for wheel in files[1:]:
        print(wheels.audit(wheel), flush=True)
    work = ROOT / "build/release-again"
    again = wheels.build(work, work / "dist", [*wheels.ARCHITECTURES])
    for one, other in zip(files, again, strict=True):
        if sha256(one) != sha256(other):
            raise WheelError(f"{one.name} differs from the same in {other.parent}: it is not reproducible")
    name = f"horovod-{version()}"
    (to / f"{name}.cdx.json").write_text(json.dumps(bill_of_materials(files), indent=1) + "\n")
    (to / f"{name}.md").write_text(section)
    lines = [f"{sha256(path)}  {path.name}" for path in sorted(to.iterdir())]
    (to / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes all that a release consists of, in dist/.")
    parser.add_argument(
        "--unreleased", action="store_true", help="also if the version is not to be released yet"
    )
    options = parser.parse_args()
    try:
        release(ROOT / "dist", options.unreleased)
    except (WheelError, bundle.BundleError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
