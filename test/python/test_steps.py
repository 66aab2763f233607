"""hvd.step, metrics(flat=True), and the steps that PyTorch's optimizers count."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod import _core
from horovod.common import figures

FIGURES = {
    "steps",
    "step",
    "samples",
    "step_seconds",
    "steps_per_second",
    "samples_per_second",
    "wait_share",
    "bytes_per_second",
    "requests_per_second",
    "requests_per_batch",
    "requests_in_flight",
    "requests_failed",
    "nonfinite_tensors",
}


def flat() -> dict[str, float]:
    return {name.removeprefix("horovod/"): value for name, value in hvd.metrics(flat=True).items()}


def wait_for_rates(more: float = 0) -> None:
    """Returns when a look is far enough from the one before for rates of its own, and some seconds later."""
    deadline = time.monotonic() + figures._SHORTEST + more
    while time.monotonic() < deadline:
        time.sleep(0.01)


def test_the_program_reports_steps() -> None:
    hvd.step()
    before = flat()
    for _ in range(3):
        hvd.step(samples=32)
    hvd.step(64, step=7000)
    after = flat()
    assert after["steps"] - before["steps"] == 4
    assert after["samples"] - before["samples"] == 3 * 32 + 64
    assert after["step"] == 7000
    hvd.step(np.int64(1), np.int32(7001))
    assert flat()["step"] == 7001


def test_figures_are_flat_floats() -> None:
    hvd.allreduce(np.ones(100, np.float32), name="figures")
    values = hvd.metrics(flat=True)
    assert {name.partition("/")[0] for name in values} == {"horovod"}
    assert set(flat()) >= FIGURES
    assert all(type(value) is float and np.isfinite(value) for value in values.values())


def test_rates_are_since_the_look_before() -> None:
    hvd.step()
    wait_for_rates()
    flat()
    wait_for_rates()
    for _ in range(10):
        hvd.step(samples=5)
        hvd.allreduce(np.ones(1000, np.float32), name="rates")
    begun = time.monotonic()
    first = flat()
    second = flat()  # another dashboard, in the same step
    together = time.monotonic() - begun < figures._SHORTEST  # otherwise the machine has stood still
    assert 0 < first["steps_per_second"] <= 10 / figures._SHORTEST
    assert first["samples_per_second"] == pytest.approx(5 * first["steps_per_second"])
    assert first["bytes_per_second"] == pytest.approx(4000 * first["steps_per_second"])
    assert first["requests_per_batch"] >= 1
    assert 0 <= first["wait_share"] <= 1
    assert 0 < first["step_seconds"] < 60
    assert not together or second["steps_per_second"] == pytest.approx(first["steps_per_second"], rel=0.5)
    wait_for_rates()
    flat()
    wait_for_rates()
    assert flat()["steps_per_second"] == 0


def test_counts_what_is_in_flight_and_what_failed(rank: int, size: int) -> None:
    before = flat()
    assert before["requests_in_flight"] == 0
    if size > 1:
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(np.ones(1 + rank, np.float32), name="differs")
        assert flat()["requests_failed"] == before["requests_failed"] + 1


def test_rank_0_knows_who_is_late(rank: int, size: int) -> None:
    for name in ("late_share", "others_late_share", "latest_rank"):
        assert (name in flat()) == (rank == 0)
    begun = hvd.allreduce(np.full(1, time.monotonic()), op=hvd.Min)[0]
    wait_for_rates()
    flat()
    value, last = np.ones(1, np.float32), rank == size - 1
    handle = None if last else hvd.allreduce_async(value, name="late")
    hvd.barrier()  # all others have submitted it
    if last:
        wait_for_rates(time.monotonic() - begun)  # longer than any other was late
        handle = hvd.allreduce_async(value, name="late")
    hvd.synchronize(handle)
    if rank == 0 and size > 1:
        wait_for_rates()
        after = flat()
        assert 0 < after["others_late_share"] <= 1
        assert after["latest_rank"] == size - 1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: hvd.step(samples=-1), "negative"),
        (lambda: hvd.step(step=-5), "-5"),
    ],
)
def test_refuses_negative_numbers(call: Callable[[], None], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.own_process
def test_before_init_and_after_shutdown() -> None:
    script = (
        "import horovod as hvd, os, sys\n"
        "from horovod import _core\n"
        "assert hvd.metrics(flat=True) == {}\n"
        "_core.optimizer_step('works without a job')\n"
        "try:\n    hvd.step()\nexcept ValueError as error:\n    print(error)\n"
        "hvd.init()\n"
        "figures = hvd.metrics(flat=True)\n"
        "assert figures['horovod/steps'] == figures['horovod/steps_per_second'] == 0\n"
        "for _ in range(9): hvd.step()\n"
        "if (child := os.fork()) == 0:\n    os._exit(len(hvd.metrics(flat=True)))\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "hvd.shutdown()\n"
        "assert hvd.metrics(flat=True) == {}\n"
        "hvd.init()\n"
        "assert hvd.metrics(flat=True)['horovod/steps'] == 0\n"
    )
    line = [sys.executable, "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=_without_job())
    assert done.returncode == 0, done.stderr
    assert "init" in done.stdout


def _without_job() -> dict[str, str]:
    import os

    return {key: value for key, value in os.environ.items() if not key.startswith("HOROVOD_")}


# ---- PyTorch -------------------------------------------------------------------------------------------


def _train(steps: int, make: Callable[[Any, Any], Any], passes: int = 1, after: Any = lambda: None) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = torch.nn.Linear(3, 1)
    optimizer = make(torch.optim, model)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(passes):
            model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        after()


def _wrapped(optimizer: Any, **options: Any) -> Any:
    import horovod.torch

    return horovod.torch.DistributedOptimizer(optimizer, **options)


def test_an_optimizer_counts_its_steps(counted_steps: Any) -> None:
    def make(optim: Any, model: Any) -> Any:
        return _wrapped(optim.SGD(model.parameters(), lr=0.01))

    assert counted_steps(lambda: _train(5, make)) == 5


@pytest.mark.parametrize("passes", [2, 3])
def test_several_passes_are_one_step(passes: int, counted_steps: Any) -> None:
    def make(optim: Any, model: Any) -> Any:
        return _wrapped(optim.SGD(model.parameters(), lr=0.01), backward_passes_per_step=passes)

    assert counted_steps(lambda: _train(4, make, passes)) == 4


def test_adasum_counts_its_steps(counted_steps: Any) -> None:
    def make(optim: Any, model: Any) -> Any:
        return _wrapped(optim.SGD(model.parameters(), lr=0.01), op=hvd.Adasum)

    assert counted_steps(lambda: _train(4, make)) == 4


def test_a_program_that_reports_too_is_counted_once(counted_steps: Any) -> None:
    def make(optim: Any, model: Any) -> Any:
        return _wrapped(optim.Adam(model.parameters(), lr=0.01))

    samples = flat()["samples"]
    assert counted_steps(lambda: _train(6, make, after=lambda: hvd.step(samples=2))) == 6
    assert flat()["samples"] - samples == 12


def test_two_optimizers_are_counted_once(counted_steps: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    models = [torch.nn.Linear(3, 1) for _ in range(2)]
    optimizers = [
        _wrapped(torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=named(model, place))
        for place, model in enumerate(models)
    ]

    def train() -> None:
        for _ in range(5):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                model(torch.ones(2, 3)).sum().backward()
                optimizer.step()

    assert counted_steps(train) == 5


def named(model: Any, place: int) -> list[tuple[str, Any]]:
    return [(f"{place}.{name}", parameter) for name, parameter in model.named_parameters()]


def test_a_closure_is_one_step(counted_steps: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = torch.nn.Linear(3, 1)
    optimizer = _wrapped(torch.optim.SGD(model.parameters(), lr=0.01))

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).sum()
        loss.backward()
        return loss

    assert counted_steps(lambda: [optimizer.step(closure) for _ in range(4)]) == 4


def test_core_takes_texts_only() -> None:
    with pytest.raises(TypeError):
        _core.optimizer_step(3)  # type: ignore[arg-type]
