"""Starts ranks without horovodrun: by mpirun, srun, torchrun, or one command for each rank."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Launcher

OPEN_MPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]

# Two lives of a job: rank, size, local and cross rank and size, and the sum of 1 ... size.
MEET = """
import numpy as np, sys
import horovod as hvd
for life in range(2):
    hvd.init()
    total = hvd.allreduce(np.full(4, hvd.rank() + 1.0), op=hvd.Sum, name="x")
    place = [hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
    rank = hvd.rank(), hvd.size()
    hvd.shutdown()
sys.stdout.write(" ".join(map(str, [*rank, *place, int(total[0])])) + "\\n")
"""


class Starter:
    """Runs starters with a home folder of the test's own."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.folder = launcher.folder
        self.home = launcher.folder / "home"
        self.home.mkdir()
        self.program = launcher.python(MEET)

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return self.launcher.environment(**({"HOME": str(self.home), "PATH": path} | more))

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        if not shutil.which(words[0]):
            pytest.skip(f"there is no {words[0]}")
        first, *rest = words
        return self.launcher.run(*rest, program=first, env=self.environment(**more))

    def start(self, words: list[str], *program: str, **more: str) -> subprocess.Popen[str]:
        """One rank, inside of what `words` enter."""
        first, *rest = program or self.program
        return self.launcher.start(*rest, program=first, inside=words, env=self.environment(**more))

    def secret_file(self) -> dict[str, str]:
        path = self.folder / "secret"
        path.write_text("0123456789abcdef0123456789abcdef\n")
        path.chmod(0o600)
        return {"HOROVOD_SECRET_FILE": str(path)}
