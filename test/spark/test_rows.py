"""Parquet files as batches of arrays, read by pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from horovod.spark.common import rows as rows_module
from horovod.spark.common.prepare import from_series
from horovod.spark.common.rows import BUFFERED_BATCHES, Rows
from horovod.spark.common.store import Store


@pytest.fixture(params=[(1, 1000), (3, 10), (5, 7)])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    """101 rows in some files with some rows in each row group."""
    files, rows = request.param
    store = Store.create(str(tmp_path))
    folder = Path(store.get_train_data_path())
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(101), files)):
        columns = {"n": part, "pair": [[float(n), -float(n)] for n in part]}
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=rows)
    (folder / "_SUCCESS").touch()
    return store


def rows(store: Store, rank: int, size: int, **options: Any) -> Rows:
    dataset = store.get_parquet_dataset(store.get_train_data_path())
    return Rows(dataset, ["n", "pair"], rank, size, **options)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_read_each_row_once(store: Store, size: int, seed: int | None, in_memory: bool) -> None:
    found = []
    for rank in range(size):
        own = rows(store, rank, size, in_memory=in_memory)
        for _ in range(2):  # also from memory
            batches = [*own.batches(4, seed)]
        assert all(len(each["n"]) == 4 for each in batches[:-1])
        for each in batches:
            assert (each["pair"] == np.stack([each["n"], -each["n"]], 1)).all()
            found += each["n"].tolist()
        assert own.total == 101
    assert sorted(found) == [*range(101)] and (seed is None) == (found == sorted(found))


def test_all_ranks_make_the_same_steps(store: Store) -> None:
    for rank in range(4):
        found = [*rows(store, rank, 4).whole_batches(8, 9, seed=1)]
        assert [len(each["n"]) for each in found] == [8] * 9
        assert set(np.concatenate([each["n"] for each in found])) == set(
            np.concatenate([each["n"] for each in rows(store, rank, 4).batches(8)])
        )


def test_the_order_follows_the_seed(store: Store) -> None:
    first, again, other = (
        np.concatenate([each["n"] for each in rows(store, 0, 1).batches(4, seed)]) for seed in (1, 1, 2)
    )
    assert (first == again).all() and (first != other).any()


@pytest.mark.parametrize(
    ("values", "text"), [([1, None], "column x has 1 missing"), ([[1], [1, 2]], "rows of 1 and 2 values")]
)
def test_rows_that_fit_into_no_array(tmp_path: Path, values: list[Any], text: str) -> None:
    store = Store.create(str(tmp_path))
    Path(store.get_train_data_path()).mkdir()
    pq.write_table(pa.table({"x": values}), f"{store.get_train_data_path()}/a.parquet")
    own = Rows(store.get_parquet_dataset(store.get_train_data_path()), ["x"], 0, 1)
    with pytest.raises(ValueError, match=text):
        [*own.batches(4)]


def test_arrow_is_converted_in_blocks_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time must not follow the number of rows."""
    groups, size, batch = 4, 5000, 32
    columns = {"n": np.arange(groups * size), "pair": [[1.0, 2.0]] * (groups * size)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=size)
    converted, convert = [], rows_module.to_array

    def counted(name: str, column: Any) -> Any:
        converted.append(name)
        return convert(name, column)

    monkeypatch.setattr(rows_module, "to_array", counted)
    own = Rows(Store.create(str(tmp_path)).get_parquet_dataset(str(tmp_path)), ["n", "pair"], 0, 1)
    assert sum(len(each["n"]) for each in own.batches(batch, 1)) == groups * size
    blocks = groups * -(-size // (batch * BUFFERED_BATCHES))
    assert (converted.count("n"), converted.count("pair")) == (blocks, 2 * blocks)  # a list, and its values


@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 4), (3, 2, 4, 5)])
def test_pandas_columns_of_lists_are_arrays(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = from_series("x", pa.array(values.tolist(), _lists(len(shape) - 1)).to_pandas())
    assert found.dtype == np.float32 and found.shape == shape and (found == values).all()


def _lists(depth: int) -> pa.DataType:
    return pa.list_(_lists(depth - 1)) if depth else pa.float32()


def test_pandas_columns_that_fit_into_no_array() -> None:
    with pytest.raises(ValueError, match="column x has 1 missing values"):
        from_series("x", pd.Series([1.0, None]))
    with pytest.raises(ValueError, match=r"column x has rows of the shapes \[\(1,\), \(2,\)\]"):
        from_series("x", pa.array([[1.0], [1.0, 2.0]]).to_pandas())


def test_data_in_memory_of_fsspec() -> None:
    store = Store.create("memory://rows")
    assert not store.is_parquet_dataset(store.get_train_data_path())
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1, 2, 3]}), sink)
    store.write(f"{store.get_train_data_path()}/a.parquet", sink.getvalue().to_pybytes())
    own = Rows(store.get_parquet_dataset(store.get_train_data_path()), ["n"], 1, 2)
    assert [each["n"].tolist() for each in own.batches(4)] == [[2, 3]]
