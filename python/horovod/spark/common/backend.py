"""Where the ranks of an estimator run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod.spark import jobs
from horovod.spark.slots import is_classic, parallelism, slots


def default_num_proc() -> int:
    """Returns the number of slots that Spark has now."""
    spark = jobs.active_session()
    return max(1, slots(spark)) if is_classic(spark) else parallelism(spark)


class Backend:
    """Runs a function on ranks."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """Returns the results in rank order."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """Returns the number of ranks."""
        raise NotImplementedError


class SparkBackend(Backend):
    """Runs a function by ``horovod.spark.run``, whose parameters ``kwargs`` are.

    Args:
        num_proc: the number of ranks; None: one for each slot.
        env: variables for the ranks.
    """

    def __init__(
        self, num_proc: int | None = None, env: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        self._num_proc, self._env, self._kwargs = num_proc, dict(env or {}), kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """Returns the results in rank order."""
        variables = {**self._env, **(env or {})}
        return jobs.run(fn, args, kwargs, num_proc=self.num_processes(), env=variables, **self._kwargs)

    def num_processes(self) -> int:
        """Returns the number of ranks."""
        if self._num_proc is None:
            self._num_proc = default_num_proc()
        return self._num_proc
