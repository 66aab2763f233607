"""Writes a page for each public module of python/horovod from its docstrings."""

from __future__ import annotations

import re
import textwrap

from python_names import Definition, define, exports, tree_of
from python_names import docstring as docstring_of

# The modules that users import, and how their page is called in the navigation.
MODULES = {
    "horovod": "NumPy, and what all packages share",
    "horovod.elastic": "elastic training with NumPy",
    "horovod.torch": "PyTorch",
    "horovod.torch.elastic": "elastic training with PyTorch",
    "horovod.tensorflow": "TensorFlow",
    "horovod.tensorflow.elastic": "elastic training with TensorFlow",
    "horovod.tensorflow.keras": "tf.keras",
    "horovod.tensorflow.keras.elastic": "elastic training with tf.keras",
    "horovod.keras": "Keras",
    "horovod.keras.callbacks": "callbacks of Keras",
    "horovod.keras.elastic": "elastic training with Keras",
    "horovod.jax": "JAX",
    "horovod.jax.elastic": "elastic training with JAX",
    "horovod.mxnet": "MXNet",
    "horovod.ray": "Ray",
    "horovod.ray.train": "Ray Train",
}
SECTIONS = ("Args", "Returns", "Raises", "Yields")


def page(module: str) -> str:
    found = {name: define(module, name) for name in exports(module)}
    shared = {name for name, each in found.items() if module != "horovod" and is_shared(name, each)}
    parts = [f"# {module}", prose(docstring_of(tree_of(module)))]
    for kind, heading in (("function", "Functions"), ("class", "Classes"), ("value", "Values")):
        names = [name for name, each in found.items() if each.kind == kind and name not in shared]
        if names:
            parts += [f"## {heading}", *(part for name in names for part in entry(module, name, found[name]))]
    modules = [each.module for each in found.values() if each.kind == "module" and each.module in MODULES]
    if modules:
        parts.append("Modules: " + ", ".join(f"[`{each}`]({each}.md)" for each in modules) + ".")
    if shared:
        links = ", ".join(f"[`{name}`](horovod.md#{anchor('horovod', name)})" for name in sorted(shared))
        parts += ["## Also here", f"These names are the same as in [`horovod`](horovod.md): {links}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def is_shared(name: str, found: Definition) -> bool:
    if found.kind == "module" or name not in exports("horovod"):
        return False
    base = define("horovod", name)
    return (base.module, base.name) == (found.module, found.name) and found.module != "horovod"


def anchor(module: str, name: str) -> str:
    return f"{module}.{name}".lower()


def entry(module: str, name: str, found: Definition) -> list[str]:
    parts = [f"### `{name}` {{#{anchor(module, name)}}}"]
    if found.kind != "value":
        parts.append(f"```python\n{signature(name, found.signature)}\n```")
    parts.append(prose(found.text))
    for member in sorted(found.members, key=lambda each: each.name):
        if member.text:
            arguments = member.signature if member.kind == "function" else ""
            code = signature(f"{name}.{member.name}", arguments)
            parts += [f"```python\n{code}\n```", textwrap.indent(prose(member.text), "")]
    return parts


def signature(name: str, arguments: str) -> str:
    """On one line if it fits, otherwise one parameter on each."""
    if len(name + arguments) <= 90:
        return name + arguments
    inside, _, result = arguments[1:].rpartition(")")
    lines = [f"    {each}," for each in split(inside)]
    return "\n".join([f"{name}(", *lines, f"){result}"])


def split(parameters: str) -> list[str]:
    """Parameters at the commas that are in no bracket."""
    parts, depth = [""], 0
    for letter in parameters:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def prose(docstring: str) -> str:
    """A docstring as Markdown: its sections become lists, and what is indented after ``::`` code."""
    blocks = re.split(r"\n\n+(?=\S)", docstring.strip())
    return "\n\n".join(block(each) for each in blocks if each)


def block(text: str) -> str:
    first, _, rest = text.partition("\n")
    if first.rstrip(":") in SECTIONS and first.endswith(":"):
        return f"**{first}**\n\n{items(textwrap.dedent(rest))}"
    if first.endswith("::") and (not rest.strip() or rest.startswith(("\n", " "))):
        code = textwrap.dedent(rest).strip("\n")
        return f"{inline(first.removesuffix('::')).rstrip()}:\n\n```python\n{code}\n```"
    return inline(text)


def items(text: str) -> str:
    """``name: text`` with continuation lines indented; a text without a name is a paragraph."""
    found = re.split(r"\n(?=\S)", text.strip())
    lines = []
    for each in found:
        joined = " ".join(each.split())
        name, colon, rest = joined.partition(": ")
        named = colon and re.fullmatch(r"[*\w, ]+(\([^)]*\))?", name)
        lines.append(f"- `{name}`: {inline(rest)}" if named else f"- {inline(joined)}")
    return "\n".join(lines)


def inline(text: str) -> str:
    """Code in double backticks, and roles such as :class:`horovod.x.Y`, become code."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    parts = re.split(r"(``.+?``|`[^`]+`)", text, flags=re.DOTALL)
    return "".join(
        f"`{part.strip('`')}`" if place % 2 else re.sub(r"([*_<\[\]])", r"\\\1", part)
        for place, part in enumerate(parts)
    )
