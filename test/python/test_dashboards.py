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


def example(words: str) -> str:
    """The one block of Python on the page that has these words."""
    (source,) = (each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if words in each)
    return source


def test_a_loop_reports_its_steps() -> None:
    before = horovod.metrics(flat=True)
    loader = [(np.ones((8, 3)), np.ones(8))] * 3
    optimizer = SimpleNamespace(step=lambda: None)
    exec(
        example("hvd.step(samples=len(images)"),
        {"loader": loader, "optimizer": optimizer, "hvd": horovod, "global_step": 1203},
    )
    after = horovod.metrics(flat=True)
    assert after["horovod/samples"] - before["horovod/samples"] == 24
    assert after["horovod/steps"] - before["horovod/steps"] == 3
    assert after["horovod/step"] == 1203


def test_dashboards_get_the_figures(tmp_path: Path) -> None:
    """TensorBoard in the file that it reads; W&B and MLflow, which are large, by what the page calls."""
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed"
    )
    board: Any = importlib.import_module("torch.utils.tensorboard")
    written: list[tuple[dict[str, float], int]] = []
    others = {
        "wandb": SimpleNamespace(log=lambda figures, step: written.append((figures, step))),
        "mlflow": SimpleNamespace(log_metrics=lambda figures, step: written.append((figures, step))),
    }
    for step in range(4):
        horovod.step(samples=8)
        with board.SummaryWriter(str(tmp_path)) as writer:
            exec(
                example("writer.add_scalar"),
                {"writer": writer, "loss": 0.5, "step": step, "hvd": horovod, **others},
            )
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) >= {"loss", *NAMES}
    assert [event.step for event in events.Scalars("horovod/steps")] == [0, 1, 2, 3]
    assert [step for _, step in written] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all(figures.keys() >= set(NAMES) for figures, _ in written)
