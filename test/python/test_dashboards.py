"""The callbacks of docs/watching.md write Horovod's figures where dashboards read them."""

from __future__ import annotations

import csv
import importlib
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import horovod

PAGE = Path(__file__).resolve().parents[2] / "docs" / "watching.md"
EPOCHS = 3
NAMES = ("horovod/steps", "horovod/steps_per_second", "horovod/wait_share", "horovod/bytes_per_second")


def callback(base: str, names: dict[str, Any]) -> Any:
    """The class of the page with this base, made in the scope of these names."""
    (source,) = re.findall(
        rf"```python\n(class \w+\({re.escape(base)}\):\n(?:    .*\n|\n(?=    ))+)", PAGE.read_text()
    )
    assert source.count("\n") <= 10
    exec(source, names)
    return names["Figures"]


def fit(callbacks: list[Any]) -> None:
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    keras: Any = pytest.importorskip("keras", reason="Keras is not installed")
    if keras.__version__ < "3" or os.environ.get("TF_USE_LEGACY_KERAS") == "1":
        pytest.skip("of Keras 3")
    hvd = importlib.import_module("horovod.keras")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), keras.losses.MeanSquaredError())
    own = callback("keras.callbacks.Callback", {"keras": keras, "hvd": hvd})
    made = [own(), *(each(keras) for each in callbacks)]
    model.fit(np.ones((12, 3)), np.ones(12), batch_size=4, epochs=EPOCHS, verbose=0, callbacks=made)


def test_callbacks_of_keras_write_the_figures(tmp_path: Path) -> None:
    fit([lambda keras: keras.callbacks.CSVLogger(tmp_path / "log.csv")])
    with open(tmp_path / "log.csv") as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == EPOCHS
    assert {"loss", *horovod.metrics(flat=True)} <= rows[0].keys()
    steps = [float(row["horovod/steps"]) for row in rows]
    assert steps[2] - steps[1] == steps[1] - steps[0] == 3
    assert float(rows[-1]["horovod/bytes_per_second"]) > 0


def test_the_callback_of_lightning_writes_to_all_loggers() -> None:
    """Without Lightning, which is large: with what the callback uses of its trainer."""
    written: list[tuple[dict[str, float], int]] = []
    loggers = [SimpleNamespace(log_metrics=lambda figures, step: written.append((figures, step)))] * 2
    figures = callback(
        "lightning.Callback", {"lightning": SimpleNamespace(Callback=object), "hvd": horovod}
    )()
    before = horovod.metrics(flat=True)["horovod/samples"]
    for step in range(1, 101):
        trainer = SimpleNamespace(global_step=step, is_global_zero=True, loggers=loggers)
        figures.on_train_batch_end(trainer, None, None, [np.ones((8, 3))], step)
    assert [step for _, step in written] == [50, 50, 100, 100]
    assert written[-1][0]["horovod/samples"] - before == 800


def test_tensorboard_shows_the_figures(tmp_path: Path) -> None:
    """In the file of events that TensorBoard reads."""
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed"
    )
    board: Any = importlib.import_module("torch.utils.tensorboard")
    for step in range(4):
        horovod.step(samples=8)
        with board.SummaryWriter(str(tmp_path)) as writer:
            for name, value in horovod.metrics(flat=True).items():
                writer.add_scalar(name, value, step)
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) >= set(NAMES)
    assert [event.step for event in events.Scalars("horovod/steps")] == [0, 1, 2, 3]
