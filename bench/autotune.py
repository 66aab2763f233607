"""Compares autotuning from a bad start with the best of a full sweep and the defaults, on 2 ranks of this
host.

    python bench/autotune.py                    needs horovodrun in PATH and `make build`

The 161 gradients of ResNet-50 are all submitted, then waited for, again and again. A sweep tries every point
of a grid; one job starts from bad values and tunes itself; then the bad start, the defaults, the best points
of the sweep and the values that the job has found take turns. The job's log stays as autotune-log.csv.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import compare
import gradients
import publish

COLUMNS = {
    "HOROVOD_FUSION_THRESHOLD": "tensor_fusion_threshold",
    "HOROVOD_CYCLE_TIME": "cycle_time_ms",
    "HOROVOD_LATENCY_THRESHOLD": "latency_threshold",
    "HOROVOD_RING_PIECE_BYTES": "ring_piece_bytes",
}
Values = tuple[float, ...]  # in the order of COLUMNS
BAD = (65536.0, 8.0, 1024.0, 4096.0)
DEFAULTS = (134217728.0, 0.0, 16384.0, 524288.0)
GRIDS: dict[str, list[tuple[float, ...]]] = {
    "tiny": [(65536, 134217728), (0,), (16384,), (524288,)],
    "quick": [(262144, 8388608, 134217728), (0, 1), (16384,), (131072, 524288, 2097152)],
    "full": [
        (65536, 524288, 4194304, 33554432, 134217728),
        (0, 0.5, 2),
        (1024, 16384, 262144),
        (32768, 131072, 524288, 2097152),
    ],
}
FINALISTS = 3
STEPS = {"tiny": 1, "quick": 2, "full": 5}


def variables(values: Values) -> dict[str, str]:
    return {name: f"{value:.15g}" for name, value in zip(COLUMNS, values, strict=True)}


def peer(name: str, values: Values, beside: str | None = None) -> compare.Peer:
    words = [f"{variable}={value}" for variable, value in variables(values).items()]
    return replace(compare.C_PEER, name=name, launcher=("env", *words, "horovodrun"), beside=beside)


def sweep(effort: str, seconds: float, case: str) -> list[Values]:
    """The best points of the grid: in each of two turns every point once, and the smaller time counts."""
    points = list(itertools.product(*GRIDS[effort]))
    best = dict.fromkeys(points, float("inf"))
    for turn in range(1 if effort == "tiny" else 2):
        for point in reversed(points) if turn else points:
            times, _ = compare.start(peer("point", point), 2, seconds, [case])
            best[point] = min(best[point], times[case])
    print(f"autotune: {len(points)} points swept", flush=True)
    return sorted(points, key=best.__getitem__)[:FINALISTS]


def rows_of(log: Path) -> list[dict[str, str]]:
    if not log.exists():
        return []
    with log.open(newline="") as file:
        return list(csv.DictReader(file))


def tune(case: str, log: Path, steps: int) -> Values:
    """What a job that starts with BAD finds; it is ended as soon as its log says so."""
    log.unlink(missing_ok=True)
    tuned = "fusion_threshold,cycle_time_ms,latency_threshold,ring_piece_bytes"
    options = {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": str(log),
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": str(steps),
        "HOROVOD_AUTOTUNE_PARAMETERS": tuned,
    }
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*compare.C_PEER.command(2), str(compare.DEADLINE), folder, case],
            env=os.environ | variables(BAD) | options, stdin=subprocess.DEVNULL, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        begin = time.monotonic()
        while time.monotonic() < begin + compare.DEADLINE and process.poll() is None:
            if rows_of(log)[-1:] and rows_of(log)[-1]["stage"] == "best":
                break
            time.sleep(0.1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=compare.DEADLINE)
        errors.seek(0)
        said = errors.read()
    rows = rows_of(log)
    if not rows or rows[-1]["stage"] != "best" or not any(row["stage"] == "compare" for row in rows):
        raise RuntimeError(f"the job did not tune itself within {compare.DEADLINE:.0f} s:\n{said}")
    print(f"autotune: tuned within {time.monotonic() - begin:.0f} s", flush=True)
    return tuple(float(rows[-1][column]) for column in COLUMNS.values())


def draw(log: Path, path: Path) -> None:
    figure, (axes,) = publish.figure(1)
    rows = [row for row in rows_of(log) if row["stage"] == "search"]
    scores = [float(row["score"]) for row in rows]
    axes.plot(range(1, len(rows) + 1), scores, "o-", label="tried")
    axes.plot(range(1, len(rows) + 1), list(itertools.accumulate(scores, max)), "--", label="best so far")
    axes.set(xlabel="result", ylabel="bytes/µs", title="autotuning from a bad start", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> int:
    """Measures and writes; 1 if a start failed."""
    args = compare.arguments(__doc__, seconds=60)
    file, *_ = gradients.write_counts(args.output, "resnet50", args.effort == "tiny")
    case, log = f"async:{file}", args.output / "autotune-log.csv"
    effort = compare.EFFORTS[args.effort]
    found = tune(case, log, STEPS[args.effort])
    points = {"tuned": found, "bad start": BAD, "defaults": DEFAULTS}
    for place, values in enumerate(sweep(args.effort, effort.seconds, case), 1):
        points[f"sweep, no. {place}"] = values
    peers = [peer(name, values, "tuned") for name, values in points.items()]
    comparison = compare.Comparison("autotune", replace(effort, seconds=5 * effort.seconds), args.seconds)
    comparison.run([(each, 2, [case]) for each in peers], whole=True)
    rows = [
        [each.name, *variables(points[each.name]).values(),
         publish.cell(comparison, 2, each, case, scale=1e-3)]
        for each in peers
    ]  # fmt: skip
    draw(log, args.output / "autotune.png")
    head = ["ResNet-50's gradients, 2 ranks", *COLUMNS.values(), "ms (of tuned)"]
    return publish.write(comparison, args.output, publish.table(head, rows))


if __name__ == "__main__":
    sys.exit(main())
