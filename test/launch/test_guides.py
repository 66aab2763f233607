"""The guides of docs/: their files are written, their commands typed, and their outputs compared.

A line `$ command` of a console block is typed into a shell; the lines below it must be in its output,
in any order, with anything in place of `…`. After a command that ends in `&` only those lines are waited for.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher, OnHosts

DOCS = Path(__file__).resolve().parents[2] / "docs"
HOSTS = ("a", "b", "c", "d")
END = "=== end"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def write_files(page: str, folder: Path) -> None:
    """A block that begins with a comment such as `# train.py` is that file."""
    for language in ("python", "text"):
        for block in blocks(page, language):
            name = re.match(r"# ([\w.]+)\n", block)
            if name:
                (folder / name.group(1)).write_text(block)


def commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines that it prints."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield command.partition("  #")[0].rstrip(), lines


class Shell:
    """A bash that gets one command at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdin and process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(process.stdout, selectors.EVENT_READ)
        self.rest = b""

    def type(self, command: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def lines(self, seconds: float = DEADLINE) -> Iterator[str]:
        deadline = time.monotonic() + seconds
        while True:
            line, newline, after = self.rest.partition(b"\n")
            if newline:
                self.rest = after
                yield line.decode()
                continue
            assert self.selector.select(max(0.0, deadline - time.monotonic())), "no more output in time"
            more = os.read(self.selector.get_map()[self.process.stdout].fd, 65536)
            assert more, "the shell has ended"
            self.rest += more

    def run(self, command: str, expected: list[str]) -> list[str]:
        """Types a command; returns its output, in which the expected lines must be."""
        given = f"{{ {command} }} </dev/null" if command.endswith("&") else f"{{ {command}; }} </dev/null"
        self.type(given if command.endswith("&") else f"{given}\necho '{END}'")
        patterns = [".*".join(map(re.escape, line.split("…"))) for line in expected]
        output = []
        for line in self.lines():
            if line == END:
                break
            output.append(line)
            for pattern in patterns:
                if re.fullmatch(pattern, line):
                    patterns.remove(pattern)
                    break
            if not patterns and command.endswith("&"):
                break
        assert not patterns, f"{command}: {patterns[0]} is not in\n" + "\n".join(output)
        return output


@pytest.mark.parametrize("page", ["tutorial.md"])
def test_a_page_on_four_hosts(page: str, on_hosts: OnHosts) -> None:
    folder = on_hosts.launcher.folder
    write_files(page, folder)
    words = on_hosts.hosts.enter("a", folder)
    shell = Shell(
        on_hosts.launcher.start(
            "-m", program="bash", inside=words, stdin=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    )
    typed = 0
    for command, expected in commands(page):
        shell.run(command, expected)
        typed += 1
    assert typed > 10


@pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")
def test_every_way_from_ddp_gives_the_same_loss(launcher: Launcher) -> None:
    page = "from_ddp.md"
    write_files(page, launcher.folder)
    shell = Shell(launcher.start("-m", program="bash", stdin=subprocess.PIPE, stderr=subprocess.STDOUT))
    losses = []
    for command, expected in commands(page):
        output = "\n".join(shell.run(command, expected))
        losses += re.findall(r"loss (0\.\d+)", output)
    assert len(losses) == 5, losses
    assert len(set(losses)) == 1, losses


@pytest.mark.parametrize(
    "framework",
    [
        "torch",
        *(
            pytest.param(
                each,
                marks=pytest.mark.skipif(
                    "HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1"
                ),
            )
            for each in ("keras", "jax")
        ),
    ],
)
def test_exported_models_give_the_same_numbers_without_horovod(framework: str, launcher: Launcher) -> None:
    page, folder = "inference.md", launcher.folder
    write_files(page, folder)
    (folder / "without").mkdir()
    (folder / "without" / "horovod.py").write_text("raise ImportError('Horovod is not installed here')\n")
    shell = Shell(launcher.start("-m", program="bash", stdin=subprocess.PIPE, stderr=subprocess.STDOUT))
    numbers = []
    for command, expected in commands(page):
        if framework in command:
            words = command if command.startswith("horovodrun") else f"PYTHONPATH=without {command}"
            lines = "\n".join(shell.run(words, expected))
            numbers += re.findall(r"^(?:\[0\]<stdout>: )?\w+ (-?\d+\.\d{4})\b", lines, re.MULTILINE)
    assert len(numbers) == {"torch": 4, "keras": 3, "jax": 2}[framework]
    assert max(map(float, numbers)) - min(map(float, numbers)) < 1e-3, numbers
