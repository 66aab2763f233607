"""The tree itself: who may include whom, rows and files that belong together, fresh pages, clean texts."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import size_report
import tomllib

ROOT = Path(__file__).resolve().parents[2]

# A folder of src/ and the folders that it may include from, itself left out.
BELOW: dict[str, set[str]] = {
    "base": set(),
    "net": {"base"},
    "device": {"base"},
    "rendezvous": {"base", "net"},
    "bootstrap": {"base", "net", "rendezvous"},
    "transport": {"base", "net", "rendezvous"},
    "coordinate": {"base"},
    "membership": {"base"},
    "watch": {"base"},
    "tune": {"base"},
    "snapshot": {"base", "net"},
    "coll": {"base", "device", "transport"},
    "backend": {"base", "net", "device", "rendezvous", "coll"},
    "engine": {
        "base",
        "net",
        "device",
        "rendezvous",
        "bootstrap",
        "transport",
        "coordinate",
        "coll",
        "backend",
        "watch",
        "tune",
        "snapshot",
    },
    "native": set(),
    "tensorflow": {"native"},
    "bind": {"membership", "native"},
}
# Lists of public names, without code: for every folder.
TABLES = {"base/dtypes.def", "base/operations.def", "base/reductions.def", "transport/transports.def"}
SKIPPED = {"corpus", "sources", ".git", "build", "out", "dist", ".venv", "__pycache__"}


def text_of(path: Path) -> str | None:
    """None: it is no text, or was there for a moment only."""
    try:
        text = path.read_text() if path.is_file() else None
    except (UnicodeDecodeError, FileNotFoundError):
        return None
    return None if text and "\0" in text else text


def texts() -> Iterator[tuple[str, str]]:
    """Every text file of the tree, but this one, which names what is forbidden."""
    for name, folders, files in os.walk(ROOT):
        folders[:] = [
            each
            for each in sorted(folders)
            if not (each in SKIPPED or each.endswith("_cache") or each.startswith("build-"))
        ]
        for path in (Path(name) / each for each in sorted(files)):
            text = text_of(path)
            if path != Path(__file__) and path.name not in SKIPPED and text is not None:
                yield str(path.relative_to(ROOT)), text


def occurrences(pattern: str) -> list[str]:
    found = []
    for name, text in texts():
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{name}:{number}: {line.strip()}")
    return found


def includes(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted([*folder.glob("*.c"), *folder.glob("*.h")]):
        for header in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(), re.MULTILINE):
            yield str(path.relative_to(ROOT)), header


def rows(table: str, macro: str) -> list[str]:
    """The first argument of every row of a .def file."""
    return re.findall(rf"^{macro}\((\w+)", (ROOT / table).read_text(), re.MULTILINE)


def test_every_folder_of_src_has_its_place() -> None:
    assert {path.name for path in (ROOT / "src").iterdir()} == set(BELOW)


@pytest.mark.parametrize("folder", BELOW)
def test_includes_only_from_below(folder: str) -> None:
    allowed = BELOW[folder] | {folder}
    wrong = [
        f"{name} includes {header}"
        for name, header in includes(ROOT / "src" / folder)
        if "/" in header and header.split("/")[0] not in allowed and header not in TABLES
    ]
    assert not wrong


def test_the_launcher_knows_only_what_lies_below_the_engine() -> None:
    wrong = [
        f"{name} includes {header}"
        for name, header in includes(ROOT / "launch")
        if "/" in header
        and not header.startswith(("base/", "net/"))
        and header
        not in TABLES
        | {
            "bootstrap/bootstrap.h",
            "bootstrap/starters.h",
            "membership/membership.h",
            "rendezvous/client.h",
            "rendezvous/slots.h",
            "watch/history.h",
            "watch/page.h",
            "watch/page_read.h",
            "watch/page_stack.h",
            "watch/page_waitings.h",
        }
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("table", "macro", "constant"),
    [
        ("src/coll/algorithms.def", "ALGORITHM", r"^const struct algorithm (\w+) ="),
        ("src/backend/backends.def", "BACKEND", r"^const struct backend backend_(\w+) ="),
        ("src/transport/transports.def", "TRANSPORT", r"^const struct transport transport_(\w+) ="),
    ],
)
def test_rows_and_files_belong_together(table: str, macro: str, constant: str) -> None:
    defined = {}
    for path in (ROOT / table).parent.glob("*.c"):
        for name in re.findall(constant, path.read_text(), re.MULTILINE):
            defined[name] = path.stem
    assert set(rows(table, macro)) == set(defined), "a row without a file, or a file without a row"
    assert set(defined.values()) <= set(defined), "a row is called as its file"
    prefixes = [(name.split("_")[0], stem.split("_")[0]) for name, stem in defined.items() if name != stem]
    assert all(name == stem for name, stem in prefixes), "rows of one plan share a file, as their operation"


@pytest.mark.parametrize(
    ("table", "macro", "enumeration"),
    [
        ("src/base/dtypes.def", "DTYPE", "hvd_dtype"),
        ("src/base/reductions.def", "REDUCTION", "hvd_reduction"),
        ("src/base/operations.def", "OPERATION", "hvd_operation"),
    ],
)
def test_rows_are_those_of_the_public_header(table: str, macro: str, enumeration: str) -> None:
    header = (ROOT / "include" / "horovod.h").read_text()
    body = re.search(rf"typedef enum {enumeration} {{(.*?)}}", header, re.DOTALL)
    assert body
    names = re.findall(r"^\s*HVD_(\w+) =", body.group(1), re.MULTILINE)
    assert sorted(rows(table, macro)) == sorted(names)


def test_the_algorithms_page_names_every_row() -> None:
    page = (ROOT / "docs" / "algorithms.md").read_text()
    assert not [row for row in rows("src/coll/algorithms.def", "ALGORITHM") if f"`{row}`" not in page]


def test_the_settings_page_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("generate_settings")
    page = module.page(module.read(module.TABLE))
    assert module.PAGE.read_text() == page, "run `python docs/generate_settings.py`"


def test_every_static_library_has_its_notice() -> None:
    """Their licences ask for it; the wheel carries the file."""
    linked: set[str] = set()
    builds = (
        "third_party/libraries.cmake",
        "CMakeLists.txt",
        "launch/CMakeLists.txt",
        "src/bind/CMakeLists.txt",
    )
    for path in builds:
        text = (ROOT / path).read_text()
        linked.update(re.findall(r"^hvd_static_(?:library|source)\((\w+) ", text, re.MULTILINE))
        assert not re.findall(r"[\w/]+\.a\b(?! lib[\w-]+-dev\))", text), "link through hvd_static_library"
    notices, _, licences = (ROOT / "THIRD-PARTY-NOTICES").read_text().partition("\n----")
    named: set[str] = set()
    for section in notices.split("\n== ")[1:]:
        assert "\nCopyright" in section
        named.update(section.partition(":")[0].split(", "))
        for licence in re.findall(r", ([^,\n]* license[^,:\n]*):?$", section, re.MULTILINE):
            assert f"\n{licence}\n\n" in licences
    assert named == linked
    assert set(tomllib.loads((ROOT / "third_party/libraries.toml").read_text())) == linked
    assert '"THIRD-PARTY-NOTICES"' in (ROOT / "pyproject.toml").read_text()


def anchors(page: Path) -> set[str]:
    """The names by which links find the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_between_pages_lead_somewhere() -> None:
    wrong = []
    for name, text in texts():
        if name.endswith(".md"):
            for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
                path = (ROOT / name).parent / target if target else ROOT / name
                if ":" in target:
                    continue
                if not path.exists() or (anchor and anchor not in anchors(path)):
                    wrong.append(f"{name}: {target}#{anchor}")
    assert not wrong


def test_lines_of_pages_are_wrapped() -> None:
    """Tables and fenced commands may be longer than 120 characters."""
    wrong = []
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        code = False
        for number, line in enumerate(path.read_text().split("\n"), 1):
            code ^= line.lstrip().startswith("```")
            if len(line) > 120 and not code and not line.startswith("|"):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {len(line)} characters")
    assert not wrong


def test_files_named_in_pages_exist() -> None:
    """A page that says `src/coll/pattern.c` must mean a file or a folder."""
    wrong = []
    for name, text in texts():
        if name.endswith(".md"):
            for path in re.findall(
                r"`((?:src|include|launch|python|test|docs|bench|examples)/[\w./-]+)`", text
            ):
                if not (ROOT / path).exists():
                    wrong.append(f"{name}: {path}")
    assert not wrong


def test_pages_quote_no_line_of_the_code() -> None:
    """Not even in an example of the log: its number is soon that of another line."""
    assert not [found for found in occurrences(r"\w\.[ch]:[0-9]") if ".md:" in found]


def test_no_path_or_host_of_a_machine() -> None:
    assert not occurrences(
        r"/root/|/home/\w|/opt/|/work/|pypi\.org|pythonhosted|deb\.debian\.org|extra-index-url"
    )


def test_nothing_is_left_to_do_later() -> None:
    assert not occurrences(r"\b(TODO|FIXME|XXX|TBD)\b")


# Titles that were noticed too late: a few letters too long, or with two areas.
EARLIER = {
    "docs: shared gradients; a death while memory is lent",
    "coll: at most 128 KiB between two looks at other links",
    "engine: waiting callers yield longer, listeners nap",
    "simulate: sets open late, texts and last join checked",
    "transport: rendezvous, handshake, shm and tcp links",
    "house: architecture, contributing, tests of the tree",
    "python: join, init of some ranks, names; a page on PyTorch",
    "base: a yes in the config file is a 1 for the ranks",
    "transport: tensors in shared memory are read in place",
    "torch, transport: shared gradients; lent data is revoked",
    "torch, transport: shared gradients are tested",
}


def test_commit_titles_say_area_and_change() -> None:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    try:
        shallow = git("rev-parse", "--is-shallow-repository").strip() == "true"
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git repository")
    if shallow:
        pytest.skip("a shallow clone knows no history")
    titles = set(git("log", "--no-merges", "--format=%s").splitlines()) - EARLIER
    assert not [title for title in titles if len(title) > 50 or not re.match(r"[a-z0-9_-]+: \S", title)]


@pytest.mark.parametrize("language", size_report.GATES)
def test_sizes_stay_below_the_hard_maxima(language: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes, gates = size_report.measure(language), size_report.GATES[language]
    with capsys.disabled():
        print("\n" + size_report.report(language, sizes))
    assert not [name for name, lines in sizes.files.items() if lines > gates.file_lines]
    assert not [name for name, lines in sizes.functions.items() if lines > gates.function_lines]


def test_every_variable_of_the_environment_is_known() -> None:
    """Otherwise it would be reported as misspelt."""

    def names(path: str) -> set[str]:
        return set(re.findall(r"\bHOROVOD_[A-Z0-9_]*[A-Z0-9]\b", (ROOT / path).read_text()))

    named = names("launch/foreign.def") | names("docs/compatibility.md") | names("launch/environment.c")
    known = names("src/base/settings.def") | set(rows("src/base/variables.def", "VARIABLE"))
    assert not {name for name in named - known if not re.match(r"HOROVOD_(TEST|WITH|WITHOUT)_", name)}


def test_the_documentation_lists_every_metric() -> None:
    source = (ROOT / "launch/metrics.c").read_text()
    pages = (ROOT / "docs/watching.md").read_text().splitlines()
    families = set(re.findall(r'(?:\(writer, |\{)"([a-z_]+)",\s*"', source))
    listed = [
        name
        for line in pages
        if line.startswith("| `horovod_")
        for name in re.findall("`horovod_([a-z_]+)`", line)
    ]
    assert len(families) >= 30
    assert sorted(families) == sorted(set(listed))
