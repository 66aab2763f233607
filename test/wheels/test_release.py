"""What `make release` writes beside the wheels."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import release
from trial import call
from wheels import WheelError

TOOLS = Path(sys.executable).parent
CHANGES = """# Changes

## 1.2.10, not released

- New.

## 1.2.1, 2026-11-27

- Old.
"""


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "CHANGES.md").write_text(CHANGES)
    monkeypatch.setattr(release, "ROOT", tmp_path)


@pytest.mark.usefixtures("changes")
def test_the_section_of_a_version() -> None:
    assert release.changes("1.2.1", unreleased=False) == "## 1.2.1, 2026-11-27\n\n- Old.\n"
    assert release.changes("1.2.10", unreleased=True) == "## 1.2.10, not released\n\n- New.\n\n"


@pytest.mark.usefixtures("changes")
def test_an_unreleased_or_unknown_version_is_refused() -> None:
    with pytest.raises(WheelError, match="write the day in place of 'not released'"):
        release.changes("1.2.10", unreleased=False)
    with pytest.raises(WheelError, match="has no section"):
        release.changes("1.2", unreleased=True)


def test_the_bill_of_materials_follows_its_schema(wheel: Path, tmp_path: Path) -> None:
    bill = tmp_path / "bill.json"
    bill.write_text(json.dumps(release.bill_of_materials([wheel])))
    schema = Path(str(files("cyclonedx.schema._res"))) / "bom-1.5.SNAPSHOT.schema.json"
    call(TOOLS / "check-jsonschema", "--base-uri", schema.as_uri(), "--schemafile", schema, bill)
