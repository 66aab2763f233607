"""The documentation site: every public name has a text, and every page is in the navigation.

`make site` builds it, and refuses links and anchors that lead nowhere.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "site"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SITE)
    return importlib.import_module("build")


def test_every_public_name_of_python_has_a_docstring_or_comment(site: ModuleType) -> None:
    names = importlib.import_module("python_names")
    pages = site.python_reference.MODULES
    found = {(module, name): names.define(module, name) for module in pages for name in names.exports(module)}
    assert len(found) > 300
    assert not sorted(f"{each.module}.{each.name}" for each in found.values() if not each.text)


def test_every_declaration_of_the_header_has_a_comment(site: ModuleType) -> None:
    header = importlib.import_module("c_header").Header()
    groups = [group for section in header.sections for group in section.groups]
    assert len(groups) > 70
    assert not [group.declarations[0].name for group in groups if not group.text]


def test_every_page_is_in_the_navigation(site: ModuleType) -> None:
    listed = re.findall(r"(\S+\.md)$", (SITE / "mkdocs.yml").read_text(), re.MULTILINE)
    made = {f"reference/{module}.md" for module in site.python_reference.MODULES} | {"reference/c.md"}
    assert sorted(listed) == sorted(made | set(site.pages().values()))


def test_the_pages_of_the_references_name_everything(site: ModuleType, tmp_path: Path) -> None:
    site.assemble(tmp_path)
    page = (tmp_path / "reference/c.md").read_text()
    declared = set(re.findall(r"\bhvd_\w+(?=\()", (ROOT / "include/horovod.h").read_text()))
    assert len(declared) > 60
    assert not [name for name in declared if f"#{name}" not in page]
    torch = (tmp_path / "reference/horovod.torch.md").read_text()
    assert "### `DistributedOptimizer` {#horovod.torch.distributedoptimizer}" in torch
    assert "backward_passes_per_step" in torch


STRING = re.compile(r"""(?:[fr]?"(?:[^"\\\n]|\\.)*"(?:[ \t]*\\?\n?[ \t]*)?(?:PRI\w+\s*)?)+""")
FORMAT = re.compile(r"%[-+ #0]*[\d*]*(?:\.(?:\d+|\*))?(?:hh|ll|[hlzjtL])?[a-zA-Z]|\{[^{}]*\}")


def printed() -> Iterator[str]:
    """The strings of the sources, with … for what is filled in."""
    for folder in ("src", "launch", "python"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".def", ".py"):
                for found in STRING.findall(path.read_text()):
                    text = re.sub(r'%"\s*PRI\w+\s*"', "…", found)
                    text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', text))
                    yield FORMAT.sub("…", text.replace('\\"', '"'))


def test_the_answers_quote_texts_of_the_source() -> None:
    page = (ROOT / "docs/answers.md").read_text()
    quoted = re.findall(r"^### `(.*)`$", page, re.MULTILINE)
    assert len(quoted) > 40
    assert len(quoted) == page.count("**Cause.**") == page.count("**Remedy.**")
    source = "\n".join(printed())
    wrong = []
    for text in quoted:
        pieces = [re.escape(piece) for piece in text.split("…") if piece.strip()]
        if not re.search("[^\n]*".join(pieces), source):
            wrong.append(text)
    assert not wrong


def test_names_in_pages_exist(site: ModuleType) -> None:
    """Variables of the environment, and names of Python's interface as `hvd.name`."""
    names = importlib.import_module("python_names")
    python = {name for module in site.python_reference.MODULES for name in names.exports(module)}
    python |= {"callbacks", "mpi_ops"}
    tables = ("settings.def", "variables.def")
    known = "".join((ROOT / "src/base" / table).read_text() for table in tables)
    known += " HOROVOD_FUSION_TRESHOLD "  # an example of a misspelt one
    known += (ROOT / "launch/foreign.def").read_text() + (ROOT / "docs/compatibility.md").read_text()
    wrong = []
    for path in site.pages():
        text = path.read_text()
        wrong += [
            f"{path.name}: hvd.{name}" for name in re.findall(r"`hvd\.(\w+)", text) if name not in python
        ]
        for name in re.findall(r"\b_?HOROVOD_[A-Z0-9_]*[A-Z0-9]\b", text):
            if not re.search(rf"\b{name}\b", known) and not name.startswith("HOROVOD_TEST_"):
                wrong.append(f"{path.name}: {name}")
    assert not wrong
