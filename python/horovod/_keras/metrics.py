"""The average over all ranks of the metrics of an epoch, which may be numbers, arrays, or nested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import horovod

Path = tuple[Any, ...]  # the name of a metric, then keys of mappings and places in lists down to a value


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Generates the values inside, in an order that is the same on all ranks."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], (*path, key))
    elif isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            yield from _leaves(each, (*path, place))
    else:
        yield path, value


def _replaced(value: Any, averages: Mapping[Path, Any], path: Path = ()) -> Any:
    """Returns the same structure with the averages in it."""
    if isinstance(value, Mapping):
        return {key: _replaced(each, averages, (*path, key)) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        new = [_replaced(each, averages, (*path, place)) for place, each in enumerate(value)]
        return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
    return averages.get(path, value)


def _spelled(path: Path) -> str:
    return ".".join(map(str, path))


def _numbers(path: Path, value: Any) -> Any:
    """Returns the value as an array, or None if it holds no numbers, such as a text or None."""
    if hasattr(value, "detach"):  # a tensor of PyTorch; NumPy has no bfloat16
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value
    try:
        array = np.asarray(value)
        return None if array.dtype.kind in "OSUMm" else array
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"MetricAverageCallback can't average {_spelled(path)}, a {type(value).__name__}: {error}"
        ) from error


def _check_equal(metrics: Sequence[Sequence[tuple[Path, Any]]]) -> None:
    """Refuses metrics whose names or shapes differ by rank: their average would be a wrong number."""
    for rank, own in enumerate(metrics):
        if own != metrics[0]:
            differ = sorted(f"{_spelled(path)} of shape {shape}" for path, shape in {*own} ^ {*metrics[0]})
            raise ValueError(
                "MetricAverageCallback: all ranks must have the same metrics, but only one of the ranks "
                f"0 and {rank} has {' and '.join(differ)}"
            )


def _average(arrays: Sequence[Any]) -> list[Any]:
    """Returns the averages: floats for numbers, which integers become; arrays of floats keep their type."""
    if not arrays:
        return []
    wide = [array if array.dtype.kind == "c" else array.astype(np.float64) for array in arrays]
    results = horovod.grouped_allreduce(wide, name="metrics")
    averages = []
    for array, result in zip(arrays, results, strict=True):
        kind = result.dtype if array.dtype.kind in "biu" else array.dtype
        averages.append(result.astype(kind) if result.ndim else result.item())
    return averages


def averaged(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the averages of metrics that all ranks have: numbers as floats, arrays and tensors as arrays.

    Texts, None and other objects stay as they are.

    Raises:
        ValueError: the ranks have different metrics.
    """
    arrays = {path: _numbers(path, value) for path, value in _leaves(metrics)}
    arrays = {path: array for path, array in arrays.items() if array is not None}
    _check_equal(horovod.allgather_object([(path, array.shape) for path, array in arrays.items()], "metrics"))
    averages = dict(zip(arrays, _average([*arrays.values()]), strict=True))
    return _replaced(metrics, averages)  # type: ignore[no-any-return]
