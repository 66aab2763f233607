"""A name for a host that processes in different containers of it do not share."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket


def _hash(string: str) -> str:
    return hashlib.sha256(string.encode()).hexdigest()[:32]


def host_hash(salt: str | None = None) -> str:
    """The host's name and a digest that is equal for processes which can share memory.

    Args:
        salt: makes it differ, e.g. the id of a container.
    """
    name, space = socket.gethostname(), 0
    with contextlib.suppress(OSError):  # where there is no /proc, the name alone counts
        space = os.stat("/proc/self/ns/ipc").st_ino  # processes that can't share memory differ here
    return f"{name.partition('.')[0]}-{_hash(f'{name}-{space}-{salt or str()}')}"
