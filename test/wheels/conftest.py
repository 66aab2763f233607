from __future__ import annotations

import platform
from pathlib import Path

import pytest
import trial


@pytest.fixture(scope="session")
def wheel() -> Path:
    """That of this machine."""
    return trial.wheel_of(platform.machine())
