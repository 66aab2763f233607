"""Makes the frameworks import less in the processes of tests; test/run.py puts this folder on PYTHONPATH.

Importing is most of what these processes compute: most of them train for a second or less.

- TensorFlow and Keras import packages that they don't depend on if these are installed for another framework.
  Without them a process has what somebody has who installs TensorFlow alone, or Keras for another back end.
- PyTorch's optimizers import its compiler, which takes longer than PyTorch, to say that they aren't compiled.
  Here it is loaded once somebody uses more of it.

`make test-frameworks`, the benchmarks and a test that is started alone import everything.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

ABSENT = {  # for which modules
    "jax": ("tensorflow.lite.", "keras.src.callbacks."),
    "matplotlib": ("keras.src.visualization.",),
    "PIL": ("keras.src.utils.",),
    "scipy": ("tensorflow.python.keras.",),
}
if os.environ.get("KERAS_BACKEND") in ("jax", "torch"):
    ABSENT["tensorflow"] = ("keras.src.",)
COMPILER = "torch._dynamo"


class Compiler(ModuleType):
    """PyTorch's compiler before it is loaded, which any use but these two does."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__spec__"):
            return super().__getattribute__(name)
        if name in ("disable", "graph_break"):
            return {"disable": disable, "graph_break": lambda *_: None}[name]
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__spec__.loader.whole.exec_module(self)  # type: ignore[union-attr]
        return getattr(self, name)


def disable(function: Callable[..., Any] | None = None, recursive: bool = True, **more: Any) -> Any:
    """Runs the function as it is until the compiler is loaded, which must then leave it out."""
    if function is None:
        return lambda function: disable(function, recursive, **more)
    left_out: Callable[..., Any] | None = None

    def call(*words: Any, **named: Any) -> Any:
        nonlocal left_out
        compiler = sys.modules[COMPILER]
        if type(compiler) is Compiler:
            return function(*words, **named)
        left_out = left_out or compiler.disable(function, recursive, **more)
        return left_out(*words, **named)

    return call


class Later(importlib.abc.Loader):
    """Leaves the module without its contents."""

    def __init__(self, whole: importlib.abc.Loader) -> None:
        self.whole = whole

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.whole.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = Compiler


class Finder(importlib.abc.MetaPathFinder):
    """Comes before those that find modules in folders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in ABSENT and importer().startswith(ABSENT[fullname]):
            raise ModuleNotFoundError(f"{fullname} is absent for {importer()} in tests", name=fullname)
        if fullname != COMPILER or not importer().startswith(
            ("torch._compile", "torch.optim.", "keras.src.")
        ):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec and spec.loader:
            spec.loader = Later(spec.loader)
        return spec


def importer() -> str:
    """The module that imports, which called the functions of importlib."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(("importlib", __name__)):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


sys.meta_path.insert(0, Finder())
