"""The binding passes the caller's stream on: a read before the stream's write would give wrong sums."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import Launcher

BUILD = Path(os.environ.get("HVD_BUILD", str(Path(__file__).parents[2] / "build")))
MODULE = BUILD / "test" / "core_on_device.so"
WORKER = Path(__file__).with_name("stream_worker.py")


@pytest.mark.parametrize("size", [1, 2])
def test_an_operation_follows_the_streams_that_write_its_tensors(launcher: Launcher, size: int) -> None:
    done = launcher.run("-np", str(size), sys.executable, str(WORKER), str(MODULE))
    assert done.returncode == 0, done.stderr
    for words in ("the current stream", "the producer's stream", "the streams of gradients"):
        assert done.stdout.count(f"waits for {words}") == 3
        assert done.stdout.count(f"needs {words}") == 3
