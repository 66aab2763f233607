"""Builds the documentation site into a folder: the pages of docs/ as they are, with search, and references
of the C and Python interfaces, which are made from include/horovod.h and the docstrings.

    python docs/site/build.py build/site

Links between pages stay; one to a file elsewhere in the tree leads to a page that shows the file. A link or
an anchor that leads nowhere is an error. `assemble` needs libclang, the rest mkdocs-material.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import c_reference
import python_reference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIG = Path(__file__).parent / "mkdocs.yml"
# Files outside docs/ that have a page of their own.
PAGES = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGES.md": "changes.md",
    "SECURITY.md": "security_policy.md",
    "examples/README.md": "examples.md",
    "monitoring/README.md": "monitoring.md",
    "deploy/README.md": "deploy.md",
    "include/horovod.h": "reference/c.md",
}
LANGUAGES = {".py": "python", ".h": "c", ".c": "c", ".yaml": "yaml", ".yml": "yaml", ".sh": "sh", ".def": "c"}
LINK = re.compile(r"(\[[\w./]+\.md)?\]\(([^)#\s]+)(#[^)\s]*)?\)")


def pages() -> dict[Path, str]:
    """The Markdown files of the tree that the site shows, and their places in it."""
    found = {path: str(path.relative_to(DOCS)) for path in sorted(DOCS.rglob("*.md"))}
    return found | {ROOT / path: place for path, place in PAGES.items() if path.endswith(".md")}


def assemble(folder: Path) -> None:
    """Writes the pages from which mkdocs makes the site."""
    shutil.rmtree(folder, ignore_errors=True)
    made = {"reference/c.md": c_reference.page()}
    made |= {f"reference/{name}.md": python_reference.page(name) for name in python_reference.MODULES}
    shown: set[Path] = set()
    for path, place in pages().items():
        made[place] = relinked(path, place, shown)
    made |= {place_of(path): file_page(path) for path in sorted(shown)}
    for place, text in made.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for path in sorted(DOCS.rglob("*.png")):
        target = folder / path.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copy(Path(__file__).parent / "style.css", folder)


def place_of(path: Path) -> str:
    """Where the site has a file of the tree."""
    name = str(path.relative_to(ROOT))
    if name in PAGES:
        return PAGES[name]
    if path.is_relative_to(DOCS):
        return str(path.relative_to(DOCS))
    module = re.fullmatch(r"python/([\w/]+?)(?:/__init__)?\.py", name)
    if module and module.group(1).replace("/", ".") in python_reference.MODULES:
        return f"reference/{module.group(1).replace('/', '.')}.md"
    return f"files/{name}.md"


def relinked(path: Path, place: str, shown: set[Path]) -> str:
    """A page whose links lead to their places in the site; adds the files that need a page to `shown`."""

    def link(found: re.Match[str]) -> str:
        name, file, anchor = found.groups(default="")
        target = (path.parent / file).resolve()
        if ":" in file or not target.is_file():
            return found.group()  # mkdocs reports it
        if name:  # the site has titles where the forge has files
            name = "[" + title(target)
        there = place_of(target)
        if there.startswith("files/"):
            shown.add(target)
        return f"{name}]({os.path.relpath(there, Path(place).parent)}{anchor})"

    parts = re.split(r"(^```.*?^```$)", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)


def title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")


def file_page(path: Path) -> str:
    name = path.relative_to(ROOT)
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {name}\n\n`````{language}\n{path.read_text()}`````\n"


def render(config: Path, site: Path) -> int:
    """Lets mkdocs make the site. With its --quiet, its --strict would overlook all warnings."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    words += ["-f", str(config), "-d", str(site.resolve())]
    variables = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout, end="", file=sys.stderr)
    return done.returncode


def main(site: Path) -> int:
    assemble(site.parent / "site-pages")
    return render(CONFIG, site)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
