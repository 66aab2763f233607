"""horovodrun as a user runs it: real processes, found again by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from virtual_hosts import DEADLINE, wait_until


def pytest_configure() -> None:
    """What is started here must not ignore Ctrl-C, as background jobs do, nor SIGHUP, as with nohup."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Launcher:
    """Starts horovodrun, and knows every process that came of it."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.mark = f"LAUNCH_TEST_MARK={uuid.uuid4().hex}"
        self.started: list[subprocess.Popen[str]] = []

    def environment(self, **more: str) -> dict[str, str]:
        name, value = self.mark.split("=")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOROVOD", "PYTHONUNBUFFERED"))}
        return kept | {name: value} | more

    def start(self, *arguments: str, program: str | None = None, **options: Any) -> subprocess.Popen[str]:
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("env", self.environment())
        options.setdefault("cwd", self.folder)
        options.setdefault("text", True)
        process: subprocess.Popen[str] = subprocess.Popen([program or self.program, *arguments], **options)
        self.started.append(process)
        return process

    def run(
        self, *arguments: str, give: str | None = None, seconds: float = DEADLINE, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        if give is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*arguments, **options)
        out, err = process.communicate(give, timeout=seconds)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def python(self, source: str) -> list[str]:
        """The words of a command that runs `source`, which is kept in a file."""
        path = self.folder / f"{uuid.uuid4().hex}.py"
        path.write_text(source)
        return [sys.executable, str(path)]

    def alive(self) -> list[int]:
        """Every process that inherited the mark, the launcher included; the dead have no environment."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and self.mark.encode() in (folder / "environ").read_bytes().split(
                    b"\0"
                ):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def inside(self) -> list[int]:
        """Every process in the test's folder, whatever it did to its environment."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cwd").readlink() == self.folder:
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    def none_alive(self, seconds: float = DEADLINE) -> bool:
        return wait_until(lambda: not self.alive(), seconds)

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait(DEADLINE)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        for pid in {*self.alive(), *self.inside()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    program = os.environ.get("HOROVODRUN") or shutil.which("horovodrun")
    if not program:
        pytest.fail("no horovodrun: set HOROVODRUN to its path")
    result = Launcher(os.path.abspath(program), tmp_path)
    yield result
    result.end()
