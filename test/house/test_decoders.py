"""Every file that decodes foreign bytes has a fuzzer, or says why it needs none: test/fuzz/decoders.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[2]
FUZZ = ROOT / "test/fuzz"
READS = re.compile(
    r"\b(wire_reader_of|wire_get_\w+|stream_read|stream_fill|link_receive|recv|recvmsg|pread|read|fread|fgets"
    r"|getline|sscanf|fscanf|strto(?:l|ul|ll|ull|d)(?:_l)?|platform_memory_(?:map|map_part|read)|hvd_watch_next)\("
)
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)


def table() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads((FUZZ / "decoders.toml").read_text())


def find_decoders(folders: list[Path]) -> set[str]:
    files = [file for folder in folders for file in folder.rglob("*.c")]
    return {str(file) for file in files if READS.search(COMMENT_OR_TEXT.sub("", file.read_text()))}


def test_every_decoder_has_a_fuzzer_or_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    rows = table()
    assert not rows["fuzzed"].keys() & rows["trusted"].keys()
    # src/bind reads objects of Python in this process.
    found = {
        name for name in find_decoders([Path("launch"), Path("src")]) if not name.startswith("src/bind/")
    }
    assert sorted(found - rows["fuzzed"].keys() - rows["trusted"].keys()) == []


def test_rows_name_files_and_fuzzers() -> None:
    rows = table()
    fuzzers = {file.stem.removeprefix("fuzz_") for file in FUZZ.glob("fuzz_*.c")}
    named = {name for names in rows["fuzzed"].values() for name in names}
    assert named == fuzzers
    assert all((ROOT / name).is_file() for part in rows.values() for name in part)


def test_every_fuzzer_has_inputs() -> None:
    for file in FUZZ.glob("fuzz_*.c"):
        assert any((FUZZ / "corpus" / file.stem.removeprefix("fuzz_")).iterdir()), file.name


def test_a_decoder_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(struct wire_reader *reader) { return wire_get_u8(reader); }")
    (tmp_path / "b.c").write_text('/* read(it) */ const char *text = "recv(";')
    assert find_decoders([tmp_path]) == {str(tmp_path / "a.c")}
