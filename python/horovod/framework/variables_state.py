"""A state that has variables of a framework in addition to attributes, for elastic training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from horovod.common.basics import rank
from horovod.common.elastic import ObjectState


def bytes_of(array: Any) -> Any:
    """Returns the memory of a dense array as a vector of bytes."""
    return array.reshape(-1).view(np.uint8)


def check_equal(
    own: dict[str, str], sent: dict[str, str], names: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Refuses a process whose arrays are not those of the job that it joins.

    Args:
        own: a text that describes each array, by its place.
        sent: the same of the job.
        names: of this process's arrays, for the error, by their places.

    Raises:
        ValueError: they differ; it names the first one.
    """
    for place in [*own, *sent]:
        if own.get(place) != sent.get(place):
            raise ValueError(
                f"rank {rank()}: this process has another model than the job that it joins: "
                f"{names.get(place, place)} is {own.get(place, 'missing')} here and "
                f"{sent.get(place, 'missing')} there"
            )


def text_of(array: Any) -> str:
    """Returns the description of an array for ``check_equal``."""
    return f"an array {list(array.shape)} of {array.dtype}"


def copy_into(kept: Any, value: Any) -> Any:
    """Returns a copy; it is in the memory of the copy before if that fits, as new memory is slow."""
    if kept is None or (kept.shape, kept.dtype) != (value.shape, value.dtype):
        return np.array(value, order="C")
    np.copyto(kept, value)
    return kept


class VariablesState(ObjectState):
    """Keeps the values of variables in memory that stays the same from commit to commit.

    A subclass says which variables there are, and how they are read and assigned.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank, **kwargs)
        self._kept: list[Any] = []
        self._keep()

    def _variables(self) -> Sequence[Any]:
        """Returns the variables, the same ones on all ranks in the same order."""
        raise NotImplementedError

    def _read(self, variables: Sequence[Any]) -> list[Any]:
        """Returns their values as arrays of NumPy."""
        raise NotImplementedError

    def _assign(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        raise NotImplementedError

    def _keep(self) -> None:
        values = self._read(self._variables())  # all of them first: reading may fail
        before = [*self._kept, *[None] * (len(values) - len(self._kept))]
        self._kept = [copy_into(*pair) for pair in zip(before, values, strict=False)]

    def save(self) -> None:
        """Copies everything."""
        self._keep()
        super().save()

    def restore(self) -> None:
        """Goes back to what was copied."""
        self._assign(self._variables(), self._kept)
        super().restore()

    def _texts(self) -> dict[str, str]:
        """Describes the variables by place: names may differ, as frameworks number layers."""
        return {f"variable {place}": text_of(array) for place, array in enumerate(self._kept)}

    def _describe(self) -> tuple[Any, list[Any]]:
        objects, _ = super()._describe()
        return (objects, self._texts()), [*map(bytes_of, self._kept)]

    def _make_room(self, description: Any) -> list[Any]:
        objects, texts = description
        names = [getattr(variable, "path", variable.name) for variable in self._variables()]
        check_equal(self._texts(), texts, {f"variable {place}": name for place, name in enumerate(names)})
        super()._make_room(objects)
        return [*map(bytes_of, self._kept)]
