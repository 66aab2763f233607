"""Functions that users of Horovod's estimators import from here."""

from __future__ import annotations

from horovod.spark.common.store import Store


def is_databricks() -> bool:
    """Returns true on Databricks."""
    import os

    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def clear_training_cache(store: Store | None = None) -> None:
    """Has no effect: the data of a training are removed at its end."""
