"""The modules of python/horovod: no circles of imports, and shared folders that import from below only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "python"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py*"))
    if path.suffix in (".py", ".pyi")
}
# A folder and the folders that it may import from, itself left out. Keras's may import from any. Spark's
# estimators are in folders that have the names of their frameworks.
SHARED = {"common", "framework"}
BELOW: dict[str, set[str]] = {
    "common": set(),
    "framework": {"common"},
    "runner": {"common"},
    "spark": {"common", "runner", "keras", "torch"},
}
KERAS = {"tensorflow", "keras", "_keras"}
# Packages that belong to a framework.
PARTS = {"jax": {"jax", "jaxlib", "flax", "optax"}, "keras": {"keras", "tf_keras"}}


def frameworks() -> list[str]:
    """The names in FRAMEWORKS of horovod.common.util."""
    text = MODULES["horovod.common.util"].read_text()
    return [*ast.literal_eval(text.partition("\nFRAMEWORKS = ")[2].partition("\n")[0])]


def named(text: str) -> Iterator[str]:
    """The module or package of ours that a dotted name belongs to, if any."""
    if text in MODULES:
        yield text
    elif text.rpartition(".")[0] in MODULES:
        yield text.rpartition(".")[0]


def imported(path: Path) -> set[str]:
    """Dotted names that a file imports anywhere, also in functions and by ``import_module``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found


def imports(path: Path) -> set[str]:
    """The modules of ours among them."""
    return {module for name in imported(path) for module in named(name)}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = {name: imports(path) for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("folder", [*BELOW, *(name for name in frameworks() if name not in KERAS)])
def test_imports_only_from_below(folder: str) -> None:
    allowed = BELOW.get(folder, SHARED) | {folder}
    wrong = [
        f"{name} imports {module}"
        for name, path in MODULES.items()
        if name.split(".")[1:2] == [folder]
        for module in imports(path)
        if "." in module and module != "horovod._core" and module.split(".")[1] not in allowed
    ]
    assert not wrong


@pytest.mark.parametrize("framework", frameworks())
def test_only_its_folder_imports_a_framework(framework: str) -> None:
    packages = PARTS.get(framework, {framework})
    folders = KERAS if framework in KERAS else {framework}
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if module.split(".")[-1] not in ("horovod", "_core") and folders.isdisjoint(module.split(".")[1:])
        for name in imported(path)
        if name.split(".")[0] in packages
    ]
    assert not wrong
