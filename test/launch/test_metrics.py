"""Metrics of a running job: what a scraper gets, and what everybody else does not."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from conftest import Launcher, environment_of, wait_until

# Runs until the file of its argument is there.
PROGRAM = """
import os, sys, time
import numpy as np
import horovod as hvd

hvd.init()
value = np.ones(1000, np.float32)
end = time.monotonic() + 100
while time.monotonic() < end:
    for layer in range(3):
        hvd.allreduce(value, name=f"layer.{layer}")
    stop = hvd.allreduce(np.array([os.path.exists(sys.argv[1])], np.int32), name="stop", op=hvd.Sum)
    if stop[0]:
        break
    time.sleep(0.01)
"""
NAMES = {"localhost", "127.0.0.1"}


class Job:
    """A job with these options; it runs until it is stopped."""

    def __init__(self, launcher: Launcher, *options: str, ranks: int = 2) -> None:
        self.launcher = launcher
        self.stop = launcher.folder / "stop"
        self.messages = launcher.folder / "stderr"
        words = launcher.python(PROGRAM)
        with self.messages.open("w") as messages:
            self.process = launcher.start(
                "-np", str(ranks), *options, *words, str(self.stop), stderr=messages, stdout=messages
            )

    def text(self) -> str:
        return self.messages.read_text()

    def port(self) -> int:
        found = re.compile(r"metrics are at http://[^:/]+:(\d+)/metrics")
        assert wait_until(lambda: found.search(self.text()) is not None), self.text()
        match = found.search(self.text())
        assert match
        return int(match[1])

    def end(self) -> None:
        self.stop.touch()
        assert self.process.wait(60) == 0, self.text()


def get(port: int, path: str = "/metrics", address: str = "127.0.0.1", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def samples(text: str) -> dict[str, float]:
    """The values of a text, by name and labels."""
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in rows}


def scrape(port: int) -> dict[str, float]:
    code, text = get(port)
    assert code == 200, text
    return samples(text)


def scrape_until(port: int, name: str, value: float) -> dict[str, float]:
    """Scrapes once a second, which is as often as there is something new."""
    last: dict[str, float] = {}

    def has_it() -> bool:
        last.clear()
        last.update(scrape(port))
        time.sleep(0.5)
        return last.get(name) == value

    assert wait_until(has_it), (name, last)
    return last


def promtool(*words: str, give: str = "") -> None:
    program = shutil.which("promtool")
    if not program:
        pytest.skip("no promtool: install Debian's prometheus")
    result = subprocess.run([program, *words], input=give, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and not result.stderr.strip(), result.stdout + result.stderr


def test_a_scrape(launcher: Launcher) -> None:
    job = Job(launcher, "--metrics-port", "0")
    port = job.port()
    first = scrape_until(port, 'horovod_rank_up{rank="1"}', 1)
    assert first["horovod_ranks"] == 2 and first["horovod_ranks_silent"] == 0
    name = 'horovod_requests_total{rank="1",operation="allreduce"}'
    assert wait_until(lambda: scrape(port).get(name, 0) > 10)
    scrape_until(port, "horovod_stalled_seconds", 0)
    _, text = get(port)
    now = time.time()
    page = (Path(__file__).parents[2] / "docs/watching.md").read_text()
    named = {name for name in re.findall(r"`(horovod_\w+)`", page) if "_elastic_" not in name}
    assert set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) == named
    promtool("check", "metrics", give=text)
    last = samples(text)
    assert abs(last["horovod_last_progress_timestamp_seconds"] - now) < 10
    assert 0 < now - last["horovod_job_start_time_seconds"] < 100
    assert last['horovod_resident_memory_bytes{rank="0"}'] > 1e6
    job.end()


def rank_process(launcher: Launcher, rank: int) -> int:
    for process in launcher.alive():
        if f"HOROVOD_RANK={rank}".encode() in environment_of(process):
            return process
    pytest.fail(f"no rank {rank}")


def test_a_stopped_rank_is_not_up(launcher: Launcher) -> None:
    job = Job(launcher, "--metrics-port", "0")
    port = job.port()
    scrape_until(port, 'horovod_rank_up{rank="1"}', 1)
    process = rank_process(launcher, 1)
    os.kill(process, signal.SIGSTOP)
    seen = scrape_until(port, 'horovod_rank_up{rank="1"}', 0)
    assert seen["horovod_ranks_silent"] == 1 and seen['horovod_rank_up{rank="0"}'] == 1
    os.kill(process, signal.SIGCONT)
    scrape_until(port, "horovod_ranks_silent", 0)
    job.end()


def test_only_a_scraper_with_the_token_gets_metrics_from_the_network(launcher: Launcher) -> None:
    job = Job(launcher, "--metrics-port", "0", "--metrics-address", "0.0.0.0")
    port = job.port()
    token = re.search(r"Bearer ([0-9a-f]{32})$", job.text(), re.MULTILINE)
    assert token
    assert get(port)[0] == 401
    assert get(port, Authorization="Bearer " + "0" * 32)[0] == 401
    assert get(port, Authorization=f"Bearer {token[1]}")[0] == 200
    job.end()


def test_the_token_of_a_file(launcher: Launcher) -> None:
    path = launcher.folder / "token"
    path.write_text("a-token-of-the-user\n")
    path.chmod(0o640)
    job = Job(
        launcher, "--metrics-port", "0", "--metrics-address", "0.0.0.0", "--metrics-token-file", str(path)
    )
    port = job.port()
    assert "a-token" not in job.text()
    assert wait_until(lambda: f"/?token= and the token in {path}\n" in job.text())
    assert get(port, "/?token=a-token-of-the-user")[0] == 200
    assert get(port, Authorization="Bearer a-token-of-the-user")[0] == 200
    assert get(port, Authorization="Bearer another-token-of-the-user")[0] == 401
    job.end()


def answer(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:  # it has closed the connection, maybe before the shutdown
            return b""


def test_requests_without_access_are_refused_and_the_job_runs_on(launcher: Launcher) -> None:
    job = Job(launcher, "--metrics-port", "0")
    port = job.port()
    assert get(port, Host="evil.example")[0] == 403
    assert get(port, "/")[0] == 403
    assert get(port, "/nothing?token=1")[0] == 403
    for garbage in (b"\0" * 100, b"\x16\x03\x01\x02\0", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"x" * 9000):
        assert answer(port, garbage)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 431")
    assert answer(port, b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 405")
    head = answer(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").split(b"\r\n\r\n")[0]
    for line in (b"nosniff", b"no-store", b"default-src 'none'", b"Connection: close"):
        assert line in head
    assert b"Access-Control" not in head
    job.end()


def test_a_thousand_silent_connections_keep_no_scraper_out(launcher: Launcher) -> None:
    job = Job(launcher, "--metrics-port", "0")
    port = job.port()
    scrape_until(port, 'horovod_rank_up{rank="1"}', 1)

    def is_served_at_once() -> bool:
        """Long before the others are dropped, which is after 5 s; a busy machine needs more than one try."""
        silent = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(1000)]
        try:
            begun = time.monotonic()
            scrape(port)
            seconds = time.monotonic() - begun
            for each in silent[-3:]:
                each.settimeout(20)
                assert not each.recv(1)
        finally:
            for each in silent:
                each.close()
        return seconds < 3

    assert wait_until(is_served_at_once, 40)
    job.end()


def test_files_are_there_while_the_job_runs(launcher: Launcher) -> None:
    text, folder = launcher.folder / "horovod.prom", launcher.folder / "discovery"
    folder.mkdir()
    job = Job(launcher, "--metrics-file", str(text), "--metrics-discovery", str(folder))
    port = job.port()
    [announced] = folder.glob("*.json")
    [target] = json.loads(announced.read_text())
    assert target["targets"] == [f"127.0.0.1:{port}"] and target["labels"]["job_name"]
    assert wait_until(lambda: text.exists() and 'horovod_rank_up{rank="1"} 1' in text.read_text())
    job.end()
    assert not text.exists() and not list(folder.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metrics-address", "127.0.0.1"], "--metrics-address needs --metrics-port"),
        (["--metrics-ranks", "4"], "--metrics-ranks needs --metrics-port or --metrics-file"),
        (["--metrics-port", "65536"], "from 0 to 65535"),
        (["--metrics-port", "0", "--metrics-address", "203.0.113.7"], "no address of this host"),
        (
            ["--metrics-port", "0", "--metrics-discovery", "/nowhere"],
            "--metrics-discovery: can't write /nowhere/",
        ),
        (["--metrics-file", "/nowhere/horovod.prom"], "--metrics-file: can't write /nowhere/horovod.prom"),
        (["--metrics-file", "/proc/horovod.prom"], "--metrics-file: can't write /proc/horovod.prom"),
        (
            ["--metrics-port", "0", "--metrics-token-file", "/nowhere"],
            "--metrics-token-file: can't read /nowhere",
        ),
    ],
)
def test_wrong_options(launcher: Launcher, options: list[str], words: str) -> None:
    result = launcher.run("-np", "2", *options, "touch", "ran")
    assert result.returncode in (1, 2) and words in result.stderr
    assert len(result.stderr.splitlines()) <= 2, result.stderr
    assert not (launcher.folder / "ran").exists()


def test_a_port_in_use(launcher: Launcher) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        words = ["--metrics-port", port, "--metrics-file", "horovod.prom"]
        (launcher.folder / "horovod.prom").write_text("of another job")
        result = launcher.run("-np", "2", *words, "touch", "ran")
    assert result.returncode == 1 and f"--metrics-port {port} is in use" in result.stderr
    assert (launcher.folder / "horovod.prom").read_text() == "of another job"
    assert not (launcher.folder / "ran").exists()


def test_a_token_that_everybody_may_read(launcher: Launcher) -> None:
    path = launcher.folder / "token"
    path.write_text("a-token-of-the-user\n")
    path.chmod(0o644)
    result = launcher.run("-np", "1", "--metrics-port", "0", "--metrics-token-file", str(path), "true")
    assert result.returncode == 1 and f"chmod o= {path}" in result.stderr


def test_a_disk_that_fills_does_not_end_the_job(launcher: Launcher) -> None:
    folder = launcher.folder / "metrics"
    folder.mkdir()
    job = Job(launcher, "--metrics-file", str(folder / "horovod.prom"))
    assert wait_until(lambda: (folder / "horovod.prom").exists())
    shutil.rmtree(folder)
    assert wait_until(lambda: "the job continues" in job.text()), job.text()
    job.end()
