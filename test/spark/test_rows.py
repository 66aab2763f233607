"""Parquet files as batches of arrays, read by pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from horovod.spark.common.rows import Rows
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


def test_data_in_memory_of_fsspec() -> None:
    store = Store.create("memory://rows")
    assert not store.is_parquet_dataset(store.get_train_data_path())
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1, 2, 3]}), sink)
    store.write(f"{store.get_train_data_path()}/a.parquet", sink.getvalue().to_pybytes())
    own = Rows(store.get_parquet_dataset(store.get_train_data_path()), ["n"], 1, 2)
    assert [each["n"].tolist() for each in own.batches(4)] == [[2, 3]]
