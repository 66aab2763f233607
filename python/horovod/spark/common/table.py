"""The parameters of estimators and models: a row for each, from which setters, getters and checks follow."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One parameter.

    Attributes:
        name: as a keyword; ``setFeatureCols`` and ``getFeatureCols`` belong to ``feature_cols``.
        doc: what it means.
        default: its value if it is not given.
        check: returns "" or what is wrong with a value.
        has_effect: false for parameters of Horovod that have no meaning here.
    """

    name: str
    doc: str
    default: Any = None
    check: Callable[[Any], str] = lambda value: ""
    has_effect: bool = True

    def camel(self) -> str:
        """Returns the name as it follows ``set`` and ``get``."""
        return "".join(part.capitalize() for part in self.name.split("_"))


def _at_least(least: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        whole = value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least)
        return "" if whole else f"must be a whole number from {least}"

    return check


def _validation(value: Any) -> str:
    if value is None or isinstance(value, str) or (isinstance(value, (int, float)) and 0 <= value < 1):
        return ""
    return "must be a part of the rows, from 0 to below 1, or the name of a column that is true in those rows"


def _names(value: Any) -> str:
    whole = value is None or (
        isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)
    )
    return "" if whole else "must be a list of names of columns"


def _none(name: str) -> Row:
    return Row(name, "has no effect here", has_effect=False)


SHARED = (
    Row("num_proc", "the number of ranks; None: one for each slot of Spark", None, _at_least(1)),
    Row("model", "the model to train"),
    Row("backend", "runs the ranks; None: SparkBackend(num_proc)"),
    Row("store", "where data and checkpoints are kept, a Store or the path of one"),
    Row("optimizer", "the optimizer, with the learning rate of one rank"),
    Row("loss", "the loss, or a list with one for each label"),
    Row("loss_weights", "the weight of each label's loss"),
    Row("sample_weight_col", "the column with the weight of each row"),
    Row("metrics", "functions or names of metrics", []),
    Row("gradient_compression", "hvd.Compression.fp16, for example"),
    Row("feature_cols", "the columns that the model gets, in the order of its inputs", None, _names),
    Row("label_cols", "the columns that it should predict, in the order of its outputs", None, _names),
    Row("validation", "the part of the rows, or the column, for validation", None, _validation),
    Row("callbacks", "callbacks of the framework", []),
    Row("checkpoint_callback", "a callback that also saves checkpoints"),
    Row("batch_size", "the rows of a batch of each rank", 32, _at_least(1)),
    Row("val_batch_size", "the same for validation; None: batch_size", None, _at_least(1)),
    Row("epochs", "the number of epochs", 1, _at_least(1)),
    Row("verbose", "0: silent, 1: rank 0 prints losses", 1),
    Row("random_seed", "for weights, shuffling and dividing the rows", None),
    Row("shuffle", "permute the rows in each epoch", True),
    Row("partitions_per_process", "files of data for each rank", 10, _at_least(1)),
    Row("run_id", "the name of the run; one that has a checkpoint is resumed"),
    Row("train_steps_per_epoch", "batches of an epoch; None: all rows", None, _at_least(1)),
    Row("validation_steps_per_epoch", "batches of a validation; None: all rows", None, _at_least(1)),
    Row("transformation_fn", "gets and returns a dict of arrays, a batch of columns"),
    Row("label_shapes", "the shape of a label, for each column; None: as the model's output"),
    Row("custom_objects", "classes and functions of the model, by name", {}),
    Row("inmemory_cache_all", "keep each rank's rows in memory", False),
    Row("backend_env", "variables for the ranks", {}),
    Row("use_gpu", "use the GPU of the rank, if it has one", True),
    *map(
        _none,
        (
            *("data_module", "reader_pool_type", "train_reader_num_workers", "val_reader_num_workers"),
            *("shuffle_buffer_size", "mp_start_method", "transformation_edit_fields"),
            *("transformation_removed_fields", "tensorflow_dataset_prefetch_buffer_size"),
            *("compress_sparse_cols", "continuous_cols", "categorical_cols"),
        ),
    ),
)
TORCH = (
    *SHARED,
    Row("loss_constructors", "functions that make the losses; instead of loss"),
    Row("input_shapes", "the shape of a row of each input, for example [[1, 28, 28]]"),
    Row("train_minibatch_fn", "trains one batch, see docs/spark.md"),
    Row("backward_passes_per_step", "batches whose gradients are added up for a step", 1, _at_least(1)),
)
KERAS = (*SHARED, Row("backward_passes_per_step", "batches for a step", 1, _at_least(1)))

MODEL = (
    Row("model", "the trained model"),
    Row("history", "what was measured in each epoch"),
    Row("run_id", "the name of the run"),
    Row("feature_columns", "the columns that the model gets", None, _names),
    Row("label_columns", "the columns that it predicts", None, _names),
    Row("output_cols", "the columns of predictions; None: label columns with __output", None, _names),
    Row("output_sizes", "the values of each output for a row; 1 makes a column of floats, others of arrays"),
    Row("batch_size", "the rows of a batch of predictions", 1024, _at_least(1)),
    Row("custom_objects", "classes and functions of the model, by name", {}),
    Row("input_shapes", "the shape of a row of each input"),
)


def check(rows: Sequence[Row], given: Mapping[str, Any], owner: str) -> None:
    """Checks values by name.

    Raises:
        TypeError: a name is unknown.
        ValueError: a value is impossible.
    """
    known = {row.name: row for row in rows}
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"{owner} has no parameter {name}{f'; did you mean {near[0]}?' if near else ''}")
        wrong = known[name].check(value)
        if wrong:
            raise ValueError(f"{owner}: {name}={value!r} {wrong}")


def check_columns(wanted: Sequence[str], there: Sequence[str]) -> None:
    """ValueError if a column is missing; the text says which ones there are."""
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(f"the DataFrame has no column {', '.join(missing)}; it has {', '.join(there)}")
