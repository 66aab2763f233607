"""Elastic jobs over several hosts: ranks, agents and whole hosts are lost, and hosts come and go."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher, oldest_first
from elastic_job import ENDLESS, PROGRAM, Job, sizes
from virtual_hosts import VirtualHosts, wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")
TIMEOUT = ["--timeout-seconds", "3", "--grace-seconds", "1"]


class Hosts:
    """The hosts a, b and c; horovodrun runs on a."""

    def __init__(self, launcher: Launcher, hosts: VirtualHosts) -> None:
        self.launcher = launcher
        self.hosts = hosts
        self.down: set[str] = set()

    def start(self, *options: str, **more: str) -> Job:
        inside = self.hosts.enter("a", self.launcher.folder)
        return Job(self.launcher, *options, inside=inside, **more)  # type: ignore[arg-type]

    def processes(self, name: str, is_wanted: Callable[[bytes], bool]) -> list[int]:
        """Those of a host, by their command lines, the oldest first."""
        space = os.readlink(f"/proc/{self.hosts.processes[name].pid}/ns/net")
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "ns/net") == space and is_wanted((path / "cmdline").read_bytes()):
                    found.append(int(path.name))
            except OSError:
                continue
        return oldest_first(found)

    def ranks(self, name: str) -> list[int]:
        return self.processes(name, lambda command: command.split(b"\0")[0] == str(PROGRAM).encode())

    def agents(self, name: str) -> list[int]:
        return self.processes(name, lambda command: command.endswith(b"\0--agent\0"))

    def set_link(self, name: str, state: str) -> None:
        assert self.hosts.inside(name, "ip", "link", "set", "eth0", state) == 0
        (self.down.add if state == "down" else self.down.discard)(name)

    def crash(self, name: str) -> None:
        """No process is notified."""
        self.set_link(name, "down")
        for pid in self.ranks(name) + self.agents(name):
            os.kill(pid, signal.SIGKILL)

    def mend(self) -> None:
        for name in list(self.down):
            self.set_link(name, "up")


@pytest.fixture
def of_job(launcher: Launcher, hosts: VirtualHosts) -> Iterator[Hosts]:
    hosts.know_hosts("host_key")
    made = Hosts(launcher, hosts)
    yield made
    made.mend()


@pytest.fixture
def listed(launcher: Launcher) -> Iterator[Path]:
    """What the discovery script prints."""
    path = launcher.folder / "hosts"
    path.write_text("a:2\n")
    yield path


def test_a_rank_of_another_host_is_killed(of_job: Hosts) -> None:
    job = of_job.start(
        "-np", "4", "--min-np", "2", "-H", "a:2,b:2", "--failed-slot", "restart", steps=ENDLESS
    )
    job.wait_for("step 20 with")
    os.kill(of_job.ranks("b")[0], signal.SIGKILL)
    job.wait_for_sizes(4, 3, 4)
    assert len(of_job.ranks("b")) == 2
    text = job.interrupt()
    assert re.search(r"process [23] \(pid \d+\), rank [23] of epoch 0, was killed by SIGKILL", text)


def test_the_host_of_a_killed_rank_is_left_out(of_job: Hosts) -> None:
    job = of_job.start("-np", "4", "--min-np", "2", "-H", "a:2,b:2")
    job.wait_for("step 20 with")
    os.kill(of_job.ranks("b")[0], signal.SIGKILL)
    job.wait_for_sizes(4, 2)
    assert wait_until(lambda: not of_job.agents("b"), DEADLINE)  # it is needed no longer
    text = job.finish()
    assert "is to end: another process of its host has failed" in text


@pytest.mark.parametrize("victim", ["agent", "connection"])
def test_an_agent_is_lost(of_job: Hosts, launcher: Launcher, victim: str) -> None:
    job = of_job.start("-np", "4", "--min-np", "2", "-H", "a:2,b:2", steps=ENDLESS)
    job.wait_for("step 20 with")
    found = of_job.agents("b") if victim == "agent" else launcher.named("ssh")
    os.kill(found[0], signal.SIGKILL)
    job.wait_for_sizes(4, 2)
    assert wait_until(lambda: not of_job.ranks("b"), 20.0)
    text = job.interrupt()
    assert re.search("lost host b with processes 2, 3: its connection has ended: .*; the others go on", text)


def test_an_agent_gets_a_signal(of_job: Hosts) -> None:
    job = of_job.start("-np", "4", "--min-np", "2", "-H", "a:2,b:2", steps=ENDLESS)
    job.wait_for("step 20 with")
    os.kill(of_job.agents("b")[0], signal.SIGTERM)
    job.wait_for_sizes(4, 2)
    assert wait_until(lambda: not of_job.agents("b"), DEADLINE)  # with its ranks
    text = job.interrupt()
    assert "host b: its agent got SIGTERM; its ranks leave the job" in text
    assert "lost" not in text


@pytest.mark.parametrize("crashed", ["b", "c"])
def test_a_host_crashes(of_job: Hosts, crashed: str) -> None:
    """Rank 0 is on b."""
    job = of_job.start("-np", "4", "--min-np", "2", "-H", "b:2,c:2", *TIMEOUT, steps=ENDLESS)
    job.wait_for("step 20 with")
    of_job.crash(crashed)
    job.wait_for_sizes(4, 2)
    text = job.interrupt(whole=crashed != "b")
    numbers = "0, 1" if crashed == "b" else "2, 3"
    assert f"lost host {crashed} with processes {numbers}: it has been silent for 3 s; the others" in text


def test_a_host_returns(of_job: Hosts) -> None:
    words = ["--blacklist-cooldown-range", "1", "2", "-H", "a:2,b:2", *TIMEOUT]
    job = of_job.start("-np", "4", "--min-np", "2", *words, steps=ENDLESS)
    job.wait_for("step 20 with")
    of_job.crash("b")
    job.wait_for("with 2 ranks", 20)
    of_job.mend()
    job.wait_for_sizes(4, 2, 4)
    assert len(of_job.ranks("b")) == 2
    job.interrupt()


def test_hosts_come_and_go(of_job: Hosts, listed: Path) -> None:
    words = ["--min-np", "1", "--max-np", "6", "--host-discovery-script", f"cat {listed}"]
    job = of_job.start("-np", "2", *words, steps=ENDLESS)
    job.wait_for("step 20 with")
    listed.write_text("a:2\nb:2\n")
    job.wait_for("with 4 ranks", 10)
    listed.write_text("b:2\n")
    job.wait_for("epoch 2 has begun with 2 ranks")
    assert wait_until(lambda: not of_job.ranks("a") and not of_job.agents("a"), DEADLINE)
    listed.write_text("c:1\nb:2\na:2\n")
    job.wait_for("with 5 ranks", 10)
    text = job.interrupt()
    assert sizes(text)[:3] == [2, 4, 2]
    assert sizes(text)[-1] == 5
    assert "lost host" not in text


def test_a_host_that_can_not_be_prepared(of_job: Hosts, listed: Path) -> None:
    listed.write_text("a:2\nnowhere:2\n")
    words = ["--min-np", "2", "--max-np", "4", "--host-discovery-script", f"cat {listed}"]
    job = of_job.start("-np", "2", *words, steps=ENDLESS)
    job.wait_for("host nowhere: ")
    job.wait_for("with 2 ranks", 200)
    text = job.interrupt()
    assert sizes(text) == [2]
    assert text.count("host nowhere: ") == 1
    assert "host nowhere: its name is unknown; check the spelling" in text


def test_a_host_that_does_not_answer(of_job: Hosts, launcher: Launcher) -> None:
    """The job starts without it, and it joins when it answers."""
    answers = launcher.folder / "answers"
    agents = launcher.agents(f'[ $1 = c ] || until [ -e {answers} ]; do sleep 0.05; done; eval "$2"')
    job = of_job.start("-np", "4", "--min-np", "2", *agents, "-H", "b:2,c:2", steps=ENDLESS)
    job.wait_for("step 20 with 2 ranks")
    answers.touch()
    job.wait_for("epoch 1 has begun with 4 ranks")
    text = job.interrupt()
    assert sizes(text)[:1] == [2]
    assert "host b: " not in text


def test_a_host_that_does_not_reach_horovodrun(of_job: Hosts, launcher: Launcher) -> None:
    """As behind a firewall that lets only ssh through."""
    network = "ip link set lo up; ip addr add 10.9.9.1/32 dev lo; export HOROVOD_NETWORK_INTERFACE=lo"
    agents = launcher.agents(f'[ $1 = c ] || exec unshare --net bash -c \'{network}; \'"$2"; eval "$2"')
    job = of_job.start("-np", "2", "--min-np", "2", *agents, "-H", "c:2,b:2", steps=ENDLESS)
    job.wait_for("host b: ")
    job.wait_for("step 20 with")
    text = job.interrupt()
    assert sizes(text) == [2]
    assert text.count("host b: ") == 1
    assert "host b: it does not reach the host of horovodrun, as each host of an elastic job must: " in text


def test_all_hosts_are_lost(of_job: Hosts) -> None:
    job = of_job.start("-np", "2", "--min-np", "1", "-H", "b:1,c:1", *TIMEOUT, steps=ENDLESS)
    job.wait_for("step 20 with")
    of_job.crash("b")
    of_job.crash("c")
    text = job.finish(exit_code=75)
    assert text.count("lost host") == 2


def test_places(of_job: Hosts, launcher: Launcher) -> None:
    """Two names of one host share its local ranks."""
    names = ["LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"]
    show = "echo at $HOROVOD_HOSTNAME " + " ".join(f"$HOROVOD_{name}" for name in names)
    inside = of_job.hosts.enter("a", launcher.folder)
    words = ["-np", "4", "--min-np", "4", "-H", "b:1,a:1,alias:2", "bash", "-c", show]
    result = launcher.run(*words, inside=inside)
    assert result.returncode == 0, result.stderr
    assert sorted(re.findall(r"\[(\d)\]<stdout>: at (.*)", result.stdout)) == [
        ("0", "b 0 3 0 2"),
        ("1", "a 0 1 1 2"),
        ("2", "alias 1 3 0 1"),
        ("3", "alias 2 3 0 1"),
    ]


def test_ctrl_c_leaves_nothing(of_job: Hosts) -> None:
    job = of_job.start("-np", "4", "--min-np", "2", "-H", "a:2,b:2", *TIMEOUT, steps=ENDLESS)
    job.wait_for("step 20 with")
    job.interrupt()
    assert wait_until(lambda: not of_job.agents("b"), DEADLINE)
