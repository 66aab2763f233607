"""deploy/terraform by terraform itself, with a stand-in for the cloud."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import needs

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "terraform"

pytestmark = needs("terraform")


def terraform(folder: Path, scratch: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With providers from a folder of this machine, if there is one."""
    environment = os.environ | {"CHECKPOINT_DISABLE": "1"}
    mirrors = list(Path("/").glob("*/*/registry.terraform.io"))
    if mirrors:
        settings = scratch / "settings.tfrc"
        settings.write_text(
            f'provider_installation {{ filesystem_mirror {{ path = "{mirrors[0].parent}" }} }}\n'
        )
        environment["TF_CLI_CONFIG_FILE"] = str(settings)
    return subprocess.run(
        ["terraform", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_it_is_formatted(tmp_path: Path) -> None:
    result = terraform(FOLDER, tmp_path, "fmt", "-check", "-diff", "-recursive")
    assert result.returncode == 0, result.stdout


def test_its_own_tests_pass(tmp_path: Path) -> None:
    """Three workers, their order, and refused values; plan and apply against a mock of the provider."""
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".terraform*"))
    result = terraform(tmp_path, tmp_path, "init", "-input=false", "-no-color")
    if result.returncode:
        pytest.skip(f"terraform finds no provider for AWS: {result.stderr.strip().splitlines()[-1]}")
    for words in (["validate", "-no-color"], ["test", "-no-color"]):
        result = terraform(tmp_path, tmp_path, *words)
        assert result.returncode == 0, result.stdout + result.stderr
    assert "5 passed, 0 failed" in result.stdout
