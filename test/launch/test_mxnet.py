"""Jobs of horovod.mxnet that end with operations in flight."""

from __future__ import annotations

import pytest
from conftest import Launcher

pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)

IN_FLIGHT = """
import mxnet as mx, horovod.mxnet as hvd
hvd.init()
for i in range(20):
    sums = [hvd.allreduce(mx.nd.full((100000,), j)) for j in range(20)]
"""


def test_the_end_with_operations_in_flight(launcher: Launcher) -> None:
    result = launcher.run("-np", "2", *launcher.python(IN_FLIGHT))
    assert result.returncode == 0, result.stderr
    assert launcher.none_alive()
