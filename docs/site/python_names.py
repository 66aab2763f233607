"""The public names of a module of python/horovod, found in its source: nothing is imported.

A name is public if it is in ``__all__``, or, in a module without one, if the module defines it or imports it
``as`` itself, and it has no leading underscore. What a name means is followed through imports, star imports
and attributes of objects that a module makes, such as ``allreduce = _collectives.allreduce``.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "python"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Definition:
    """What a name means: `module` and `name` say where it is defined."""

    module: str
    name: str
    kind: str  # "function", "class", "value" or "module"
    text: str = ""
    signature: str = ""
    members: list[Definition] = field(default_factory=list)  # of a class, and of its bases here


@dataclass
class Import:
    module: str
    name: str


Binding = Import | ast.stmt


def path_of(module: str) -> Path:
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text())


def exists(module: str) -> bool:
    return path_of(module).is_file()


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module that bind names, also under conditions and in its ``__getattr__``."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from statements(node.body)
        elif isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            yield from (each for each in statements(node.body) if isinstance(each, ast.ImportFrom))
        else:
            yield node


def targets(node: ast.stmt) -> list[tuple[str, ast.expr | None]]:
    """Names and values of an assignment, in pairs."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [(node.target.id, node.value)]
    if not isinstance(node, ast.Assign):
        return []
    [target] = node.targets[:1]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = zip(target.elts, node.value.elts, strict=True)
        return [(each.id, value) for each, value in pairs if isinstance(each, ast.Name)]
    return [(target.id, node.value)] if isinstance(target, ast.Name) else []


@functools.cache
def bindings(module: str) -> dict[str, Binding]:
    found: dict[str, Binding] = {}
    for node in statements(tree_of(module).body):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("horovod"):
            for alias in node.names:
                if alias.name == "*":
                    found |= {name: Import(node.module, name) for name in exports(node.module)}
                else:
                    found[alias.asname or alias.name] = Import(node.module, alias.name)
        elif isinstance(node, Function | ast.ClassDef):
            if not is_overload(node):
                found[node.name] = node
        else:
            found |= {name: node for name, _ in targets(node)}
    return found


def docstring(node: ast.Module | ast.ClassDef | Function) -> str:
    return ast.get_docstring(node) or ""


def is_type_variable(node: Binding) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and "TypeVar" in ast.dump(node.value)
    )


def is_overload(node: Function | ast.ClassDef) -> bool:
    return any(ast.unparse(each).endswith("overload") for each in node.decorator_list)


def exports(module: str) -> list[str]:
    """The public names of a module, sorted."""
    listed = bindings(module).get("__all__")
    if isinstance(listed, ast.Assign) and isinstance(listed.value, ast.List):
        names: set[str] = set()
        for item in listed.value.elts:
            if isinstance(item, ast.Constant):
                names.add(str(item.value))
            elif isinstance(item, ast.Starred) and isinstance(item.value, ast.Attribute):
                origin = bindings(module)[ast.unparse(item.value.value)]
                assert isinstance(origin, Import)
                names.update(exports(f"{origin.module}.{origin.name}"))
        return sorted(names)
    own = {name for name, each in bindings(module).items() if not isinstance(each, Import)}
    own -= {name for name in own if is_type_variable(bindings(module)[name])}
    passed = set()
    for node in statements(tree_of(module).body):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*" and node.module:
                    passed.update(exports(node.module))
                elif alias.asname == alias.name:
                    passed.add(alias.name)
    deferred = _from_getattr(module)
    return sorted(name for name in own | passed | deferred if not name.startswith("_"))


def _from_getattr(module: str) -> set[str]:
    """Names that a module imports when they are first used."""
    found = set()
    for node in tree_of(module).body:
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            for each in statements(node.body):
                if isinstance(each, ast.ImportFrom):
                    found |= {alias.name for alias in each.names}
    return found


def define(module: str, name: str) -> Definition:
    """Follows a name to its definition."""
    bound = bindings(module).get(name)
    if isinstance(bound, Import):
        if exists(f"{bound.module}.{bound.name}"):
            inner = f"{bound.module}.{bound.name}"
            return Definition(inner, "", "module", docstring(tree_of(inner)))
        return define(bound.module, bound.name)
    if isinstance(bound, Function):
        return function_of(module, bound)
    if isinstance(bound, ast.ClassDef):
        return class_of(module, bound)
    if bound is None:
        raise LookupError(f"{module} has no name {name}")
    value = dict(targets(bound))[name]
    if isinstance(value, ast.Name) and value.id in bindings(module):
        return define(module, value.id)
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        found = member_of_object(module, value.value.id, value.attr)
        if found:
            return found
    return Definition(module, name, "value", comment_above(module, bound))


def member_of_object(module: str, variable: str, name: str) -> Definition | None:
    """The method of an object that the module has made by calling a class."""
    made = bindings(module).get(variable)
    if not isinstance(made, ast.Assign | ast.AnnAssign):
        return None
    value = made.value
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name):
        return None
    kind = define(module, value.func.id)
    return next((member for member in kind.members if member.name == name), None)


def comment_above(module: str, node: ast.stmt) -> str:
    """The comment in front of the group of assignments to which a value belongs."""
    lines = path_of(module).read_text().splitlines()
    line = node.lineno - 2
    while line >= 0 and lines[line] and not lines[line].startswith("#"):
        line -= 1
    words: list[str] = []
    while line >= 0 and lines[line].startswith("#"):
        words.insert(0, lines[line].lstrip("# "))
        line -= 1
    return " ".join(words)


def function_of(module: str, node: Function, skip_first: bool = False) -> Definition:
    if any(ast.unparse(each) in ("property", "functools.cached_property") for each in node.decorator_list):
        kind, signature = "value", f" -> {ast.unparse(node.returns)}" if node.returns else ""
    else:
        kind, signature = "function", signature_of(node, skip_first)
    return Definition(module, node.name, kind, docstring(node), signature)


def signature_of(node: Function, skip_first: bool) -> str:
    given = node.args
    if skip_first and (given.posonlyargs or given.args):
        first = given.posonlyargs or given.args
        copied = ast.arguments(**{name: getattr(given, name) for name in given._fields})
        if given.posonlyargs:
            copied.posonlyargs = first[1:]
        else:
            copied.args = first[1:]
        given = copied
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(given)}){result}"


def class_of(module: str, node: ast.ClassDef) -> Definition:
    """A class with its public members; `signature` is that of its constructor."""
    members: dict[str, Definition] = {}
    signature = ""
    for base in reversed(node.bases):
        found = base_of(module, base)
        if found:
            members |= {member.name: member for member in found.members}
            signature = found.signature
    methods = {each.name: each for each in node.body if isinstance(each, Function)}
    for each in node.body:
        if isinstance(each, Function):
            if each.name == "__init__":
                signature = signature_of(each, True).removesuffix(" -> None")
            elif not each.name.startswith("_") and not is_overload(each):
                static = any(ast.unparse(mark) == "staticmethod" for mark in each.decorator_list)
                members[each.name] = function_of(module, each, not static)
        for name, value in targets(each):
            if not name.startswith("_"):
                made = made_method(module, name, value, methods)
                members[name] = made or Definition(module, name, "value", comment_above(module, each))
    text = docstring(node)
    return Definition(module, node.name, "class", text, signature or "()", list(members.values()))


def base_of(module: str, base: ast.expr) -> Definition | None:
    if isinstance(base, ast.Subscript):
        base = base.value
    if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
        origin = bindings(module).get(base.value.id)
        inner = f"{origin.module}.{origin.name}" if isinstance(origin, Import) else ""
        return define(inner, base.attr) if inner and exists(inner) else None
    if isinstance(base, ast.Name) and base.id in bindings(module):
        found = define(module, base.id)
        return found if found.kind == "class" else None
    return None


def made_method(
    module: str, name: str, value: ast.expr | None, methods: dict[str, Function]
) -> Definition | None:
    """``allreduce = blocking(_allreduce, "text")``: the text, with the signature of that function."""
    if not isinstance(value, ast.Call) or len(value.args) < 2:
        return None
    function, text = value.args[:2]
    if isinstance(function, ast.Name) and function.id in methods and isinstance(text, ast.Constant):
        given = signature_of(methods[function.id], True).partition(" -> ")[0]
        return Definition(module, name, "function", str(text.value), given)
    return None
