"""Commits that hosts keep in memory: all processes of a job are killed, and the next one goes on."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher, OnHosts
from starter import Starter
from virtual_hosts import wait_until

from horovod.common.kept_snapshot import KeptSnapshot

# Prints the step at which each call of the function begins, and the sum of the steps. All ranks end by
# SIGKILL after step DIE.
TRAIN = """
import os, signal, sys
import numpy as np
import horovod as hvd

@hvd.elastic.run
def train(state):
    os.write(1, b"BEGIN %d\\n" % state.step)
    while state.step < 6:
        state.total += hvd.allreduce(np.full(1000, state.step), op=hvd.Max, name="step")
        state.step += 1
        state.commit()
        if state.step == int(os.environ["DIE"]) and not os.path.exists(sys.argv[1]):
            hvd.barrier()
            if hvd.rank() == 0 and "ONCE" in os.environ:
                open(sys.argv[1], "w").close()
            hvd.barrier()
            os.kill(os.getpid(), signal.SIGKILL)

hvd.init()
state = hvd.elastic.ObjectState(step=0, total=np.zeros(1000))
train(state)
assert (state.total == 15).all(), state.total
os.write(1, b"DONE %d\\n" % state.step)
"""


@pytest.fixture
def kept() -> Iterator[dict[str, str]]:
    """The variables of a job whose commits are kept."""
    name = f"test-{uuid.uuid4()}"
    yield {"HOROVOD_ELASTIC_NAME": name, "HOROVOD_ELASTIC_KEEP": "120"}
    KeptSnapshot(name, 0).done(1)


def begins(text: str) -> list[int]:
    return [int(step) for step in re.findall(r"BEGIN (\d+)", text)]


def servers(name: str) -> list[int]:
    """The processes that keep the commits of a name."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if name.encode() in (process / "cmdline").read_bytes().split(b"\0")[3:5]:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_horovodrun_goes_on_in_the_next_job(launcher: Launcher, kept: dict[str, str]) -> None:
    words = ["-np", "2", *launcher.python(TRAIN), str(launcher.folder / "done")]
    for step in (0, 2):
        first = launcher.run(*words, env=launcher.environment(**kept, DIE=str(step + 2)))
        assert first.returncode == 128 + signal.SIGKILL, first.stderr
        assert begins(first.stdout) == [step] * 2
    assert launcher.none_alive()
    assert len(servers(kept["HOROVOD_ELASTIC_NAME"])) == 1
    last = launcher.run(*words, env=launcher.environment(**kept, DIE="0"))
    assert last.returncode == 0, last.stderr
    assert begins(last.stdout) == [4] * 2 and last.stdout.count("DONE 6") == 2
    assert wait_until(lambda: not servers(kept["HOROVOD_ELASTIC_NAME"]), DEADLINE)


def test_horovodrun_is_killed_as_well(launcher: Launcher, kept: dict[str, str]) -> None:
    script = TRAIN.replace("os.kill(os.getpid(), signal.SIGKILL)", "os.write(1, b'READY\\n'); signal.pause()")
    job = launcher.start(
        "-np", "2", *launcher.python(script), "nothing", env=launcher.environment(**kept, DIE="3")
    )
    assert job.stdout
    text = ""
    while text.count("READY") < 2:
        text += job.stdout.readline()
    for pid in launcher.named("horovodrun", "hvd-job"):
        os.kill(pid, signal.SIGKILL)
    assert launcher.none_alive()
    last = launcher.run(
        "-np", "3", *launcher.python(TRAIN), "nothing", env=launcher.environment(**kept, DIE="0")
    )
    assert last.returncode == 0, last.stderr
    assert begins(last.stdout) == [3] * 3


def test_torchrun_starts_all_ranks_again(starter: Starter, kept: dict[str, str]) -> None:
    words = ["torchrun", "--no-python", "--standalone", "--max-restarts", "1", "--nproc-per-node", "2"]
    program = [*starter.launcher.python(TRAIN), str(starter.folder / "done")]
    result = starter.run(*words, *program, **kept, DIE="3", ONCE="1")
    assert result.returncode == 0, result.stderr
    assert begins(result.stdout) == [0, 0, 3, 3] and result.stdout.count("DONE 6") == 2


def test_each_host_keeps_its_commits(on_hosts: OnHosts, kept: dict[str, str]) -> None:
    """One of them has lost them, and receives those of the other one."""
    launcher = on_hosts.launcher
    words = ["-H", "a:1,b:1", *launcher.python(TRAIN), "nothing"]
    first = on_hosts.run(*words, env=launcher.environment(**kept, DIE="3"))
    assert first.returncode != 0 and begins(first.stdout) == [0] * 2, first.stderr
    found = servers(kept["HOROVOD_ELASTIC_NAME"])
    assert len(found) == 2
    os.kill(found[0], signal.SIGKILL)
    last = on_hosts.run(*words, env=launcher.environment(**kept, DIE="0"))
    assert last.returncode == 0, last.stderr
    assert begins(last.stdout) == [3] * 2 and last.stdout.count("DONE 6") == 2


def test_a_name_is_needed(launcher: Launcher) -> None:
    result = launcher.run(
        "-np", "1", "--elastic-keep", "9", *launcher.python(TRAIN), "nothing",
        env=launcher.environment(DIE="0"),
    )  # fmt: skip
    assert result.returncode != 0
    assert "HOROVOD_ELASTIC_KEEP needs HOROVOD_ELASTIC_NAME" in result.stderr
