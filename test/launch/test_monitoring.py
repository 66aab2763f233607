"""monitoring/ with its programs: promtool on rules and configuration, and a real Prometheus that finds and
scrapes a job of two hosts, from which every panel of the dashboard has data."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Launcher, OnHosts, free_port, wait_until
from test_metrics import PROGRAM, samples
from test_status_on_hosts import agents_of
from virtual_hosts import VirtualHosts

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "monitoring"
HOSTS = ("a", "b")

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")), reason="install Debian's prometheus"
)

# Stands in for node_exporter, and for the DCGM exporter of a host with a GPU.
EXPORTER = """
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

def node():
    t = time.time() % 1e6
    yield 'node_uname_info{nodename="a"} 1'
    yield f'node_cpu_seconds_total{{cpu="0",mode="idle"}} {t / 2}'
    for way in ("transmit", "receive"):
        yield f'node_network_{way}_bytes_total{{device="eth0"}} {1e6 * t}'

def dcgm():
    for name, value in (("GPU_UTIL", 93), ("FB_USED", 4096)):
        yield f'DCGM_FI_DEV_{name}{{gpu="0",Hostname="a"}} {value}'

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write("\\n".join([*globals()[sys.argv[1]](), ""]).encode())

    def log_message(self, *words):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((MONITORING / "grafana/dashboards/horovod.json").read_text())
    return board


def targets() -> Iterator[tuple[str, str]]:
    """The title of each panel, and what it asks Prometheus for."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


@needs_prometheus
@pytest.mark.parametrize(
    "words",
    [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ],
)
def test_promtool_accepts(words: list[str]) -> None:
    result = subprocess.run(["promtool", *words], cwd=MONITORING, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_dashboard_can_be_imported() -> None:
    """Every panel takes its data from the variable, none is covered by another, and numbers are used once."""
    board = dashboard()
    datasource = {"type": "prometheus", "uid": "${datasource}"}
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers)) and board["uid"] and board["schemaVersion"] >= 36
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells and place["x"] + place["w"] <= 24
        cells |= own
        for target in panel.get("targets", []):
            assert panel["datasource"] == target["datasource"] == datasource


class Prometheus:
    """A Prometheus on host a, with the configuration of monitoring/, but quicker."""

    def __init__(self, on_hosts: OnHosts, folder: Path) -> None:
        self.on_hosts = on_hosts
        self.folder = folder
        self.discovery = folder / "discovery"
        self.discovery.mkdir()
        self.port = free_port()
        script = on_hosts.launcher.script(EXPORTER)
        ports = {what: str(free_port()) for what in ("node", "dcgm")}
        for what, port in ports.items():
            on_hosts.start(script, what, port, program=sys.executable)
        text = (MONITORING / "prometheus.yml").read_text()
        for old, new in {
            "interval: 15s": "interval: 1s",
            "/var/lib/horovod": str(self.discovery),
            "localhost:9100": f"localhost:{ports['node']}",
            "localhost:9400": f"localhost:{ports['dcgm']}",
        }.items():
            assert old in text
            text = text.replace(old, new)
        (folder / "prometheus.yml").write_text(text)
        shutil.copy(MONITORING / "alerts.yml", folder)
        on_hosts.start(
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            program="prometheus",
            stdout=subprocess.DEVNULL,
            stderr=(folder / "prometheus.log").open("w"),
        )

    def ask(self, expression: str) -> str:
        """The answer of Prometheus, one line for each time series; empty while it does not answer."""
        words = ["query", "instant", f"http://127.0.0.1:{self.port}", expression]
        return self.on_hosts.run(*words, program="promtool").stdout.strip()


@needs_prometheus
def test_a_prometheus_finds_a_job_and_every_panel_has_data(launcher: Launcher, on_hosts: OnHosts) -> None:
    prometheus = Prometheus(on_hosts, launcher.folder)
    stop = launcher.folder / "stop"
    words = [
        "--metrics-discovery",
        str(prometheus.discovery),
        "-H",
        "a:2,b:2",
        *launcher.python(PROGRAM),
        str(stop),
    ]
    job = on_hosts.start(*words)
    assert wait_until(lambda: "=> 1 " in prometheus.ask('up{job="horovod"}'))
    instance = next(prometheus.discovery.glob("*.json"))
    [target] = json.loads(instance.read_text())[0]["targets"]
    for title, expression in targets():
        text = expression.replace("$job", target).replace("$__rate_interval", "5s")
        assert wait_until(lambda text=text: "=>" in prometheus.ask(text), 60), (title, text)
    assert "firing" not in prometheus.ask("ALERTS")
    stop.touch()
    assert job.wait(60) == 0
    assert wait_until(lambda: not prometheus.ask('up{job="horovod"}'))


SCRAPE = """
import json, sys, time, urllib.request
begun = time.monotonic()
text = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=10).read().decode()
print(json.dumps([time.monotonic() - begun, text]))
"""


def test_a_host_that_does_not_answer_delays_no_scrape(
    launcher: Launcher, hosts: VirtualHosts, on_hosts: OnHosts
) -> None:
    discovery = launcher.folder / "discovery"
    discovery.mkdir()
    stop = launcher.folder / "stop"
    script = launcher.script(SCRAPE)
    words = ["-H", "a:1,b:2", *launcher.python(PROGRAM), str(stop)]
    job = on_hosts.start("--metrics-discovery", str(discovery), *words)
    assert wait_until(lambda: any(discovery.glob("*.json")))
    port = json.loads(next(discovery.glob("*.json")).read_text())[0]["targets"][0].split(":")[1]

    found: dict[str, float] = {}

    def are_up(*ranks: int) -> bool:
        """A scrape says so, and is quick: a busy machine needs more than one."""
        result = on_hosts.run(script, port, program=sys.executable)
        if result.returncode:  # no rank is there yet
            return False
        seconds, text = json.loads(result.stdout)
        found.clear()
        found.update(samples(text))
        up = [found.get(f'horovod_rank_up{{rank="{rank}"}}', -1) for rank in range(3)]
        return up == [*ranks] and seconds < 2

    assert wait_until(lambda: are_up(1, 1, 1)), found
    [agent] = agents_of(hosts, "b")
    os.kill(agent, signal.SIGSTOP)
    try:
        assert wait_until(lambda: are_up(1, 0, 0)), found
        assert found["horovod_ranks_silent"] == 2
        assert 'horovod_wait_seconds_total{rank="1"}' not in found
    finally:
        os.kill(agent, signal.SIGCONT)
    assert wait_until(lambda: are_up(1, 1, 1)), found
    stop.touch()
    assert job.wait(60) == 0
