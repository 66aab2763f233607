"""Saves estimators and models as Spark ML does, so that pipelines with them can be saved and loaded.

The folder ``metadata`` is Spark ML's own. The values are one row of Parquet, pickled by cloudpickle: what is
saved is code, so load only what you trust.
"""

from __future__ import annotations

import pickle
from typing import Any

from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

from horovod.spark.slots import is_classic


class Saved(MLWritable, MLReadable):  # type: ignore[misc]
    """What can be saved and loaded."""

    uid: str

    def write(self) -> MLWriter:
        """Returns what writes it."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader:
        """Returns what reads it."""
        return _Reader(cls)

    def packed(self) -> dict[str, Any]:
        """Returns the values to save."""
        raise NotImplementedError

    @classmethod
    def unpacked(cls, values: dict[str, Any]) -> Any:
        """Returns an instance with saved values."""
        raise NotImplementedError


class _Writer(MLWriter):  # type: ignore[misc]
    def __init__(self, instance: Saved) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:  # noqa: N802
        import cloudpickle

        spark = self.sparkSession
        context = spark.sparkContext if is_classic(spark) else spark
        DefaultParamsWriter.saveMetadata(self._instance, path, context, paramMap={})
        data = bytearray(cloudpickle.dumps(self._instance.packed()))
        spark.createDataFrame([(data,)], "data binary").coalesce(1).write.parquet(f"{path}/objects")


class _Reader(MLReader):  # type: ignore[misc]
    def __init__(self, kind: type[Saved]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        spark = self.sparkSession
        context = spark.sparkContext if is_classic(spark) else spark
        metadata = DefaultParamsReader.loadMetadata(path, context)
        row = spark.read.parquet(f"{path}/objects").first()
        instance = self._kind.unpacked(pickle.loads(bytes(row.data)))
        instance._resetUid(metadata["uid"])
        return instance
