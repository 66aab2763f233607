"""A starter of elastic jobs for tests, of processes on this host."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conftest import DEADLINE, Launcher

from horovod import _core

JOB = "elastic"
SECRET = "of a test"
REMOVED, ADDED, LOST = 1, 2, 4
TRAINER = str(Path(__file__).parent / "elastic_trainer.py")


class Forks:
    """Processes that are forked by a program which has imported what they need.

    Args:
        launcher: starts the program.
        words: the program of Python and its arguments.
    """

    def __init__(self, launcher: Launcher, *words: str) -> None:
        words = words or (TRAINER,)
        self.program = launcher.start(*words, program=sys.executable, stdin=subprocess.PIPE, bufsize=1)
        self.codes: dict[int, int] = {}  # of those that have ended
        self.rest = b""  # of an incomplete line
        self.started = 0  # the process that was started last

    def start(self, program: str, variables: dict[str, str], file: Path, steps: int) -> int:
        """Returns the pid of a new process, which runs a function of the program."""
        order = {"program": program, "variables": variables, "file": str(file), "steps": steps}
        assert self.program.stdin
        print(json.dumps(order), file=self.program.stdin, flush=True)
        self.started = 0
        while not self.started:
            self._read(DEADLINE)
        return self.started

    def _read(self, seconds: float) -> bool:
        """Takes what the program has printed, if it does within this time."""
        assert self.program.stdout
        descriptor = self.program.stdout.fileno()
        if not select.select([descriptor], [], [], seconds)[0]:
            return False
        data = os.read(descriptor, 1 << 16)
        assert data, "the program that forks has ended"
        *lines, self.rest = (self.rest + data).split(b"\n")
        for pid, *code in ([int(word) for word in line.split()] for line in lines):
            if code:
                self.codes[pid] = code[0]
            else:
                self.started = pid
        return True

    def code(self, pid: int) -> int | None:
        """Returns the exit code of a process; None while it runs."""
        while self._read(0):
            pass
        return self.codes.get(pid)


class ElasticJob:
    """Begins an epoch when a member is gone or newcomers are ready, once all others wait for it.

    Args:
        forks: starts the processes.
        folder: for their output.
        steps: the number of steps of ``elastic_trainer.py``.
    """

    def __init__(self, forks: Forks, folder: Path, steps: int) -> None:
        self.forks, self.folder, self.steps = forks, folder, steps
        self.program = "main"
        self.server = _core.Rendezvous("127.0.0.1", SECRET)
        self.watch = self.server.watch_slots(JOB)
        self.processes: dict[str, int] = {}  # pids by slots
        self.files: dict[str, Path] = {}
        self.reports: dict[str, str] = {}
        self.members: list[str] = []
        self.excluded: set[str] = set()
        self.dropped: set[str] = set()  # no longer waited for, though they live
        self.done: set[str] = set()
        self.killed: set[str] = set()
        self.epoch = 0
        self.notice = 0
        self.newest = -1  # the latest slot that was a member

    # -- processes ---------------------------------------------------------------------------------------

    def _spawn(self, place: int, size: int, epoch: int, more: dict[str, str]) -> str:
        slot = str(len(self.processes))
        numbers = {"RANK": place, "SIZE": size, "LOCAL_RANK": place, "LOCAL_SIZE": size}
        variables = {f"HOROVOD_{name}": str(value) for name, value in numbers.items()}
        variables |= {"HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1", "HOROVOD_ELASTIC": "1"}
        variables |= {"HOROVOD_RENDEZVOUS": f"127.0.0.1:{self.server.port}", "HOROVOD_SECRET": SECRET}
        variables |= {"HOROVOD_JOB": JOB, "HOROVOD_SLOT": slot, "HOROVOD_EPOCH": str(epoch)}
        variables |= {"HOROVOD_TIMEOUT_SECONDS": "10", "STOP": str(self.folder / "stop")}
        self.files[slot] = self.folder / f"slot.{slot}"
        self.files[slot].touch()
        self.processes[slot] = self.forks.start(self.program, variables | more, self.files[slot], self.steps)
        return slot

    def start(self, count: int, more: dict[int, dict[str, str]] | None = None) -> None:
        """Starts the first processes, which are the ranks of epoch 0; ``more``: variables of some of them."""
        slots = [str(place) for place in range(count)]
        self.server.assign(JOB, 0, [(slot, rank, None) for rank, slot in enumerate(slots)])
        for place in range(count):
            self._spawn(place, count, 0, (more or {}).get(place, {}))
        self.members, self.newest = slots, count - 1

    def add(self, count: int = 1, **more: str) -> list[str]:
        """Starts processes that join when they are ready; returns their slots."""
        size = len(self.alive()) + count
        return [self._spawn(size - count + i, size, self.epoch + 1, more) for i in range(count)]

    def code(self, slot: str) -> int | None:
        return self.forks.code(self.processes[slot])

    def lives(self, slot: str) -> bool:
        return slot not in self.killed and self.code(slot) is None

    def kill(self, slot: str) -> None:
        self.killed.add(slot)
        os.kill(self.processes[slot], signal.SIGKILL)

    def alive(self) -> list[str]:
        return [slot for slot in self.members if self.lives(slot) and slot not in self.dropped]

    def is_in_step(self) -> bool:
        """Returns true if there are several members, and all of them have the state of the job."""
        return len(self.alive()) == len(self.members) > 1 and all(
            self.lines(slot, "STEP") for slot in self.members
        )

    def exclude(self, slot: str) -> None:
        """Takes a member out at its next commit."""
        self.excluded.add(slot)
        self._notify(REMOVED)

    def interrupt(self) -> None:
        """Lets the members go on as another epoch after their next commit."""
        self._notify(REMOVED)

    def drop(self, slot: str) -> None:
        """Takes out a member that is stopped, and can't wait for the next epoch."""
        self.excluded.add(slot)
        self.dropped.add(slot)

    # -- epochs ------------------------------------------------------------------------------------------

    def _notify(self, change: int) -> None:
        if change & ~self.notice:
            self.notice |= change
            for rank, slot in enumerate(self.members):
                size = len(self.members)
                self.server.send_news(JOB, slot, "epoch", self.epoch, rank, size, self.notice)

    def _is_done(self, slot: str) -> bool:
        return slot in self.done

    def _waits(self, slot: str) -> bool:
        return self.reports.get(slot, "").startswith(f"waits {self.epoch} ")

    def all_wait_for(self, slot: str) -> bool:
        """Returns true if all other members wait for the next epoch."""
        return all(self._waits(each) for each in self.alive() if each != slot)

    def advance(self) -> None:
        """Takes what processes report, and begins an epoch if all is ready for it."""
        entry = self.watch.next(0.02)
        while entry is not None:
            said = entry[1].decode()
            self.reports[entry[0]] = said.removesuffix(" leaves")
            if said.endswith(" leaves") and entry[0] not in self.excluded:
                self.exclude(entry[0])
            if self.reports[entry[0]] == "done":
                self.done.add(entry[0])
            entry = self.watch.next(0)
        lost = [slot for slot in self.members if slot not in self.alive() and not self._is_done(slot)]
        fresh = [slot for slot in self.processes if int(slot) > self.newest and self.lives(slot)]
        ready = all(self.reports.get(slot) == "ready" for slot in fresh)
        if lost:
            self._notify(LOST)
        if fresh and ready:
            self._notify(ADDED)
        rest = [slot for slot in self.members if slot not in lost and not self._is_done(slot)]
        if rest and all(map(self._waits, rest)):
            joining = fresh if ready else []
            self._begin([slot for slot in rest if slot not in self.excluded] + joining)

    def _begin(self, members: list[str]) -> None:
        for slot in self.excluded:
            self.server.send_news(JOB, slot, "out", 0, -1, 0, 0, "as the test requires")
        self.excluded.clear()
        self.epoch, self.notice, self.members = self.epoch + 1, 0, members
        self.newest = max(self.newest, *map(int, members))
        self.server.assign(JOB, self.epoch, [(slot, rank, None) for rank, slot in enumerate(members)])
        for rank, slot in enumerate(members):
            self.server.send_news(JOB, slot, "epoch", self.epoch, rank, len(members))

    def until(self, condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
        end = time.monotonic() + seconds
        while not condition():
            self.advance()
            if time.monotonic() > end:
                raise TimeoutError(f"epoch {self.epoch}, {self.members}: {self.reports}\n{self.text()}")

    def finish(self) -> None:
        """Goes on until the members are done; then the job is over for the others."""
        self.until(lambda: all(map(self._is_done, self.members)))
        for slot in filter(self.lives, self.processes):
            self.server.send_news(JOB, slot, "over", 0, -1, 0, 0, "all others are done")
        self.until(lambda: all(self.code(slot) is not None for slot in self.processes))

    def stop(self) -> None:
        """Makes the ranks stop after their next step."""
        (self.folder / "stop").touch()

    def close(self) -> None:
        for slot in filter(self.lives, self.processes):
            self.kill(slot)
        self.watch.close()
        self.server.close()

    # -- what they have printed --------------------------------------------------------------------------

    def lines(self, slot: str, word: str) -> list[list[str]]:
        """The lines of a process that begin with a word, as lists of the other words; a part is left out."""
        text = self.files[slot].read_text()
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [line.split()[1:] for line in whole if line.split()[:1] == [word]]

    def made(self) -> int:
        """The number of steps that the farthest process has made."""
        steps = [int(line[0]) for slot in self.files for line in self.lines(slot, "STEP")]
        return max(steps, default=0)

    def text(self) -> str:
        """What all have printed, with their last steps only."""
        parts = []
        for slot, path in self.files.items():
            lines = path.read_text().splitlines()
            steps = [line for line in lines if line.startswith("STEP")][:-3]
            parts.append(f"slot {slot}:\n" + "\n".join(line for line in lines if line not in steps))
        return "\n".join(parts)
