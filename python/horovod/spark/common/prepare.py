"""DataFrames before a training and after it: written as Parquet, and with predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from horovod.spark.common.store import Store

PREDICTIONS = "horovod_predictions"


def plain(frame: Any, columns: Sequence[str]) -> list[Any]:
    """Returns these columns of a DataFrame, with vectors as arrays of floats and decimals as floats."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql.types import DecimalType

    kinds = {field.name: field.dataType for field in frame.schema.fields}

    def column(name: str) -> Any:
        if isinstance(kinds[name], VectorUDT):
            return vector_to_array(frame[name], "float32").alias(name)
        return frame[name].cast("double").alias(name) if isinstance(kinds[name], DecimalType) else frame[name]

    return [*map(column, columns)]


def divided(frame: Any, columns: Sequence[str], validation: float | str | None, seed: int) -> list[Any]:
    """Returns the DataFrame for training and, if that is wanted, the one for validation."""
    if isinstance(validation, str):
        chosen = frame[validation].cast("boolean")
        return [frame.filter(each).select(*plain(frame, columns)) for each in (~chosen, chosen)]
    whole = frame.select(*plain(frame, columns))
    return [*whole.randomSplit([1 - validation, validation], seed)] if validation else [whole]


def write(frame: Any, path: str, files: int) -> None:
    """Writes Parquet files of about equal size."""
    frame.repartition(files).write.mode("overwrite").parquet(path)


def count(store: Store, path: str) -> int:
    """Returns the number of rows of a folder, from the footers of its files."""
    return int(store.get_parquet_dataset(path).count_rows()) if store.is_parquet_dataset(path) else 0


def predicted(model: Any, frame: Any) -> Any:
    """Returns the DataFrame with the model's outputs as further columns: floats, or arrays of floats.

    The model is loaded once in each task.
    """
    import pandas as pd
    from pyspark.sql.functions import pandas_udf
    from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

    columns, outputs = model.value("feature_columns"), model.output_columns()
    sizes = model.value("output_sizes") or [0] * len(outputs)
    kinds = [FloatType() if size == 1 else ArrayType(FloatType()) for size in sizes]
    schema = StructType([StructField(name, kind) for name, kind in zip(outputs, kinds, strict=True)])

    kind, values, rows = type(model), model.packed(), model.value("batch_size")

    def predict(batches: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        own = kind.unpacked(values)
        loaded = own.loaded()
        for batch in batches:
            given = batch if isinstance(batch, tuple) else (batch,)  # of one column it is the column
            inputs = [from_series(*each) for each in zip(columns, given, strict=True)]
            parts = [
                own.predict(loaded, [each[at : at + rows] for each in inputs])
                for at in range(0, len(given[0]), rows)
            ]
            found = [np.concatenate(each) for each in zip(*parts, strict=True)]
            columns_of = zip(outputs, found, sizes, strict=True)
            yield pd.DataFrame({name: as_column(each, size) for name, each, size in columns_of})

    predict.__annotations__ = {
        "batches": Iterator[tuple[pd.Series, ...]],
        "return": Iterator[pd.DataFrame],
    }
    # Spark would run a deterministic function once for each of the columns.
    udf = pandas_udf(predict, schema).asNondeterministic()
    struct = frame.withColumn(PREDICTIONS, udf(*plain(frame, columns)))
    return struct.select(*frame.columns, *(struct[PREDICTIONS][name].alias(name) for name in outputs))


def from_series(name: str, series: Any) -> np.ndarray[Any, Any]:
    """Returns a pandas column as an array; lists become rows of a matrix, lists of lists rows of matrices.

    Raises:
        ValueError: values are missing, or lists have different lengths.
    """
    if series.isna().any():
        raise ValueError(f"column {name} has {int(series.isna().sum())} missing values; fill or drop them")
    values: np.ndarray[Any, Any] = series.to_numpy()
    shape: tuple[int, ...] = ()
    while len(values) and isinstance(values[0], np.ndarray):
        try:
            values = np.stack([*values])
        except ValueError as error:
            shapes = sorted({np.shape(each) for each in values})
            raise ValueError(f"column {name} has rows of the shapes {shapes}; they must be equal") from error
        shape += values.shape[1:] if shape else values.shape
        values = values.reshape(-1)
    return values.reshape(shape) if shape else values


def as_column(values: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any] | list[Any]:
    """Returns outputs as values of a column: floats if there is one for each row, else lists."""
    flat = np.asarray(values, np.float32).reshape(len(values), -1)
    return flat[:, 0] if size == 1 and flat.shape[1] == 1 else [*flat]
