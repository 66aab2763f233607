"""The data path of horovod.spark's estimators: shares, stores, the table of parameters; without Spark."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

import pytest

from horovod.spark.common import table
from horovod.spark.common.shares import share, steps
from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, Store


@pytest.mark.parametrize("seed", range(20))
def test_each_row_belongs_to_one_rank_and_shares_are_equal(seed: int) -> None:
    generator = random.Random(seed)
    counts = [generator.choice([0, 1, 7, 100]) for _ in range(generator.randrange(1, 9))] + [9]
    size = generator.randrange(1, 10)
    shares = [share(counts, rank, size) for rank in range(size)]
    rows = [
        sorted((span.group, row) for span in spans for row in range(span.start, span.stop))
        for spans in shares
    ]
    assert sorted(itertools.chain(*rows)) == [
        (i, row) for i, count in enumerate(counts) for row in range(count)
    ]
    assert max(map(len, rows)) - min(map(len, rows)) <= 1
    groups = [{span.group for span in spans} for spans in shares]
    assert sum(map(len, groups)) - len(set().union(*groups)) <= size - 1


def test_fewer_rows_than_ranks_give_each_rank_one() -> None:
    shares = [share([1, 1], rank, 5) for rank in range(5)]
    assert all(sum(span.stop - span.start for span in spans) == 1 for spans in shares)
    assert {spans[0].group for spans in shares} == {0, 1}
    assert share([], 0, 2) == [] and share([0], 1, 2) == []


@pytest.mark.parametrize(
    ("rows", "size", "batch", "expected"), [(100, 2, 10, 5), (101, 2, 10, 6), (1, 4, 32, 1), (64, 2, 32, 1)]
)
def test_steps_are_enough_for_the_largest_share(rows: int, size: int, batch: int, expected: int) -> None:
    assert steps(rows, size, batch) == expected


# -- stores --------------------------------------------------------------------------------------------------


def kept(store: Store, prefix: str) -> None:
    assert store.get_train_data_path() == f"{prefix}/intermediate_train_data"
    assert store.get_val_data_path(3) == f"{prefix}/intermediate_val_data.3"
    path = store.get_checkpoint_path("run")
    assert path == f"{prefix}/runs/run/checkpoint.ckpt" and not store.exists(path)
    store.write(path, b"one")
    store.write(path, b"two")
    assert store.read(path) == b"two" and store.exists(path)
    assert [each.rpartition("/")[2] for each in store.get_checkpoints("run")] == ["checkpoint.ckpt"]
    with store.get_local_output_dir_fn("run")() as folder:
        (Path(folder) / "log").write_text("text")
        store.sync_fn("run")(folder)
    assert store.read(f"{prefix}/runs/run/log") == b"text" and not os.path.exists(folder)
    store.check_writable()
    store.delete(store.get_run_path("run"))
    store.delete(store.get_run_path("run"))
    assert not store.exists(path)
    assert store.to_remote("run", 3).train_data_path == f"{prefix}/intermediate_train_data.3"


def test_a_store_on_this_host(tmp_path: Path) -> None:
    store = Store.create(str(tmp_path / "store"))
    assert type(store) is FilesystemStore and store.spark_path("/a/b") == "file:///a/b"
    kept(store, f"{tmp_path}/store")
    assert [*(tmp_path / "store").rglob("*.*")] == [], "a part of a file is left"


def test_a_store_in_memory() -> None:
    kept(Store.create("memory://spark/store/"), "memory://spark/store")


def test_a_relative_path_is_that_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Store.create("store").get_runs_path() == f"{tmp_path}/store/runs"


def test_a_store_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=rf"the store {tmp_path}/file can't be written: "):
        Store.create(str(tmp_path / "file")).check_writable()


def test_paths_of_databricks_and_hdfs() -> None:
    store = Store.create("dbfs:/a")
    assert type(store) is DBFSLocalStore
    assert store.file_path("dbfs:/a/b") == "/dbfs/a/b" == store.file_path("/dbfs/a/b")
    assert store.spark_path("/dbfs/a/b") == "dbfs:/a/b" == store.spark_path("dbfs:/a/b")
    hadoop = Store.create("hdfs://node:1/a", user="me")
    assert type(hadoop) is HDFSStore and hadoop.prefix_path == "hdfs://node:1/a"
    assert HDFSStore("/a", host="n", port=2).prefix_path == "hdfs://n:2/a"
    with pytest.raises(ValueError, match="driver='libhdfs3'"):
        HDFSStore("hdfs://a/b", driver="libhdfs3")


# -- parameters ----------------------------------------------------------------------------------------------


def test_defaults_are_possible_values_and_names_unique() -> None:
    for rows in (table.TORCH, table.KERAS, table.MODEL):
        assert len({row.name for row in rows}) == len(rows)
        table.check(rows, {row.name: row.default for row in rows}, "It")


@pytest.mark.parametrize(
    ("name", "value"),
    [("epochs", 0), ("batch_size", 1.5), ("num_proc", True), ("validation", 1.0), ("feature_cols", "a")],
)
def test_impossible_values_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"TorchEstimator: {name}=.* must be"):
        table.check(table.TORCH, {name: value}, "TorchEstimator")


def test_an_unknown_parameter_gets_a_suggestion() -> None:
    with pytest.raises(TypeError, match="has no parameter feature_columns; did you mean feature_cols"):
        table.check(table.KERAS, {"feature_columns": []}, "KerasEstimator")


def test_unknown_columns_are_named_with_those_that_exist() -> None:
    table.check_columns(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="no column x, y; it has a, b"):
        table.check_columns(["x", "a", "y"], ["a", "b"])


def test_names_of_setters() -> None:
    assert {row.name: row.camel() for row in table.TORCH}["train_minibatch_fn"] == "TrainMinibatchFn"
