"""The browser is for all tests of this folder; without it they are skipped."""

from __future__ import annotations

from collections.abc import Iterator

import chromium
import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Browser]:
    if chromium.PROGRAM is None:
        pytest.skip("there is no Chromium; `make test-browser` installs it")
    with chromium.Browser() as browser:
        yield browser
