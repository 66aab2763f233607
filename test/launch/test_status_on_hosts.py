"""horovodrun --status beside a job on several hosts: the launcher asks all of them, and a host that does not
answer delays nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from conftest import DEADLINE, Launcher, OnHosts, wait_until
from virtual_hosts import VirtualHosts

HOSTS = ("a", "b", "c")
AT_MOST = 8.0  # seconds that --status may take, whatever has happened

PROGRAM = """
import os, signal, sys, time
import numpy as np
import horovod as hvd
hvd.init()
value = np.ones(3, np.float32)
for step in range(20):
    hvd.allreduce(value, name="layer")
if hvd.rank() == int(sys.argv[1]):
    if sys.argv[2] == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(3600)
hvd.allreduce(value, name="loss")
"""


def status(on_hosts: OnHosts, *words: str, host: str = "a") -> subprocess.CompletedProcess[str]:
    """The machine may be busy once, but not always when it is asked."""
    try:
        return on_hosts.run("--status", *words, host=host, seconds=AT_MOST)
    except subprocess.TimeoutExpired:
        return on_hosts.run("--status", *words, host=host, seconds=AT_MOST)


def status_until(on_hosts: OnHosts, pattern: str) -> str:
    """What --status says on host a once it says that."""
    said = [""]

    def says() -> bool:
        said[0] = status(on_hosts).stdout
        return re.search(pattern, said[0], re.MULTILINE) is not None

    assert wait_until(says), said[0]
    return said[0]


def states_until(on_hosts: OnHosts, states: list[str]) -> dict[str, Any]:
    """What --status says on host a once the ranks are in these states."""
    found: dict[str, Any] = {}

    def are_there() -> bool:
        found.clear()
        found.update(json.loads(status(on_hosts, "--json").stdout))
        return [rank["state"] for rank in found["ranks"]] == states

    assert wait_until(are_there), found
    return found


def test_all_hosts(launcher: Launcher, on_hosts: OnHosts) -> None:
    on_hosts.start("-H", "a:1,b:2", *launcher.python(PROGRAM), "2", "late")
    text = status_until(
        on_hosts, r"^rank 2 \(host b\) sleeps: .*; ranks 0, 1 wait for it in allreduce\.loss, for"
    )
    assert re.search(r"^job \w+ \(\w{8}\)  3 ranks on 2 hosts  up .*  step 20, none for ", text, re.MULTILINE)
    assert re.search(r"^2 +b .* GB  sleeps \S+\.py:\d+ +<- late$", text, re.MULTILINE)
    assert re.search(r"^0, 1 +2 hosts .* waits in allreduce\.loss$", text, re.MULTILINE)
    found = states_until(on_hosts, ["waits", "waits", "program"])
    assert found["job"]["all_hosts"]
    assert [(host["name"], host["ranks"], host["answers"]) for host in found["hosts"]] == [
        ("a", 1, True),
        ("b", 2, True),
    ]
    assert [rank["host"] for rank in found["ranks"]] == ["a", "b", "b"]
    assert found["waiting"][0]["missing"] == [2]
    assert 0 < found["waiting"][0]["seconds"] <= found["job"]["up_seconds"] < 100


def test_launcher_on_a_host_without_ranks(launcher: Launcher, on_hosts: OnHosts) -> None:
    on_hosts.start("-H", "b:1,10.83.0.3:1", *launcher.python(PROGRAM), "0", "late")
    text = status_until(on_hosts, r"^rank 0 .*; rank 1 waits for it in allreduce\.loss")
    assert re.search(r"^1 +10\.83\.0\.3 .* waits in", text, re.MULTILINE), "the name that the user gave"
    result = status(on_hosts, host="b")
    assert "1 of its 2 ranks on host b" in result.stdout, "without the launcher only its own"


def test_rank_that_is_stopped_on_another_host(launcher: Launcher, on_hosts: OnHosts) -> None:
    on_hosts.start("-H", "a:1,b:1", *launcher.python(PROGRAM), "1", "stopped")
    status_until(on_hosts, r"^rank 1 .*is stopped, .*; 1 rank waits for it in allreduce\.loss$")


def test_host_that_is_cut_off(launcher: Launcher, hosts: VirtualHosts, on_hosts: OnHosts) -> None:
    on_hosts.start("-H", "a:1,b:2", *launcher.python(PROGRAM), "2", "late")
    status_until(on_hosts, r"^rank 2 .*; ranks 0, 1 wait for it ")
    try:
        hosts.cut("a", "b")
        hosts.cut("b", "a")
        text = status_until(
            on_hosts, r"^host b \(ranks 1, 2\) does not answer for \d+ s; 1 rank waits in allreduce"
        )
        assert re.search(r"^.*2 +b .* is on a host that does not answer$", text, re.MULTILINE)
        found = states_until(on_hosts, ["waits", "unseen", "unseen"])
    finally:
        hosts.mend("a", "b")
        hosts.mend("b", "a")
    assert found["verdict"]["exit"] == 4
    assert found["hosts"][1]["silent_seconds"] > 0
    assert found["waiting"][0]["hidden"] == 2
    status_until(on_hosts, r"^rank 2 .*; ranks 0, 1 wait for it ")


def agents_of(hosts: VirtualHosts, name: str) -> list[int]:
    """The processes of agents on this host."""
    space = Path(f"/proc/{hosts.processes[name].pid}/ns/uts").readlink()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text() == "hvd-job\n" and (folder / "ns/uts").readlink() == space:
                found.append(int(folder.name))
    return found


def test_agent_that_is_stopped(launcher: Launcher, hosts: VirtualHosts, on_hosts: OnHosts) -> None:
    on_hosts.start("-H", "a:1,b:1", *launcher.python(PROGRAM), "1", "late")
    status_until(on_hosts, r"^rank 1 .*; rank 0 waits for it ")
    (agent,) = agents_of(hosts, "b")
    os.kill(agent, signal.SIGSTOP)
    status_until(on_hosts, r"^host b \(rank 1\) does not answer for ")
    os.kill(agent, signal.SIGCONT)
    status_until(on_hosts, r"^rank 1 .*; rank 0 waits for it ")


def result_of_hosts(on_hosts: OnHosts, host: str, given: str) -> subprocess.CompletedProcess[str]:
    """Of --status with these hosts, once it names rank 2: one that is busy may answer too late."""
    results: list[subprocess.CompletedProcess[str]] = []

    def names_it() -> bool:
        results.append(on_hosts.run("--status", "-H", given, host=host))
        named = r"rank 2 .*; ranks? [01, ]+ waits? for it in allreduce\.loss"
        return re.match(named, results[-1].stdout) is not None

    assert wait_until(names_it), results
    return results[-1]


def test_hosts_that_are_given(launcher: Launcher, on_hosts: OnHosts) -> None:
    """Without a launcher that could be asked: it is stopped, or on another host."""
    on_hosts.start("-H", "a:1,b:1,c:1", *launcher.python(PROGRAM), "2", "late")
    status_until(on_hosts, r"^rank 2 .*; ranks 0, 1 wait for it ")
    for process in launcher.named("hvd-job"):
        os.kill(process, signal.SIGSTOP)
    for host, given in (("a", "a,b,c"), ("b", "c,b,a"), ("b", "b,c")):
        result = result_of_hosts(on_hosts, host, given)
        assert (result.returncode, result.stderr) == (3, "")
        ranks = "2 of its 3 ranks on 2 hosts" if given == "b,c" else "3 ranks on 3 hosts"
        assert re.search(rf"^job \w{{8}}  {ranks}  up ", result.stdout, re.MULTILINE)
    result = on_hosts.run("--status", "-H", "b,nowhere,c", seconds=20)
    for process in launcher.named("hvd-job"):
        os.kill(process, signal.SIGCONT)
    assert result.returncode == 4
    assert result.stderr.startswith("horovodrun: host nowhere: its name is unknown; check the spelling")
    assert result.stderr.endswith(
        "\nhorovodrun: 1 of 3 hosts can't be asked, so the verdict is without their ranks\n"
    )
    assert result.stderr.count("\n") == 2


def test_watching_a_host_that_is_lost(launcher: Launcher, hosts: VirtualHosts, on_hosts: OnHosts) -> None:
    """It is called again before the next look; the last one is that after which no host is left."""
    job = on_hosts.start("-H", "b:2", *launcher.python(PROGRAM), "1", "late", host="b")
    assert wait_until(lambda: "rank 0 waits for it" in status(on_hosts, host="b").stdout)
    known = set(agents_of(hosts, "b"))
    refuses, ssh, said = (launcher.folder / name for name in ("refuses", "ssh", "said"))
    ssh.write_text(f'#!/bin/sh\n[ -e {refuses} ] && exit 255\nexec ssh "$@"\n')
    ssh.chmod(0o755)
    with said.open("w") as file:
        words = ["--status", "-H", "b", "--watch", "0.3", "--stacks", "none", "--rsh-agent", str(ssh)]
        watch = on_hosts.start(*words, stdout=file, stderr=file)

    def shown() -> int:
        return len(re.findall(r"(?m)^rank 1 .*; rank 0 waits for it in ", said.read_text()))

    assert wait_until(lambda: shown() > 0), said.read_text()
    [agent] = set(agents_of(hosts, "b")) - known
    os.kill(agent, signal.SIGKILL)
    assert wait_until(lambda: "lost host b, whose ranks can't be seen any longer: " in said.read_text())
    before = shown()
    assert wait_until(lambda: shown() > before), said.read_text()
    refuses.touch()
    [agent] = set(agents_of(hosts, "b")) - known
    os.kill(agent, signal.SIGKILL)
    assert watch.wait(30) == 4, said.read_text()
    assert "1 of 1 hosts can't be asked, so the verdict is without their ranks" in said.read_text()
    assert job.poll() is None


def test_verdict_of_a_stall(launcher: Launcher, on_hosts: OnHosts) -> None:
    path = launcher.folder / "stderr"
    env = launcher.environment(HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    with path.open("w") as file:
        on_hosts.start("-H", "b:1,c:1", *launcher.python(PROGRAM), "1", "late", stderr=file, env=env)
    said = r"(?m)^horovodrun: rank 1 \(host c\) sleeps: .*; rank 0 waits for it in allreduce\.loss, for "
    assert wait_until(lambda: re.search(said, path.read_text()) is not None), path.read_text()


def test_many_ask_at_once(launcher: Launcher, on_hosts: OnHosts) -> None:
    on_hosts.start("-H", "a:1,b:1", *launcher.python(PROGRAM), "1", "late")
    status_until(on_hosts, r"^rank 1 .*; rank 0 waits for it ")
    said: list[tuple[int, str, str]] = []

    def all_are_answered() -> bool:
        """In time and with stacks; a busy machine needs more than one try."""
        asked = [on_hosts.start("--status") for _ in range(6)]
        end = time.monotonic() + AT_MOST
        said[:] = [(each.wait(DEADLINE), *each.communicate()) for each in asked]
        verdict = r"rank 1 \(host b\) sleeps: .*; rank 0 waits for it in allreduce\.loss, for"
        answered = all(code == 3 and re.match(verdict, out) for code, out, _ in said)
        return answered and time.monotonic() < end

    assert wait_until(all_are_answered), said
