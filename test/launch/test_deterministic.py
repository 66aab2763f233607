"""--deterministic: training gives the same weights, bit for bit, whatever is fused and in whatever order."""

from __future__ import annotations

import sys
from pathlib import Path

from conftest import Launcher

WORKER = Path(__file__).with_name("order_worker.py")
VARIANTS = (
    ("--fusion-threshold-mb", "0"),
    ("--cycle-time-ms", "2"),
    ("--cycle-time-ms", "1", "--transport", "tcp", "--allreduce-algorithm", "auto"),
)


def test_the_same_weights(launcher: Launcher) -> None:
    """Three ranks: the sum of two is the same in any order."""
    outputs = []
    for run, options in enumerate(VARIANTS):
        words = ["-np", "3", "--deterministic", *options, sys.executable, str(WORKER), str(run)]
        process = launcher.start(*words)
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, out + err
        outputs.append(out)
    assert outputs[0].startswith("[0]<stdout>: ")
    assert len(outputs[0].split()[1]) == 64
    assert outputs == outputs[:1] * 3


def test_an_algorithm_of_another_order(launcher: Launcher) -> None:
    source = launcher.python("import horovod as hvd; hvd.init()")
    for ranks, code in (("2", 0), ("3", 1)):
        words = ("--deterministic", "--allreduce-algorithm", "ring", "-np", ranks)
        done = launcher.run(*words, *source)
        assert done.returncode == code, done.stderr
    assert "HOROVOD_DETERMINISTIC asks; use one of: auto, chain" in done.stderr
