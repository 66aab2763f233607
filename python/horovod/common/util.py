"""Small functions that scripts written for Horovod import from here."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from horovod import _core, basics
from horovod.common.exceptions import HorovodVersionMismatchError

T = TypeVar("T")

_cache = functools.lru_cache(maxsize=None)


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the package for a framework, such as ``"torch"``, can be used here."""
    found = all(
        importlib.util.find_spec(name) is not None for name in (ext_base_name, f"horovod.{ext_base_name}")
    )
    if verbose:
        print(f"horovod.{ext_base_name}: {'available' if found else 'not available'}")
    return found


def check_extension(ext_name: str, *_: Any) -> None:
    """Raises ImportError when the package for a framework can't be used here."""
    framework = ext_name.removeprefix("horovod.")
    if not extension_available(framework):
        raise ImportError(f"horovod.{framework} needs {framework}, which is not installed here")


def get_ext_suffix() -> str:
    """What the file name of the engine's module ends with."""
    path = get_extension_full_path(__file__)
    return path[path.index(".", path.rindex(os.sep)) :]


def get_extension_full_path(pkg_path: str, *_: Any) -> str:
    """The file of the engine's module, one for all frameworks."""
    return str(_core.__file__)


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether operations can run on a GPU: not in this version."""
    return False


def mpi_built(verbose: bool = False) -> bool:
    """See ``horovod.mpi_built``."""
    return basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """See ``horovod.gloo_built``."""
    return basics.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    """See ``horovod.nccl_built``."""
    return bool(basics.nccl_built())


def ddl_built(verbose: bool = False) -> bool:
    """See ``horovod.ddl_built``."""
    return basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """See ``horovod.ccl_built``."""
    return basics.ccl_built()


@contextlib.contextmanager
def env(**values: str | None) -> Iterator[None]:
    """Sets variables of the environment for a while; None removes one."""
    before = {name: os.environ.get(name) for name in values}
    _set_environment(values)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def split_list(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """So many slices of nearly equal length, the longer ones first."""
    length, longer = divmod(len(items), parts)
    ends = [(i + 1) * length + min(i + 1, longer) for i in range(parts)]
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def is_iterable(value: Any) -> bool:
    """Whether one can loop over it."""
    return isinstance(value, Iterable)


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether a number of ranks is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.split("+")[0])[:3]]


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether a version is at least ``"a.b.c"``; what follows the three numbers is ignored."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", target):
        raise ValueError(f"the target must be three numbers, such as 1.12.0, not {target}")
    return _numbers(ver) >= _numbers(target)


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Raises HorovodVersionMismatchError when a framework's version could not be used; all can here."""
    if exception is not None:
        raise HorovodVersionMismatchError(f"horovod can't use {name} {version}: {exception}") from exception


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[int | None, bool | None], int]:
    """A function that turns the parameters ``op`` and ``average`` into an op, for code of before ``op``."""

    def op_of(op: int | None, average: bool | None) -> int:
        if op is not None and average is not None:
            raise ValueError("pass op or average, not both")
        if average is None:
            return int(reduce_ops.Average if op is None else op)
        warnings.warn("average is deprecated: pass op=Average or op=Sum", DeprecationWarning, stacklevel=2)
        return int(reduce_ops.Average if average else reduce_ops.Sum)

    return op_of
