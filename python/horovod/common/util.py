"""Functions that scripts and tests written for Horovod import from here.

One wheel serves every framework, so questions about Horovod's build are answered by the installed packages.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

from horovod import _core
from horovod.common import basics
from horovod.common.basics import Average, Sum
from horovod.common.caller import warn_caller

T = TypeVar("T")

# Each has a package of the same name under horovod, which takes the place of Horovod's extension.
FRAMEWORKS = ("tensorflow", "torch", "mxnet", "keras", "jax")

_cache = functools.cache


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns true if ``horovod.<ext_base_name>`` can be imported."""
    package = f"horovod.{ext_base_name}"
    missing = [ext_base_name]
    if ext_base_name in FRAMEWORKS:
        missing = [name for name in (package, ext_base_name) if importlib.util.find_spec(name) is None]
    if verbose:
        print(f"{package}: {f'{missing[0]} is missing' if missing else 'available'}")
    return not missing


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError unless the package ``ext_name``, such as ``horovod.torch``, can be imported."""
    if not extension_available(ext_name.rpartition(".")[2]):
        raise ImportError(
            f"{ext_name} can't be used: install its framework. Horovod need not be built again, and "
            f"{ext_env_var} has no meaning here"
        )


def get_ext_suffix() -> str:
    """Returns the ending of the names of compiled modules."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Returns the path of a compiled module, given a file of its package and the parts of its name."""
    assert args
    folder = os.path.join(os.path.dirname(pkg_path), *args[:-1])
    return os.path.join(folder, args[-1] + get_ext_suffix())


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns true if this process can use a GPU of NVIDIA, whatever the framework.

    It initialises the driver, as ``torch.cuda.is_available`` does: children of ``os.fork`` can't use GPUs any
    longer.
    """
    available, text = _core.find_cuda()
    if verbose:
        print(f"horovod.{ext_base_name}: {text}")
    return available


def mpi_built(verbose: bool = False) -> bool:
    """Returns ``hvd.mpi_built()``."""
    return basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """Returns ``hvd.gloo_built()``."""
    return basics.gloo_built()


def nccl_built(verbose: bool = False) -> int:
    """Returns ``hvd.nccl_built()``."""
    return basics.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """Returns ``hvd.ddl_built()``."""
    return basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """Returns ``hvd.ccl_built()``."""
    return basics.ccl_built()


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets variables of the environment, except those that are None, and restores them at the end."""
    given = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def split_list(l: Sequence[T], n: int) -> list[Sequence[T]]:  # noqa: E741
    """Splits a list into ``n`` nearly equal pieces, the longer ones first."""
    length, longer = divmod(len(l), n)
    starts = [i * length + min(i, longer) for i in range(n + 1)]
    return [l[start:end] for start, end in pairwise(starts)]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns true for 1, 2, 4, 8, …"""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_iterable(x: object) -> bool:
    """Returns true if the object can be iterated over."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compares the first three numbers of ``ver`` with ``target``, which must be of the form a.b.c."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", target):
        raise ValueError(f"the version to compare with is '{target}'; it must be three numbers, a.b.c")
    numbers = [int(number) for number in re.findall(r"\d+", ver.partition("+")[0])[:3]]
    return [*numbers, 0, 0][:3] >= [int(number) for number in target.split(".")]


def reduction_of(average: bool | None, op: int | None) -> int:
    """Returns the reduction that the old parameter ``average`` and the new one ``op`` mean together."""
    if average is None:
        return Average if op is None else op
    if op is not None:
        raise ValueError("pass op or average, not both; average is the old way to say op=Average or op=Sum")
    warn_caller("average is deprecated: pass op=Average or op=Sum")
    return Average if average else Sum


def get_average_backwards_compatibility_fun(
    reduce_ops: Any,
) -> Callable[[int | None, bool | None], int]:
    """Returns a function of ``(op, average)``, which returns the reduction that the two mean together."""
    return lambda op, average: reduction_of(average, op)


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Does nothing: Horovod compares with the version that it was built for, and this wheel serves all."""
