"""Jobs of examples/c/elastic, whose output is read while they run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher
from virtual_hosts import wait_until

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("HVD_BUILD", ROOT / "build")) / "examples" / "c" / "elastic"
STEPS = "300"
ENDLESS = "10000000"


class Job:
    def __init__(
        self,
        launcher: Launcher,
        *options: str,
        program: Path = PROGRAM,
        steps: str = STEPS,
        pause: str = "20",
        inside: Sequence[str] = (),
        **more: str,
    ) -> None:
        """`inside` are the words that enter the host of horovodrun."""
        if not PROGRAM.exists():
            pytest.skip("the examples in C are not built")
        self.launcher, self.out, self.err = launcher, launcher.folder / "out", launcher.folder / "err"
        self.process: subprocess.Popen[str] = launcher.start(
            *options, str(program), steps, pause, stdout=self.out.open("w"), stderr=self.err.open("w"),
            env=launcher.environment(**more), inside=inside,
        )  # fmt: skip

    def ranks(self) -> list[int]:
        """Processes of ranks, the oldest first."""
        return self.launcher.named("elastic")

    def wait_for(self, words: str, times: int = 1) -> None:
        def found() -> bool:
            return len(re.findall(words, self.out.read_text() + self.err.read_text())) >= times

        assert wait_until(found, DEADLINE), (words, self.out.read_text(), self.err.read_text())

    def wait_for_sizes(self, *wanted: int) -> None:
        """Waits until the job has made steps with these numbers of ranks, one after the other."""
        made = wait_until(lambda: sizes(self.out.read_text()) == [*wanted], DEADLINE)
        assert made, (self.out.read_text(), self.err.read_text())

    def wait_for_steps(self, more: int) -> None:
        self.wait_for("step [0-9]+ with", len(re.findall("step [0-9]+ with", self.out.read_text())) + more)

    def interrupt(self, whole: bool = True) -> str:
        """For a job that takes as many steps as the test needs."""
        os.kill(self.launcher.named("horovodrun")[0], signal.SIGINT)
        return self.finish(130, whole)

    def finish(self, exit_code: int = 0, whole: bool = True) -> str:
        """Waits for the end; returns what was printed, which is not `whole` if rank 0 was lost."""
        assert self.process.wait(DEADLINE) == exit_code, self.err.read_text()
        assert self.launcher.none_alive()
        text = self.out.read_text()
        if exit_code in (0, 130):  # every step was done once
            steps = [int(n) for n in re.findall(r"step (\d+) with", text)]
            assert not whole or sorted(steps) == list(range(1, len(steps) + 1))  # two hosts have no order
        if exit_code == 0:
            assert f"{STEPS} steps, sum {STEPS}" in text
            assert not whole or len(steps) == int(STEPS)
        return text + self.err.read_text()


def sizes(text: str) -> list[int]:
    """The numbers of ranks, one after the other."""
    found: list[int] = []
    for size in map(int, re.findall(r"step \d+ with (\d+) ranks", text)):
        found += [size] if not found or found[-1] != size else []
    return found
