"""An agent, with this test as its launcher: processes start and end one by one."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE, Launcher, frame_kinds
from virtual_hosts import wait_until

PREAMBLE = b"\nhorovodrun agent\n"
KINDS = frame_kinds()
ANSWER_SECONDS = 3.0  # ANSWER_MILLISECONDS of launch/agent_frames.c
MEMORY_KILLS = (Path("/sys/fs/cgroup/memory/memory.oom_control"), Path("/sys/fs/cgroup/memory.events"))


def number(*values: int) -> bytes:
    return b"".join(struct.pack("<I", value) for value in values)


def text(*values: str) -> bytes:
    return b"".join(number(len(value.encode())) + value.encode() for value in values)


def words(*values: str) -> bytes:
    return number(len(values)) + text(*values)


def texts(body: bytes) -> list[str]:
    found = []
    while body:
        length = 4 + struct.unpack_from("<I", body)[0]
        found.append(body[4:length].decode())
        body = body[length:]
    return found


class Agent:
    def __init__(self, launcher: Launcher) -> None:
        pipe: Any = subprocess.PIPE
        self.process: Any = launcher.start("--agent", stdin=pipe, stdout=pipe, stderr=pipe, text=False)
        self.timer = threading.Timer(DEADLINE, self.process.kill)
        self.timer.start()
        assert self.process.stdout.read(len(PREAMBLE)) == PREAMBLE
        self.expect("READY")

    def send(self, kind: str, body: bytes) -> None:
        self.process.stdin.write(number(1 + len(body)) + bytes([KINDS["FRAME_" + kind]]) + body)
        self.process.stdin.flush()

    def expect(self, kind: str) -> bytes:
        """The body of the next frame of this kind; drops the others."""
        while True:
            header = self.process.stdout.read(5)
            assert len(header) == 5, self.process.stderr.read().decode()
            body: bytes = self.process.stdout.read(struct.unpack("<I", header[:4])[0] - 1)
            if header[4] == KINDS["FRAME_" + kind]:
                return body

    def prepare(self, folder: Path, *command: str) -> None:
        self.send(
            "PREPARE", bytes([0]) + text(str(folder)) + words("MINE=1") + words(*command) + text("", "")
        )
        assert struct.unpack_from("<I", self.expect("PREPARED"))[0] == 0

    def announce(self, count: int) -> None:
        self.send(
            "JOB", text("0" * 32, "1" * 64, "127.0.0.1:9", "here") + bytes([0]) + number(count) + bytes(32)
        )

    def start(self, slot: int, rank: int, size: int, epoch: int = 0) -> int:
        """Returns the process's number."""
        self.send("START", number(slot, epoch, size, rank, rank, size, 0, 1))
        reported, pid, exit_code = struct.unpack_from("<3I", body := self.expect("STARTED"))
        assert (reported, exit_code, texts(body[12:])) == (slot, 0, [""])
        return int(pid)

    def leave(self) -> int:
        self.process.stdin.close()
        return int(self.process.wait(DEADLINE))


@pytest.fixture
def agent(launcher: Launcher) -> Iterator[Agent]:
    own = Agent(launcher)
    yield own
    own.timer.cancel()


def test_processes_start_and_end_one_by_one(agent: Agent, launcher: Launcher) -> None:
    script = "echo $HOROVOD_SLOT $HOROVOD_EPOCH $HOROVOD_RANK/$HOROVOD_SIZE $MINE; exec sleep 100"
    agent.prepare(launcher.folder, "sh", "-c", script)
    agent.announce(1)
    first = agent.start(slot=4, rank=0, size=1)
    assert agent.expect("OUTPUT") == number(4) + b"\0" + b"4 0 0/1 1\n"
    agent.announce(2)
    second = agent.start(slot=9, rank=1, size=2, epoch=1)
    assert agent.expect("OUTPUT") == number(9) + b"\0" + b"9 1 1/2 1\n"
    agent.send("SIGNAL", number(4, signal.SIGKILL))
    known = any(path.exists() for path in MEMORY_KILLS)
    killer = 2 if known else 0  # this test, if the kernel says how often it has killed
    assert agent.expect("ENDED") == number(4, 128 + signal.SIGKILL, signal.SIGKILL, killer)
    assert agent.expect("GONE") == number(4)
    os.kill(second, 0)
    again = agent.start(slot=4, rank=0, size=2, epoch=2)
    assert again not in (first, second)
    assert agent.expect("OUTPUT") == number(4) + b"\0" + b"4 2 0/2 1\n"
    for slot in (4, 9):
        agent.send("SIGNAL", number(slot, signal.SIGTERM))
    ended = {struct.unpack_from("<I", agent.expect("GONE"))[0] for _ in range(2)}
    assert ended == {4, 9}
    assert agent.process.wait(DEADLINE) == 0  # all that were announced have ended


@pytest.mark.parametrize("announced", [0, 1, 2])
def test_a_process_that_must_not_start(agent: Agent, launcher: Launcher, announced: int) -> None:
    """None is announced, all are started, or the slot is in use: the agent ends with its processes."""
    agent.prepare(launcher.folder, "sleep", "100")
    if announced:
        agent.announce(announced)
        pid = agent.start(slot=0, rank=0, size=2)
    agent.send("START", number(0 if announced == 2 else 1, 0, 2, 1, 1, 2, 0, 1))
    assert agent.process.wait(DEADLINE) == 0
    if announced:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_agent_of_an_elastic_job(agent: Agent, launcher: Launcher) -> None:
    """It stays without processes until it is released, and then until the last one has ended."""
    agent.prepare(launcher.folder, "sleep", "100")
    agent.announce(0)
    for slot in range(2):
        agent.start(slot=slot, rank=1, size=2, epoch=slot)
        if slot:
            agent.send("RELEASE", b"")
        agent.send("SIGNAL", number(slot, signal.SIGKILL))
        assert agent.expect("GONE") == number(slot)
    assert agent.process.wait(DEADLINE) == 0


def test_an_answer_that_is_read_late(agent: Agent, launcher: Launcher) -> None:
    """The agent stands still while the answer to its signal arrives, and beyond the time for that."""
    agent.prepare(launcher.folder, "sleep", "100")
    agent.announce(1)
    agent.start(slot=0, rank=0, size=1)
    (own,) = launcher.named("hvd-job")
    os.kill(own, signal.SIGTERM)
    assert agent.expect("SIGNALLED") == number(signal.SIGTERM)
    os.kill(own, signal.SIGSTOP)
    assert wait_until(lambda: " T " in Path(f"/proc/{own}/stat").read_text(), DEADLINE)
    agent.send("HEARTBEAT", bytes(8))
    time.sleep(ANSWER_SECONDS + 0.1)
    os.kill(own, signal.SIGCONT)
    agent.expect("HEARTBEAT")
    agent.send("SIGNAL", number(0, signal.SIGUSR1))
    assert struct.unpack_from("<2I", agent.expect("ENDED")) == (0, 128 + signal.SIGUSR1)


def test_assignments_are_published(agent: Agent, launcher: Launcher) -> None:
    agent.prepare(launcher.folder, "true")
    table = number(2) + text("0") + number(1) + text("1") + number(0)
    agent.send("EPOCH", text("job") + number(0) + table)
    assert "malformed" in texts(agent.expect("ASSIGNED"))[0]  # nothing is served yet
    agent.send("SERVE", text("2" * 64, "127.0.0.1"))
    assert texts(agent.expect("SERVING"))[1] == ""
    for epoch, answer in [(1, ""), (1, ""), (0, "epoch 0 of the job, but epoch 1 has begun")]:
        agent.send("EPOCH", text("job") + number(epoch) + table)
        assert answer in texts(agent.expect("ASSIGNED"))[0]
    agent.send("EPOCH", text("job") + number(2) + number(1) + text("0") + number(3))
    assert "no assignment" in texts(agent.expect("ASSIGNED"))[0]
    assert agent.leave() == 0
