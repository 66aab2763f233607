"""Makes Spark ML's parameters, with setters and getters, of the rows of a table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyspark.ml.param import Param, Params

from horovod.spark.common import table

T = TypeVar("T", bound=type)


def with_params(rows: Sequence[table.Row]) -> Callable[[T], T]:
    """Returns a decorator that gives a subclass of ``TableParams`` these parameters."""

    def decorate(kind: T) -> T:
        kind._rows = tuple(rows)  # type: ignore[attr-defined]
        for row in rows:
            setattr(kind, row.name, Param(Params._dummy(), row.name, row.doc))
            for name, make in ((f"set{row.camel()}", _setter), (f"get{row.camel()}", _getter)):
                if not hasattr(kind, name):  # it may have one of its own
                    setattr(kind, name, make(row))
        return kind

    return decorate


def _setter(row: table.Row) -> Callable[[Any, Any], Any]:
    def set_value(self: Any, value: Any) -> Any:
        return self.setParams(**{row.name: value})

    set_value.__doc__ = f"Sets ``{row.name}``: {row.doc}."
    return set_value


def _getter(row: table.Row) -> Callable[[Any], Any]:
    def get_value(self: Any) -> Any:
        return self.value(row.name)

    get_value.__doc__ = f"Returns ``{row.name}``: {row.doc}."
    return get_value


class TableParams(Params):  # type: ignore[misc]
    """What has the parameters of a table."""

    _rows: tuple[table.Row, ...] = ()

    def __init__(self, **values: Any) -> None:
        super().__init__()
        for row in self._rows:
            self._defaultParamMap[getattr(self, row.name)] = row.default
        self.setParams(**values)

    def setParams(self, **values: Any) -> Any:  # noqa: N802
        """Sets parameters by name.

        Raises:
            TypeError: a name is unknown.
            ValueError: a value is impossible.
        """
        table.check(self._rows, values, type(self).__name__)
        idle = {row.name for row in self._rows if not row.has_effect}
        for name, value in values.items():
            if name in idle and value is not None:
                warnings.warn(f"{type(self).__name__}: {name} has no effect here", stacklevel=3)
            # Spark ML formats values by %, which takes tuples apart.
            self._paramMap[getattr(self, name)] = [*value] if isinstance(value, tuple) else value
        return self

    def value(self, name: str) -> Any:
        """Returns the value of a parameter, or its default."""
        return self.getOrDefault(getattr(self, name))

    def values(self) -> dict[str, Any]:
        """Returns those that were given, by name."""
        return {param.name: value for param, value in self._paramMap.items()}
