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
# A folder and the folders that it may import from, itself left out; other folders may import from any.
BELOW: dict[str, set[str]] = {
    "common": set(),
    "framework": {"common"},
    "runner": {"common"},
    "torch": {"common", "framework"},
    "jax": {"common", "framework"},
    "mxnet": {"common", "framework"},
}


def named(text: str) -> Iterator[str]:
    """The module or package of ours that a dotted name belongs to, if any."""
    if text in MODULES:
        yield text
    elif text.rpartition(".")[0] in MODULES:
        yield text.rpartition(".")[0]


def imports(path: Path) -> set[str]:
    """The modules of ours that a file imports anywhere, also in functions and by ``import_module``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        else:
            continue
        found.update(module for name in names for module in named(name))
    return found


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = {name: imports(path) for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("folder", BELOW)
def test_imports_only_from_below(folder: str) -> None:
    wrong = [
        f"{name} imports {module}"
        for name, path in MODULES.items()
        for module in imports(path)
        if name.split(".")[1:2] == [folder] and "." in module and module != "horovod._core"
        if module.split(".")[1] not in BELOW[folder] | {folder}
    ]
    assert not wrong
