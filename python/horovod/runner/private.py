"""Folders that only this user can read and that are removed with the process that made them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

HELD = "held"  # a file that is locked as long as the process runs


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Removes the folders of processes that were killed."""
    for folder in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another user's, not abandoned, or locks are not supported
            if folder.lstat().st_uid == os.getuid():
                with open(folder / HELD, "r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)


def _hold(folder: Path) -> int:
    """Locks a folder as in use; returns the descriptor that keeps the lock."""
    held = os.open(folder / HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_EX)
    return held


@contextlib.contextmanager
def private_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Makes a folder that is removed at the end or, if this process is killed, by the next call."""
    _remove_abandoned(parent, prefix)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        held = _hold(folder)
        if os.fstat(held).st_nlink:
            break
        os.close(held)  # another process has removed it before it was locked
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(held)
