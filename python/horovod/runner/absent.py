"""Names of Horovod's launcher that have no meaning here: importing one raises an error that says why.

docs/compatibility.md lists them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from typing import Any

_PICKLES = "it sends pickles over the network, so anyone who reaches the port can run code"
_NO_HTTP = (
    "there is no HTTP here: ranks meet at RendezvousServer, and results of horovod.run come through pipes"
)
_LSF = "only the hosts and slots of an allocation of LSF are read"

# Modules, including their submodules.
MODULES = {
    "horovod.runner.common.util.network": _PICKLES,
    "horovod.runner.common.service": _PICKLES,
    "horovod.runner.driver": _PICKLES,
    "horovod.runner.task_fn": _PICKLES,
    "horovod.runner.run_task": _NO_HTTP,
    "horovod.runner.http.http_client": _NO_HTTP,
    "horovod.runner.util.remote": "horovodrun checks the hosts by itself",
}
# Names in modules that exist here.
NAMES = {
    "horovod.runner.http.http_server.KVStoreServer": _NO_HTTP,
    "horovod.runner.http.http_server.KVStoreHandler": _NO_HTTP,
    "horovod.runner.http.http_server.RendezvousHandler": _NO_HTTP,
    "horovod.runner.js_run.generate_jsrun_rankfile": "jsrun places ranks; binding_args are options for it",
    "horovod.runner.util.lsf.LSFUtils.get_num_cores": _LSF,
    "horovod.runner.util.lsf.LSFUtils.get_num_threads": _LSF,
    "horovod.runner.util.lsf.LSFUtils.get_num_gpus": _LSF,
}


class _Finder(MetaPathFinder):
    """The last finder of `sys.meta_path`; it refuses modules that no other finder has found."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(_text(name, MODULES[name]), name=name)


def _text(name: str, reason: str) -> str:
    return f"{name} has no counterpart here: {reason}"


def names_of(module: str) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a module.

    For absent names it raises an ImportError, because ``from module import name`` replaces the text of an
    AttributeError.
    """

    def get(name: str) -> Any:
        if reason := NAMES.get(f"{module}.{name}"):
            raise ImportError(_text(f"{module}.{name}", reason), name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get


class Absent:
    """An attribute that a class has in Horovod but not here; reading it raises an AttributeError."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__module__}.{owner.__qualname__}.{name}"

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(_text(self._name, NAMES[self._name]))


def install() -> None:
    """From now on the import of an absent module raises an error that says why."""
    sys.meta_path.append(_Finder())
