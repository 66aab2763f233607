"""Forks ranks of elastic jobs, as importing a framework takes most of the life of such a process."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

Programs = Mapping[str, Callable[[int], None]]


def say(*words: object) -> None:
    """Writes a line at once, also if the process is killed next."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def _run_in_child(programs: Programs, order: dict[str, Any]) -> None:
    os.environ.update(order["variables"])
    out = os.open(order["file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setsid()
    programs[order["program"]](order["steps"])


def serve(programs: Programs) -> None:
    """Forks a process for each order, a line of JSON; prints "pid exit-code" when one has ended."""
    children: dict[int, int] = {}  # pids by their descriptors
    while True:
        readable, _, _ = select.select([0, *children], [], [])
        for descriptor in readable:
            if descriptor:
                pid = children.pop(descriptor)
                os.close(descriptor)
                say(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if 0 in readable:
            line = sys.stdin.readline()
            if not line:  # the tests have ended, perhaps by a signal
                for pid in children.values():
                    os.kill(pid, signal.SIGKILL)
                return
            pid = os.fork()
            if pid == 0:
                _run_in_child(programs, json.loads(line))
                return
            children[os.pidfd_open(pid)] = pid
            say(pid)
