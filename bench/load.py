"""Runs a command beside busy programs: python bench/load.py loop|loader COUNT COMMAND...

loop: COUNT programs that always compute, in sessions of their own, as programs of other jobs. loader: the
command is a rank; the first COUNT of them have a child that decodes images half of the time, in bursts, as a
data loader does. The difference matters: Linux may share the processor among sessions rather than processes
(sched_autogroup), and a loader takes its time from its own rank.
"""

from __future__ import annotations

import ctypes
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

IMAGES, SIDE, PAUSE = 8, 256, 0.01  # in a burst, which takes about as long as the pause behind it
RANKS = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before that call
        sys.exit(0)


def loop() -> None:
    """Keeps a core busy."""
    while True:
        pass


def loader() -> None:
    """Keeps half of a core busy."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3), "uint8")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    while True:
        for _ in range(IMAGES):
            np.asarray(Image.open(file).resize((SIDE // 2, SIDE // 2)))
        time.sleep(PAUSE)


PROGRAMS = {"loop": loop, "loader": loader}


def main() -> int:
    """The exit code of the command."""
    kind, count, *command = sys.argv[1:]
    words = [sys.executable, str(Path(__file__).resolve()), kind, str(os.getpid())]
    if not command:  # what the line above starts
        end_with(int(count))
        PROGRAMS[kind]()
    if kind == "loader":
        rank = next(int(os.environ[name]) for name in RANKS if name in os.environ)
        if rank < int(count):
            subprocess.Popen(words)
        os.execvp(command[0], command)
    busy = [subprocess.Popen(words, start_new_session=True) for _ in range(int(count))]
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        for each in busy:
            each.kill()
            each.wait()


if __name__ == "__main__":
    sys.exit(main())
