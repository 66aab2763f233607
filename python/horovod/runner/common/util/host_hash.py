"""A name for the processes of a host that can share memory; containers of one host have different names."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket


def _hash(string: str) -> str:
    return hashlib.sha256(string.encode()).hexdigest()[:32]


def host_hash(salt: str | None = None) -> str:
    """Returns the host's name and a digest, which is equal for processes that can share memory.

    Args:
        salt: makes it differ, e.g. the id of a container.
    """
    name, space = socket.gethostname(), 0
    with contextlib.suppress(OSError):  # without /proc the host's name decides
        space = os.stat("/proc/self/ns/ipc").st_ino  # processes that can't share memory differ here
    return f"{name.partition('.')[0]}-{_hash(f'{name}-{space}-{salt or str()}')}"
