"""A NaN and a flipped bit in a real job: what the program says, of which rank, and at which step."""

from __future__ import annotations

import json
import os
import re

import pytest
from conftest import Launcher, wait_until

pytest.importorskip("torch")
long = pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")

# A network that trains; `steps` 0: until the job is ended. At step `at` (from 1 on) rank `who` goes wrong.
PROGRAM = """
import sys, time
import torch
import horovod.torch as hvd

what, at, who, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
hvd.init()
torch.set_num_threads(1)
torch.manual_seed(1)
half = what == "scaler"
first, last = torch.nn.Linear(4, 16), torch.nn.Linear(16, 1)
model = torch.nn.Sequential(first, torch.nn.Tanh(), last)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=20, enabled=half)
step = 0
while step < steps or not steps:
    step += 1
    wrong = step == at and hvd.rank() == who
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    y = first(x)
    if half:  # what float16 can't hold is infinite, and NaN further down
        y.register_hook(lambda gradient: gradient.half().float())
    loss = (last(y.tanh()) - x.sum(1, keepdim=True)).square().mean()
    if what == "nan" and wrong:
        loss = loss * float("nan")
    scaler.scale(loss).backward()
    if what == "bit" and wrong:
        with torch.no_grad():
            last.weight.view(torch.int32)[0, 3] ^= 1 << 15
    scaler.step(optimizer)
    scaler.update()
    if not steps:
        time.sleep(0.01)
if half:
    count = sum(row["nonfinite"] for row in hvd.metrics()[0].values())
    print("scale", scaler.get_scale(), "nonfinite", count)
print("done", all(p.isfinite().all() for p in model.parameters()))
"""


def lines_of(text: str, words: str) -> list[str]:
    return [line for line in text.splitlines() if words in line]


@pytest.mark.parametrize(("ranks", "who"), [(2, 1), (3, 0), pytest.param(4, 2, marks=long)])
def test_nan_is_named_on_its_rank(launcher: Launcher, ranks: int, who: int) -> None:
    done = launcher.run("-np", str(ranks), *launcher.python(PROGRAM), "nan", "12", str(who), "20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done False") == ranks  # every rank got it
    found = lines_of(done.stdout + done.stderr, "NaN in this rank's input")
    assert len(found) == 1
    match = re.search(
        r"\[(\d)\]: NaN in .* of allreduce\.(\S+) at step (\d+), before it was reduced", found[0]
    )
    assert match, found
    assert int(match[1]) == who and abs(int(match[3]) - 12) <= 1
    assert match[2] in ("0.weight", "0.bias", "2.weight", "2.bias")


@pytest.mark.parametrize(("ranks", "who"), [(2, 0), (3, 2), pytest.param(4, 1, marks=long)])
def test_flipped_bit_is_named(launcher: Launcher, ranks: int, who: int) -> None:
    options = ["-np", str(ranks), "--check-parameters", "5"]
    done = launcher.run(*options, *launcher.python(PROGRAM), "bit", "12", str(who), "20")
    assert done.returncode == 0, done.stderr
    found = lines_of(done.stdout + done.stderr, "parameters differ")
    assert len(found) == 1, found
    assert "parameters differ since step 11-15: " in found[0] and "They were equal at step 10." in found[0]
    assert "2.weight" in found[0]
    if ranks == 2:
        assert "between rank 0 and rank 1; no majority" in found[0]
    else:
        assert f", on rank {who}; rank" in found[0]


def test_divergence_ends_the_job(launcher: Launcher) -> None:
    options = ["-np", "3", "--check-parameters", "5", "--on-divergence", "abort"]
    done = launcher.run(*options, *launcher.python(PROGRAM), "bit", "7", "1", "1000")
    assert done.returncode != 0
    assert "HorovodInternalError: parameters differ since step 6-10: " in done.stderr
    assert "done" not in done.stdout


@pytest.mark.parametrize("what", ["nothing", "scaler"])
def test_healthy_jobs_raise_no_alarm(launcher: Launcher, what: str) -> None:
    options = ["-np", "2", "--check-parameters", "10", "--check-nonfinite", "all"]
    done = launcher.run(*options, *launcher.python(PROGRAM), what, "0", "0", "300", seconds=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done True") == 2
    alarms = lines_of(done.stdout + done.stderr, "NaN in") + lines_of(done.stderr, "infinity in")
    assert not alarms + lines_of(done.stdout + done.stderr, "parameters differ")
    if what == "scaler":
        found = re.findall(r"scale (\S+) nonfinite (\d+)", done.stdout)
        assert len(found) == 2 and all(float(scale) < 2**30 and int(count) >= 20 for scale, count in found)


def test_status_says_where_a_nan_began(launcher: Launcher) -> None:
    job = launcher.start("-np", "2", *launcher.python(PROGRAM), "nan", "3", "1", "0")
    text = ""

    def says() -> bool:
        nonlocal text
        text = launcher.run("--status", "--json", env=launcher.environment(), seconds=30).stdout
        rows = [json.loads(line) for line in text.splitlines()]
        return any(
            "NaN began on rank 1, in its input of allreduce." in row["verdict"]["text"] for row in rows
        )

    assert wait_until(says), text
    job.terminate()
    job.wait(30)
