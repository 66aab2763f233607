"""horovodrun --monitor beside jobs that mpirun or torchrun has started: metrics, discovery, page and report
until the job ends, and what it says where it can't."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from conftest import Launcher, OnHosts, wait_until
from starter import OPEN_MPI, Starter
from test_metrics import PROGRAM, samples
from test_monitoring import SCRAPE, Prometheus, needs_prometheus
from test_status_on_hosts import agents_of
from virtual_hosts import VirtualHosts

HOSTS = ("a", "b")


class Mpirun:
    """A job of three ranks on two hosts, by Open MPI; it runs until it is stopped."""

    def __init__(self, starter: Starter, on_hosts: OnHosts) -> None:
        self.stop = starter.folder / "stop"
        where = ["-H", "a:2,b:1", "--map-by", "node", "-x", "HOME", "-x", "PATH", "-np", "3"]
        program = [*starter.launcher.python(PROGRAM), str(self.stop)]
        self.process = starter.start(on_hosts.hosts.enter("a", starter.folder), *OPEN_MPI, *where, *program)
        self.on_hosts = on_hosts
        assert wait_until(self.runs), self.process.poll()

    def runs(self) -> bool:
        result = self.on_hosts.run("--status", "--stacks", "none", "-H", "a,b")
        return " 3 ranks on 2 hosts " in result.stdout and "step" in result.stdout

    def end(self) -> None:
        self.stop.touch()
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors


def ups(found: dict[str, float]) -> list[float]:
    return [found.get(f'horovod_rank_up{{rank="{rank}"}}', -1) for rank in range(3)]


class Monitor:
    """horovodrun --monitor on host a, which listens at any port and announces it in a folder."""

    def __init__(self, on_hosts: OnHosts, *words: str, discovery: Path | None = None) -> None:
        self.on_hosts = on_hosts
        self.folder = discovery or on_hosts.launcher.folder / "discovery"
        self.folder.mkdir(exist_ok=True)
        self.messages = on_hosts.launcher.folder / "monitor"
        with self.messages.open("w") as messages:
            self.process = on_hosts.start(
                "--monitor", *words, "--metrics-discovery", str(self.folder), stderr=messages
            )
        assert wait_until(lambda: self.process.poll() is not None or self.is_announced()), self.text()
        assert self.process.poll() is None, self.text()

    def text(self) -> str:
        return self.messages.read_text()

    def is_announced(self) -> bool:
        return any(self.folder.glob("*.json"))

    def announced(self) -> dict[str, Any]:
        [found] = json.loads(next(self.folder.glob("*.json")).read_text())
        return dict(found)

    def scrape(self) -> dict[str, float]:
        port = self.announced()["targets"][0].split(":")[1]
        result = self.on_hosts.run(self.on_hosts.launcher.script(SCRAPE), port, program=sys.executable)
        return samples(json.loads(result.stdout)[1]) if result.returncode == 0 else {}

    def up(self) -> list[float]:
        return ups(self.scrape())

    def scrape_until(self, up: list[float]) -> dict[str, float]:
        """The scrape in which these ranks are up."""
        last: dict[str, float] = {}

        def are_up() -> bool:
            last.clear()
            last.update(self.scrape())
            return ups(last) == up

        assert wait_until(are_up), (last, self.text())
        return last


def data_in(report: Path) -> dict[str, Any]:
    data = r'<script type="application/json" id="data">(.*?)</script>'
    [text] = re.findall(data, report.read_text(), re.DOTALL)
    return dict(json.loads(text))


def test_metrics_page_and_report(starter: Starter, on_hosts: OnHosts) -> None:
    job = Mpirun(starter, on_hosts)
    report = starter.folder / "report.html"
    monitor = Monitor(on_hosts, "-H", "a,b", "--report", str(report))
    first = monitor.scrape_until([1, 1, 1])
    name = 'horovod_requests_total{rank="2",operation="allreduce"}'
    assert wait_until(lambda: monitor.scrape().get(name, 0) > first[name]), "it counts"
    assert first["horovod_ranks"] == 3 and first["horovod_ranks_silent"] == 0
    [job_info] = [labels for labels in first if labels.startswith("horovod_job_info{")]
    assert monitor.announced()["labels"]["job_name"] in job_info
    assert re.search(
        r"^horovodrun: job \S+: 3 of its 3 ranks are seen, on 2 hosts$", monitor.text(), re.MULTILINE
    )
    assert "live page: http://127.0.0.1:" in monitor.text()
    job.end()
    assert monitor.process.wait(60) == 0, monitor.text()
    assert re.search(r"^horovodrun: job \S+ has ended$", monitor.text(), re.MULTILINE)
    assert not list(monitor.folder.iterdir()), "the file is removed"
    found = data_in(report)
    assert "it does not know how it ended" in found["outcome"]["text"]
    assert [late["rank"] for late in found["course"]["late"]] == [0, 1, 2]
    assert found["course"]["steps"] > 10 and found["course"]["cost"]["rank_seconds"] > 1


@needs_prometheus
def test_a_prometheus_scrapes_it(starter: Starter, on_hosts: OnHosts) -> None:
    job = Mpirun(starter, on_hosts)
    prometheus = Prometheus(on_hosts, starter.folder)
    monitor = Monitor(on_hosts, "-H", "a,b", discovery=prometheus.discovery)
    assert wait_until(lambda: "=> 1 " in prometheus.ask('up{job="horovod"}')), monitor.text()
    assert wait_until(lambda: "=>" in prometheus.ask('rate(horovod_requests_total{rank="2"}[5s]) > 0'))
    job.end()
    assert monitor.process.wait(60) == 0, monitor.text()
    assert wait_until(lambda: not prometheus.ask('up{job="horovod"}'))


def test_a_host_that_does_not_answer(starter: Starter, on_hosts: OnHosts, hosts: VirtualHosts) -> None:
    """Its ranks stay known. That the others have ended is no end of the job that one could rely on."""
    job = Mpirun(starter, on_hosts)
    monitor = Monitor(on_hosts, "-H", "a,b")
    assert wait_until(lambda: monitor.up() == [1, 1, 1]), monitor.text()
    [agent] = agents_of(hosts, "b")
    os.kill(agent, signal.SIGSTOP)
    try:
        assert monitor.scrape_until([1, 0, 1])["horovod_ranks_silent"] == 1
    finally:
        os.kill(agent, signal.SIGCONT)
    assert wait_until(lambda: monitor.up() == [1, 1, 1]), monitor.text()
    os.kill(agent, signal.SIGKILL)
    assert wait_until(lambda: monitor.up() == [1, 0, 1]), monitor.scrape()
    assert "horovodrun: lost host b, whose ranks can't be seen any longer: " in monitor.text()
    job.end()
    assert monitor.process.wait(60) == 1, monitor.text()
    assert UNASKED in monitor.text()
    assert len(list(monitor.folder.iterdir())) == 1, "the file stays: no scrape succeeds any longer"


UNASKED = ": its ranks on the hosts that can be asked have ended; host b can't be asked"


def test_all_ranks_are_on_a_host_that_is_lost(
    starter: Starter, on_hosts: OnHosts, hosts: VirtualHosts
) -> None:
    stop = starter.folder / "stop"
    where = ["-H", "b:2", "-x", "HOME", "-x", "PATH", "-np", "2"]
    program = [*starter.launcher.python(PROGRAM), str(stop)]
    job = starter.start(on_hosts.hosts.enter("a", starter.folder), *OPEN_MPI, *where, *program)
    assert wait_until(lambda: "step" in on_hosts.run("--status", "--stacks", "none", "-H", "a,b").stdout)
    report, metrics = starter.folder / "report.html", starter.folder / "metrics"
    monitor = Monitor(on_hosts, "-H", "a,b", "--report", str(report), "--metrics-file", str(metrics))
    assert wait_until(lambda: monitor.up()[:2] == [1, 1]), monitor.text()
    [agent] = agents_of(hosts, "b")
    os.kill(agent, signal.SIGKILL)
    assert monitor.process.wait(60) == 1, monitor.text()
    assert job.poll() is None, "the job runs"
    assert UNASKED in monitor.text() and not re.search(r"job \S+ has ended", monitor.text())
    outcome = data_in(report)["outcome"]
    assert UNASKED in outcome["text"] and outcome["exit_code"] == 1 and not outcome["interrupted"]
    assert 'horovod_rank_up{rank="1"} 0' in metrics.read_text()
    assert len(list(monitor.folder.iterdir())) == 1
    stop.touch()
    job.communicate(timeout=60)


def end_by_ctrl_c(launcher: Launcher) -> None:
    for process in launcher.named("horovodrun"):  # an agent is another one
        if b"--monitor" in Path(f"/proc/{process}/cmdline").read_bytes():
            os.kill(process, signal.SIGINT)


def test_interrupted(starter: Starter, on_hosts: OnHosts) -> None:
    """The job goes on, and the report is there."""
    job = Mpirun(starter, on_hosts)
    report = starter.folder / "report.html"
    monitor = Monitor(on_hosts, "-H", "a,b", "--report", str(report))
    end_by_ctrl_c(starter.launcher)
    assert monitor.process.wait(30) == 130, monitor.text()
    assert not list(monitor.folder.iterdir()), "the file is removed"
    outcome = data_in(report)["outcome"]
    assert "while the job ran" in outcome["text"] and outcome["interrupted"], "nothing is wrong with the job"
    assert job.process.poll() is None
    job.end()


def test_interrupted_while_hosts_are_called(launcher: Launcher, on_hosts: OnHosts) -> None:
    """A host that swallows what is sent to it may take 15 seconds."""
    called, ssh = launcher.folder / "called", launcher.folder / "ssh"
    ssh.write_text(f"#!/bin/sh\ntouch {called}\nexec sleep 60\n")
    ssh.chmod(0o755)
    monitor = on_hosts.start("--monitor", "-H", "b", "--metrics-port", "0", "--rsh-agent", str(ssh))
    assert wait_until(called.exists)
    end_by_ctrl_c(launcher)
    _, errors = monitor.communicate(timeout=60)
    assert (monitor.returncode, errors) == (130, "")


def run(on_hosts: OnHosts, *words: str) -> subprocess.CompletedProcess[str]:
    return on_hosts.run("--monitor", *words, seconds=30)


def test_where_it_can_not(starter: Starter, on_hosts: OnHosts) -> None:
    result = run(on_hosts)
    assert result.returncode == 2 and "--monitor needs --metrics-port, --metrics-discovery, " in result.stderr
    result = run(on_hosts, "--metrics-port", "0")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "horovodrun: no job of this user runs on this host; -H a,b looks at others\n"
    result = run(on_hosts, "abc", "--metrics-port", "0", "-H", "a,b")
    assert (result.returncode, result.stderr) == (
        1,
        "horovodrun: no job abc of this user runs on these hosts\n",
    )
    result = run(on_hosts, "--metrics-port", "0", "-H", "a,nowhere")
    assert result.returncode == 1
    assert "host nowhere: its name is unknown" in result.stderr and "leave out those" in result.stderr
    stop = starter.folder / "stop"
    jobs = [
        on_hosts.start("-np", "2", *starter.launcher.python(PROGRAM), str(stop), stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert wait_until(lambda: len(on_hosts.run("--status", "--json").stdout.splitlines()) == 2)
    several = r"horovodrun: there are 2 jobs: (\w+), \w+; name one, as in horovodrun --monitor \1\n"
    result = run(on_hosts, "--metrics-port", "0")
    found = re.fullmatch(several, result.stderr)
    assert result.returncode == 2 and found, result.stderr
    taken = subprocess.Popen(
        [*on_hosts.hosts.enter("a"), sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True
    )
    assert taken.stdout
    port = taken.stdout.readline().strip()
    result = run(on_hosts, found[1][:12], "--metrics-port", port)
    taken.kill()
    assert result.returncode == 1 and f"--metrics-port {port} is in use" in result.stderr, result.stderr
    stop.touch()
    assert [job.wait(60) for job in jobs] == [0, 0]


LISTEN = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
time.sleep(60)
"""


def test_torchrun_on_this_host(starter: Starter, on_hosts: OnHosts) -> None:
    words = ["torchrun", "--no-python", "--standalone", "--nproc-per-node"]
    stop = starter.folder / "stop"
    program = [*starter.launcher.python(PROGRAM), str(stop)]
    job = starter.start(on_hosts.hosts.enter("b", starter.folder), *words, "3", *program)
    file = starter.folder / "metrics"

    def starts() -> bool:
        monitor.append(on_hosts.start("--monitor", "--metrics-file", str(file), host="b"))
        return (
            wait_until(lambda: monitor[-1].poll() is not None or file.exists()) and monitor[-1].poll() is None
        )

    monitor: list[subprocess.Popen[str]] = []
    assert wait_until(starts)
    assert wait_until(lambda: file.exists() and 'horovod_rank_up{rank="2"} 1' in file.read_text())
    stop.touch()
    job.communicate(timeout=60)
    _, errors = monitor[-1].communicate(timeout=60)
    assert monitor[-1].returncode == 0 and not file.exists(), errors
