"""Sessions of a real Spark on this host: `make test-spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.update(
    SPARK_LOCAL_IP="127.0.0.1",
    PYSPARK_PYTHON=sys.executable,
    PYTHONPATH=str(Path(__file__).parent),  # executors import functions from modules of tests
    OMP_NUM_THREADS="1",
)

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A classic session with two slots."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
