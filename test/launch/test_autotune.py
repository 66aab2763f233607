"""Jobs that tune themselves: options, log, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from conftest import Launcher

TRAIN = """
import numpy, sys
import horovod as hvd
hvd.init()
for step in range(int(sys.argv[1])):
    handles = [hvd.allreduce_async(numpy.ones(1 << (4 * i), numpy.float32), name=f"t{i}") for i in range(4)]
    for handle in handles:
        assert hvd.synchronize(handle)[0] == 1
"""
QUICK = ["--autotune-warmup-samples=1", "--autotune-steps-per-sample=1", "--autotune-bayes-opt-max-samples=8"]
COLUMNS = ["tensor_fusion_threshold", "cycle_time_ms", "latency_threshold", "ring_piece_bytes"]


def train(launcher: Launcher, steps: int, *words: str, **variables: str) -> tuple[int, str]:
    command = [*words, *launcher.python(TRAIN), str(steps)]
    result = launcher.run("-np", "2", *command, env=launcher.environment(**variables))
    return result.returncode, result.stderr


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_log_and_report(launcher: Launcher) -> None:
    words = ["--autotune", "--autotune-log-file", "log.csv", *QUICK, "--log-level", "INFO"]
    code, errors = train(launcher, 300, *words)
    log = rows(launcher.folder / "log.csv")
    best = log[-1]
    assert code == 0, errors
    assert [*log[0]] == [*COLUMNS, "stage", "score"]
    assert [row["stage"] for row in log[:8]] == ["search"] * 8
    assert {row["stage"] for row in log[8:-1]} == {"compare"}
    assert best["stage"] == "best"
    assert [log[0][column] for column in COLUMNS] == ["134217728", "0", "16384", "524288"]
    assert len({tuple(row[column] for column in COLUMNS) for row in log}) >= 6
    assert all(float(row["score"]) > 0 for row in log)
    lines = [line for line in errors.splitlines() if "autotune is done" in line]
    assert len(lines) == 1
    assert lines[0].startswith("[0]")
    assert f"fusion_threshold={best['tensor_fusion_threshold']} " in lines[0]


@pytest.mark.parametrize("steps", [1, 14])
def test_a_job_that_ends_too_early(launcher: Launcher, steps: int) -> None:
    code, errors = train(launcher, steps, "--autotune", "--autotune-log-file", "log.csv", *QUICK)
    log = rows(launcher.folder / "log.csv")
    assert (code, errors) == (0, "")
    assert [row["stage"] for row in log] == ([] if steps == 1 else ["search", "best"])


def test_what_is_given_stays(launcher: Launcher) -> None:
    (launcher.folder / "run.yaml").write_text(
        "params:\n  fusion_threshold_mb: 1\nautotune:\n  enabled: 1\n  log_file: log.csv\n"
    )
    words = ["--config-file", "run.yaml", *QUICK, "--cycle-time-ms", "0.5"]
    code, errors = train(launcher, 300, *words, HOROVOD_RING_PIECE_BYTES="65536")
    log = rows(launcher.folder / "log.csv")
    assert code == 0, errors
    assert log[-1]["stage"] == "best"
    assert {row["tensor_fusion_threshold"] for row in log} == {"1048576"}
    assert {row["cycle_time_ms"] for row in log} == {"0.5"}
    assert {row["ring_piece_bytes"] for row in log} == {"65536"}
    assert len({row["latency_threshold"] for row in log}) > 2


def test_nothing_is_left_to_tune(launcher: Launcher) -> None:
    words = ["--autotune", "--autotune-log-file=log.csv", "--log-level=INFO"]
    code, errors = train(launcher, 3, *words, "--fusion-threshold-mb=1", "--cycle-time-ms=0",
                         "--latency-threshold=1", "--ring-piece-bytes=4096")  # fmt: skip
    assert code == 0
    assert "autotune has nothing to do" in errors
    assert rows(launcher.folder / "log.csv") == []


def test_start_values(launcher: Launcher) -> None:
    words = ["--autotune", "--autotune-log-file=log.csv", *QUICK, "--fusion-threshold-mb=1"]
    code, errors = train(launcher, 40, *words, "--autotune-parameters=fusion_threshold")
    log = rows(launcher.folder / "log.csv")
    assert code == 0, errors
    assert [row["tensor_fusion_threshold"] for row in log[:2]] == ["1048576", "134217728"]
    assert {row["ring_piece_bytes"] for row in log} == {"524288"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--autotune-log-file", "absent/log.csv"], "can't open the autotune log absent/log.csv"),
        (["--autotune-parameters", "fusion"], "HOROVOD_AUTOTUNE_PARAMETERS=fusion: it is 'auto'"),
    ],
)
def test_refused(launcher: Launcher, words: list[str], problem: str) -> None:
    code, errors = train(launcher, 1, "--autotune", *words)
    assert code == 1
    assert problem in errors
    assert train(launcher, 1, *words)[0] == 0  # ignored without --autotune
