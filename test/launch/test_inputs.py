"""Lists, files, words and variables as people write them: each works, or a text says what is wrong."""

from __future__ import annotations

import sys

import pytest
from conftest import Launcher


def agents(launcher: Launcher, before: str = "") -> list[str]:
    """Each host is an agent on this one."""
    path = launcher.folder / "rsh"
    path.write_text(f'#!/bin/bash\nexport HOROVOD_HOST_ID=$1; shift\n{before}\neval "$@"\n')
    path.chmod(0o755)
    return ["--rsh-agent", str(path)]


MANY = "import sys; sys.stdout.buffer.write({start!r} + '{character}'.encode() * 50_000 + b'\\n')"


@pytest.mark.parametrize("where", ["here", "agent"])
@pytest.mark.parametrize("character", ["ß", "€", "🙂"])
def test_long_lines_are_cut_between_characters(launcher: Launcher, character: str, where: str) -> None:
    words = ["-np", "1"] if where == "here" else [*agents(launcher), "-H", "x:1"]
    for start in (b"", b"a", b"ab", b"\xff"):
        source = MANY.format(start=start, character=character)
        result = launcher.run(*words, "--output-filename", "out", sys.executable, "-c", source, text=False)
        lines = result.stdout.splitlines()  # type: ignore[attr-defined]
        pieces = [line.removeprefix(b"[0]<stdout>: ") for line in lines]
        whole = start + character.encode() * 50_000
        assert b"".join(pieces) == whole
        for piece in pieces:
            piece.removeprefix(b"\xff").decode()
        assert (launcher.folder / "out/rank.0/stdout").read_bytes() == whole + b"\n"


def test_what_is_no_utf_8_passes_unchanged(launcher: Launcher) -> None:
    source = "import sys; sys.stdout.buffer.write((b'\\xe2\\x82' + bytes(range(128, 256)) + b'\\xf0') * 2000)"
    out = launcher.run("-np", "1", sys.executable, "-c", source, text=False).stdout
    assert isinstance(out, bytes)
    lines = [line.removeprefix(b"[0]<stdout>: ") for line in out.split(b"\n")[:-1]]
    assert b"".join(lines) == (b"\xe2\x82" + bytes(range(128, 256)) + b"\xf0") * 2000
