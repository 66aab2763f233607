"""Names of Horovod's launcher that have no meaning here: to ask for one says why.

docs/compatibility.md lists them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from typing import Any

_PICKLES = "it sends pickles over the network, which lets whoever reaches the port run code"
_ELASTIC = "elastic jobs come with a later version"
_NO_HTTP = (
    "there is no HTTP here: ranks meet at RendezvousServer, and results of horovod.run come through pipes"
)
_LSF = "only the hosts and slots of an allocation of LSF are read"

# Modules, with all that is below them.
MODULES = {
    "horovod.runner.common.util.network": _PICKLES,
    "horovod.runner.common.service": _PICKLES,
    "horovod.runner.driver": _PICKLES,
    "horovod.runner.task_fn": _PICKLES,
    "horovod.runner.run_task": _NO_HTTP,
    "horovod.runner.http.http_client": _NO_HTTP,
    "horovod.runner.util.remote": "horovodrun checks the hosts by itself",
    "horovod.runner.elastic": _ELASTIC,
}
# Names in modules that are there.
NAMES = {
    "horovod.runner.http.http_server.KVStoreServer": _NO_HTTP,
    "horovod.runner.http.http_server.KVStoreHandler": _NO_HTTP,
    "horovod.runner.http.http_server.RendezvousHandler": _NO_HTTP,
    "horovod.runner.gloo_run.gloo_run_elastic": _ELASTIC,
    "horovod.runner.gloo_run.launch_gloo_elastic": _ELASTIC,
    "horovod.runner.launch._run_elastic": _ELASTIC,
    "horovod.runner.js_run.generate_jsrun_rankfile": "jsrun places ranks; binding_args are options for it",
    "horovod.runner.util.lsf.LSFUtils.get_num_cores": _LSF,
    "horovod.runner.util.lsf.LSFUtils.get_num_threads": _LSF,
    "horovod.runner.util.lsf.LSFUtils.get_num_gpus": _LSF,
}


class _Finder(MetaPathFinder):
    """Asked last, for modules that nobody else finds."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(_text(name, MODULES[name]), name=name)


def _text(name: str, reason: str) -> str:
    return f"{name} has no counterpart here: {reason}"


def names_of(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module.

    It raises ImportError, because ``from module import name`` replaces the text of an AttributeError.
    """

    def get(name: str) -> Any:
        if reason := NAMES.get(f"{module}.{name}"):
            raise ImportError(_text(f"{module}.{name}", reason), name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get


class Absent:
    """An attribute that a class of Horovod has."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{owner.__module__}.{owner.__qualname__}.{name}"

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(_text(self._name, NAMES[self._name]))


def install() -> None:
    """Explains the import of modules that are not here."""
    sys.meta_path.append(_Finder())
