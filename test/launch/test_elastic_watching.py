"""What --status, --metrics-port, --report and --timeline show of a job whose hosts and ranks come and go."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import pytest
from conftest import DEADLINE, Launcher, environment_of
from elastic_job import ENDLESS, Job
from test_metrics import scrape_until
from test_report import data_of
from virtual_hosts import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")


class Discovery:
    """A script that prints hosts."""

    def __init__(self, launcher: Launcher, text: str) -> None:
        self.path = launcher.folder / "hosts"
        self.write(text)

    def write(self, text: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)  # the script never reads half of it

    def options(self) -> list[str]:
        return ["--host-discovery-script", f"cat {self.path}"]


def port_of(job: Job) -> int:
    job.wait_for("metrics are at http")
    found = re.search(r"metrics are at http://[^:/]+:(\d+)/", job.out.read_text() + job.err.read_text())
    assert found
    return int(found[1])


def hosts_of(rows: dict[str, float], family: str) -> set[str]:
    return {name for row in rows if row.startswith(family) for name in re.findall(r'host="(\w+)"', row)}


def totals_of(rows: dict[str, float]) -> dict[str, float]:
    """The counters of the whole job, which never fall."""
    counters = re.compile(r"horovod_(\w+_total|negotiation_seconds_(sum|count|bucket))(\{(cause|le)=.*)?$")
    return {name: value for name, value in rows.items() if counters.match(name)}


def status_of(launcher: Launcher, job: Job) -> tuple[int, dict[str, Any]]:
    found = re.search(r"job ([0-9a-f]{32}): ", job.err.read_text())
    assert found
    shown = launcher.run("--status", found[1], "--json")
    data = json.loads(shown.stdout)
    return shown.returncode, data["jobs"][0] if "jobs" in data else data


def test_hosts_come_and_go(launcher: Launcher) -> None:
    """One is added, it is lost with its ranks, and another one is added and removed."""
    hosts = Discovery(launcher, "a:2\n")
    words = [
        *launcher.agents(),
        "--metrics-port",
        "0",
        "--report",
        "report.html",
        "--timeline-filename",
        "trace.json",
    ]
    counts = ["-np", "2", "--min-np", "1", "--max-np", "4", "--verbose"]
    job = Job(launcher, *counts, *words, *hosts.options(), steps=ENDLESS)
    job.wait_for("step 20 with")
    port = port_of(job)
    seen: list[dict[str, float]] = []

    def look(epoch: int, size: int, names: str) -> None:
        """The view of the epoch has these ranks and hosts alone, and no counter has fallen."""
        rows: dict[str, float] = {}

        def all_are_up() -> bool:
            rows.clear()
            rows.update(scrape_until(port, "horovod_epoch", epoch))
            up = [rows.get(f'horovod_rank_up{{rank="{rank}"}}') for rank in range(size)]
            return up == [1] * size and rows["horovod_ranks"] == size and rows["horovod_ranks_silent"] == 0

        assert wait_until(all_are_up, DEADLINE), rows
        for family in ("horovod_rank_info", "horovod_link_sent"):
            assert hosts_of(rows, family) in (set(names), set() if family != "horovod_rank_info" else None)
        assert sum(row.startswith("horovod_rank_up") for row in rows) == size
        fallen = {name for each in seen for name, value in each.items() if rows[name] < value}
        assert not fallen
        seen.append(totals_of(rows))
        last: list[tuple[int, dict[str, Any]]] = []

        def is_healthy() -> bool:
            last[:] = [status_of(launcher, job)]
            return last[0][0] == 0

        assert wait_until(is_healthy, DEADLINE), last
        _, status = last[0]
        assert [host["name"] for host in status["hosts"]] == [*names]
        assert [rank["rank"] for rank in status["ranks"]] == [*range(size)]

    look(0, 2, "a")
    hosts.write("a:2\nb:2\n")
    look(1, 4, "ab")
    agents = [pid for pid in launcher.named("horovodrun") if b"HOROVOD_HOST_ID=b" in environment_of(pid)]
    os.kill(agents[-1], signal.SIGKILL)
    look(2, 2, "a")
    hosts.write("a:2\nc:1\n")
    look(3, 3, "ac")
    hosts.write("a:2\n")
    look(4, 2, "a")
    text = job.interrupt()
    assert "lost host b with processes 2, 3" in text
    data = data_of(launcher.folder / "report.html")
    outcome, course = data["outcome"], data["course"]
    assert outcome["elastic"]["resets"] == {"lost": 1, "removed": 1, "added": 2, "mixed": 0}
    assert (outcome["elastic"]["ranks_lost"], outcome["elastic"]["ranks_added"]) == (3, 3)
    assert "its ranks changed 4 times (3 lost or removed, 3 added)" in outcome["text"]
    assert [host["name"] for host in data["status"]["hosts"]] == ["a"]
    late = sorted((each["host"], each["rank"], each["left"]) for each in course["late"])
    assert late == [("a", 0, False), ("a", 1, False), ("b", 2, True), ("b", 3, True), ("c", 2, True)]
    assert course["cost"]["rank_seconds"] <= 4 * outcome["seconds"]
    assert not [each for each in course["verdicts"] if each["exit"] == 4], course["verdicts"]
    events = json.loads((launcher.folder / "trace.json").read_text())
    times = [each["ts"] for each in events if "ts" in each]
    assert max(times) - min(times) > 0.5e6 * outcome["seconds"]  # one file over all epochs


def test_status_says_that_the_job_waits_for_processes(launcher: Launcher) -> None:
    hosts = Discovery(launcher, "localhost:2\n")
    job = Job(launcher, "-np", "2", "--min-np", "2", "--verbose", *hosts.options(), steps=ENDLESS)
    job.wait_for("step 20 with")
    hosts.write("localhost:1\n")  # where no process can take the place of a lost one
    os.kill(job.ranks()[1], signal.SIGKILL)
    words = "rank 1 is gone, and rank 0 waits for other processes: the job needs 2 ranks"

    def waits() -> bool:
        code, status = status_of(launcher, job)
        return code == 3 and words in status["verdict"]["text"]

    assert wait_until(waits, DEADLINE)
    hosts.write("localhost:2\n")
    job.wait_for("epoch 1 has begun with 2 ranks")
    assert wait_until(lambda: status_of(launcher, job)[0] == 0, DEADLINE)
    job.interrupt()
