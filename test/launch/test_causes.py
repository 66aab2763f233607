"""All ranks get one cause, whichever finds it first and however their programs end: in the soak 210 times for
each way to end or to stop."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import cuts
import pytest
import virtual_hosts
from conftest import Launcher, OnHosts
from cuts import Cut, Layout
from virtual_hosts import VirtualHosts

pytestmark = pytest.mark.usefixtures("nothing_left")
WORKER = Path(__file__).with_name("cause_worker.py")
HOSTS = ("a", "b", "c", "d")
FULL = "HOROVOD_TEST_FULL" in os.environ
RUNS = 70 if FULL else 1
VICTIMS = pytest.mark.parametrize("victim", [0, 2, 5], ids=["root", "leader", "other"])


def check_causes(on_hosts: OnHosts, victim: int, *words: str, **variables: str) -> int:
    """4 hosts with 2 ranks each. Returns the exit code of horovodrun."""
    layout = ",".join(f"{name}:2" for name in HOSTS)
    command = ["--start-timeout", "90", "-H", layout, sys.executable, str(WORKER), str(victim), *words]
    launcher = on_hosts.launcher
    result = on_hosts.run(*command, env=launcher.environment(**variables))
    files = [launcher.folder / f"{rank}.error" for rank in range(8) if rank != victim]
    assert all(file.exists() for file in files), result.stderr
    causes = {file.read_text().partition(" ")[2] for file in files}
    assert len(causes) == 1, (words, causes, result.stderr)
    assert f"rank {victim} (pid" in causes.pop()
    if words[0] == "SIGKILL":  # otherwise all ranks may end alike, unseen by the launcher
        assert f"horovodrun: the first to fail was rank {victim} (pid" in result.stderr, result.stderr
    assert launcher.none_alive()
    return result.returncode


@pytest.mark.parametrize("run", range(RUNS))
@VICTIMS
def test_a_killed_rank_is_one_cause(on_hosts: OnHosts, victim: int, run: int) -> None:
    after, ending = random.uniform(0, 200), ("_exit", "raise")[run % 2]
    assert check_causes(on_hosts, victim, "SIGKILL", f"{after:.1f}", ending) == 128 + 9


@pytest.mark.skipif(not FULL, reason="long: HOROVOD_TEST_FULL=1")
@pytest.mark.parametrize("run", range(RUNS))
@VICTIMS
def test_a_stopped_rank_is_one_cause(on_hosts: OnHosts, victim: int, run: int) -> None:
    after, ending = random.uniform(0, 200), ("_exit", "raise")[run % 2]
    words = ["SIGSTOP", f"{after:.1f}", ending]
    check_causes(on_hosts, victim, *words, HOROVOD_TIMEOUT_SECONDS="2")


@pytest.fixture
def slow_hosts(hosts: VirtualHosts, on_hosts: OnHosts) -> Iterator[OnHosts]:
    """Their queues hold seconds of data, behind which the message with the cause must arrive."""
    hosts.limit("100mbit", "1s")
    yield on_hosts
    hosts.limit("100gbit")


@pytest.mark.parametrize("run", range(RUNS // 7 or 1))
@VICTIMS
def test_an_exit_on_slow_links_is_one_cause(slow_hosts: OnHosts, victim: int, run: int) -> None:
    """While the first 64 MiB are sent, which takes seconds; all ranks end without closing connections."""
    after = random.uniform(300, 3000)
    check_causes(slow_hosts, victim, "_exit", f"{after:.1f}", "_exit", "0")


@pytest.mark.parametrize(
    "cut", [Cut("b", "c", 60), Cut("d", "a", 60, one_way=True)], ids=["pair", "direction"]
)
def test_a_cut_between_two_hosts_names_both(launcher: Launcher, hosts: VirtualHosts, cut: Cut) -> None:
    """And no other one; `python test/launch/cuts.py` draws more."""
    layout = Layout(HOSTS)
    outcome = cuts.run(hosts, launcher.program, cut, 3, layout, delay=random.uniform(0, 0.3))
    assert outcome.causes and not cuts.explain(cut, 3, outcome, layout), outcome
    assert launcher.none_alive()


LATE = """
import os, signal, time
from pathlib import Path
import numpy as np
import horovod as hvd

pair = hvd.ProcessSet([1, 2])
hvd.init(process_sets=[pair])
try:
    if pair.included():
        handle = hvd.allreduce_async(np.ones(32 << 20, np.float32), name="x", process_set=pair)
        time.sleep(0.5)
        assert not hvd.poll(handle)
        Path(f"{hvd.rank()}.under_way").touch()
        try:  # until the others have left the job
            while True:
                hvd.barrier()
        except hvd.HorovodInternalError as error:
            assert "has left the job" in str(error), error
        if hvd.rank() == 2:
            time.sleep(1)  # set 0 has closed
            assert not hvd.poll(handle)
            os.kill(os.getpid(), signal.SIGSTOP)
        hvd.synchronize(handle)
    else:
        while not all(Path(f"{rank}.under_way").exists() for rank in (1, 2)):
            hvd.barrier()
except hvd.HorovodInternalError as error:
    if pair.included():
        Path(f"{hvd.rank()}.error").write_text(str(error))
        raise
hvd.shutdown()
"""


def test_a_rank_stops_after_others_have_left(launcher: Launcher, slow_hosts: OnHosts) -> None:
    """In the last operation of a process set, when the other ranks have left: the wait must still end."""
    words = ["--timeout-seconds", "3", "--grace-seconds", "1", "-H", ",".join(f"{name}:1" for name in HOSTS)]
    slow_hosts.run(*words, *launcher.python(LATE))
    assert "host c (rank 2) has not answered for 3 s" in (launcher.folder / "1.error").read_text()


PAIR = """
import time
from pathlib import Path
import numpy as np
import horovod as hvd

pair = hvd.ProcessSet([1, 2])
hvd.init(process_sets=[pair])
try:
    while pair.included():
        hvd.allreduce(np.ones(1 << 20, np.float32), name="x", process_set=pair)
        Path(f"{hvd.rank()}.step").touch()
    time.sleep(60)
except hvd.HorovodInternalError as error:
    Path(f"{hvd.rank()}.error").write_text(str(error))
    raise
"""


def test_a_host_is_cut_off_while_only_a_process_set_waits(launcher: Launcher, on_hosts: OnHosts) -> None:
    """Ranks outside the set still detect which host is cut off."""
    layout = ",".join(f"{name}:1" for name in HOSTS)
    words = ["--timeout-seconds", "3", "--grace-seconds", "1", "-H", layout, *launcher.python(PAIR)]
    process = on_hosts.start(*words)
    cut = Cut("b", "acd", 60)
    try:
        assert virtual_hosts.wait_until(lambda: (launcher.folder / "2.step").exists())
        for pair in cut.directions():
            on_hosts.hosts.cut(*pair)
        process.communicate(timeout=virtual_hosts.DEADLINE)
        errors = [launcher.folder / f"{rank}.error" for rank in (1, 2)]
        assert virtual_hosts.wait_until(lambda: all(path.exists() and path.read_text() for path in errors))
        texts = [path.read_text() for path in errors]
        assert texts[0].startswith("host b (rank 1) is cut off: "), texts
        assert texts[1].startswith("host b (rank 1) has not answered "), texts
    finally:
        for pair in cut.directions():
            on_hosts.hosts.mend(*pair)
