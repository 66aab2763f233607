"""horovodrun from Python: ``python -m horovod.runner.launch -np 4 python train.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from horovod.runner.program import horovodrun


def run_commandline(arguments: Sequence[str] | None = None) -> NoReturn:
    """Becomes horovodrun, with this program's arguments unless others are given."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    os.execv(horovodrun(), ["horovodrun", *words])


def check_build(verbose: bool = False) -> None:
    """Prints what this build can do."""
    text = subprocess.run([horovodrun(), "--check-build"], stdout=subprocess.PIPE, text=True, check=True)
    print(text.stdout, end="")


if __name__ == "__main__":
    run_commandline()
