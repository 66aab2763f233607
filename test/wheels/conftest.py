from __future__ import annotations

import platform
from pathlib import Path

import pytest
import release
import trial


@pytest.fixture(scope="session")
def wheel() -> Path:
    """That of this machine."""
    return trial.wheel_of(platform.machine())


@pytest.fixture(scope="session")
def sdist() -> Path:
    path = trial.ROOT / f"dist/horovod-{release.version()}.tar.gz"
    if not path.exists():
        pytest.fail(f"there is no {path}: run `make wheels`")
    return path
