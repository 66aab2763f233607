"""horovodrun --report: one HTML file about a job, however that ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from conftest import Launcher, wait_until

PROGRAM = """
import sys, time
import numpy as np
import horovod as hvd

hvd.init()
value = np.ones(1000, np.float32)
for step in range(int(sys.argv[1])):
    time.sleep(0.02)
    if hvd.rank() == 1:
        time.sleep(0.02)
    hvd.allreduce(value, name="<img src=x onerror=alert(1)>")
    if step == 5 and hvd.rank() == 0:
        print("started", flush=True)
if len(sys.argv) > 2 and hvd.rank() == 1:
    raise KeyError("</script><b>label</b>")
hvd.barrier()
"""


@pytest.fixture
def program(launcher: Launcher) -> str:
    (launcher.folder / "train.py").write_text(PROGRAM)
    return "train.py"


def data_of(path: Path) -> dict[str, Any]:
    """What a report shows. Its texts can't end the element in which they are."""
    text = path.read_text()
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert "<" not in data
    return dict(json.loads(data))


def test_a_job_that_ends_well(launcher: Launcher, program: str) -> None:
    result = launcher.run("-np", "2", "--report", "report.html", "python", program, "60")
    assert result.returncode == 0
    assert re.search(r"horovodrun: report: report\.html \([0-9.]+ rank-.*% computing", result.stderr)
    assert sorted(path.name for path in launcher.folder.glob("report*")) == ["report.html"]
    data = data_of(launcher.folder / "report.html")
    status, course, outcome = data["status"], data["course"], data["outcome"]
    assert outcome["exit_code"] == 0 and outcome["failures"] == []
    assert outcome["text"].startswith("the job ended well after ")
    assert status["job"]["name"] == "train" and len(status["ranks"]) == 2
    assert course["steps"] == 60
    assert course["verdicts"] and course["points"]
    cost = course["cost"]
    assert abs(cost["computing"] + cost["waiting"] + cost["moving"] + cost["starting"] - 1) < 0.01
    steps = sum(rate * (at - before) for (at, rate, *_), before in zip(
        course["points"], [0, *(point[0] for point in course["points"])], strict=False))  # fmt: skip
    assert 30 < steps <= 63


def test_a_job_on_two_hosts(launcher: Launcher, program: str) -> None:
    words = [*launcher.agents(), "-H", "a:1,b:1", "--report", "report.html"]
    result = launcher.run(*words, sys.executable, program, "60")
    assert result.returncode == 0, result.stderr
    data = data_of(launcher.folder / "report.html")
    assert [host["name"] for host in data["status"]["hosts"]] == ["a", "b"]
    assert [rank["host"] for rank in data["status"]["ranks"]] == ["a", "b"]
    assert [rank["host"] for rank in data["course"]["late"]] == ["a", "b"]
    assert 10 < data["course"]["steps"] <= 60  # the last ones of other hosts are not seen


def test_a_job_that_fails(launcher: Launcher, program: str) -> None:
    result = launcher.run("-np", "2", "--report", "report.html", "python", program, "10", "fail")
    assert result.returncode == 1
    outcome = data_of(launcher.folder / "report.html")["outcome"]
    assert outcome["exit_code"] == 1 and outcome["interrupted"] is False
    assert "the first to fail was rank 1" in outcome["text"]
    first = outcome["failures"][0]
    assert first["rank"] == 1 and "raised KeyError: '</script><b>label</b>'" in first["text"]
    assert first["lines"][-1] == "KeyError: '</script><b>label</b>'"


@pytest.mark.parametrize("signals", [1, 2])
def test_a_job_that_is_interrupted(launcher: Launcher, program: str, signals: int) -> None:
    """By Ctrl-C, once or twice."""
    words = (
        ["bash", "-c", f"trap '' INT TERM; python {program} 100000"]
        if signals > 1
        else ["python", program, "100000"]
    )
    job = launcher.start("-np", "2", "--report", "report.html", *words)
    assert job.stdout and "started" in job.stdout.readline()
    job.send_signal(signal.SIGINT)
    if signals > 1:
        assert job.stderr and "got SIGINT" in job.stderr.readline()
        assert not wait_until(lambda: job.poll() is not None, seconds=0.5)
        job.send_signal(signal.SIGINT)
    assert job.wait(60) == 130
    outcome = data_of(launcher.folder / "report.html")["outcome"]
    assert outcome["exit_code"] == 130 and outcome["interrupted"] is True
    assert re.match("SIGINT ended the job after [0-9]+ s$", outcome["text"])


HANGS = """
import time
import numpy as np
import horovod as hvd

def load():
    time.sleep(1000)

hvd.init()
if hvd.rank() == 1:
    load()
hvd.allreduce(np.ones(3), name="loss")
"""


def test_a_job_that_hangs_is_explained(launcher: Launcher) -> None:
    """Its report has the stack of the late rank, which was taken while it hung."""
    words = launcher.python(HANGS)
    job = launcher.start("-np", "2", "--metrics-port", "0", "--report", "report.html", *words)
    assert job.stderr
    link = next(found[1] for line in job.stderr if (found := re.search(r"live page: (\S+)", line)))
    with urllib.request.urlopen(link, timeout=30) as answer:
        cookie = answer.headers["Set-Cookie"].split(";")[0]
    request = urllib.request.Request(link.split("?")[0] + "status.json", headers={"Cookie": cookie})

    def has_stack() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                ranks = json.load(answer)["ranks"]
        except urllib.error.HTTPError:
            return False
        return any(
            frame["function"] == "load" for rank in ranks for frame in (rank["stack"] or {}).get("python", [])
        )

    assert wait_until(has_stack)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=60)
    status = data_of(launcher.folder / "report.html")["status"]
    assert status["ranks"][1]["stack"]["python"][0]["function"] == "load"
    assert status["verdict"]["exit"] == 3


def test_a_command_that_does_not_exist(launcher: Launcher) -> None:
    assert launcher.run("-np", "2", "--report", "report.html", "no-such-command").returncode == 127
    data = data_of(launcher.folder / "report.html")
    assert data["outcome"]["exit_code"] == 127


def test_a_report_holds_no_environment_and_no_secret(launcher: Launcher, program: str) -> None:
    environment = launcher.environment(SOME_VARIABLE="some-private-value")
    launcher.run("-np", "2", "--report", "report.html", "python", program, "3", env=environment)
    text = (launcher.folder / "report.html").read_text()
    assert "some-private-value" not in text and "SOME_VARIABLE" not in text and "HOROVOD_SECRET" not in text


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("none/report.html", "can't write none/report.html.new: No such file or directory"),
        (".", "it exists and is no file"),
        ("/dev/null", "it exists and is no file"),
        ("x" * 254, "File name too long"),
    ],
)
def test_a_path_that_can_not_be_written_is_reported_first(
    launcher: Launcher, program: str, path: str, error: str
) -> None:
    result = launcher.run("-np", "2", "--report", path, "python", program, "3")
    assert result.returncode == 1
    assert error in result.stderr and "started" not in result.stdout


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_lies_beside_a_report_is_not_written(launcher: Launcher, kind: str) -> None:
    """Others may put something there, if the folder is theirs as well."""
    victim, beside = launcher.folder / "victim", launcher.folder / "report.html.new"
    victim.write_text("kept")
    if kind == "link":
        beside.symlink_to(victim)
    else:
        os.mkfifo(beside)
    result = launcher.run("-np", "1", "--report", "report.html", "true")
    assert result.returncode == 0 and data_of(launcher.folder / "report.html")
    assert victim.read_text() == "kept" and not os.path.lexists(beside)


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of 1 MiB, in a namespace of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("there are no namespaces")
    return folder


def test_a_full_disk_loses_neither_the_job_nor_the_last_report(
    launcher: Launcher, program: str, small_disk: Path
) -> None:
    """It is full at the start, and says so; or it fills up while the job runs."""
    script = """
    mount -t tmpfs -o size=1m none "$1"; cd "$1"; cp "$2" train.py; echo old >report.html
    head -c 2m /dev/zero >fill 2>/dev/null
    "$3" -np 2 --report report.html python train.py 3; echo "first $?"
    rm fill
    fill='head -c 2m /dev/zero >"fill.$HOROVOD_RANK" 2>/dev/null; exit 0'
    "$3" -np 2 --report report.html sh -c "$fill"; echo "second $?"
    cat report.html
    """
    words = [
        "-m",
        "bash",
        "-c",
        script,
        "bash",
        str(small_disk),
        str(launcher.folder / program),
        launcher.program,
    ]
    result = launcher.run(*words, program="unshare")
    assert "first 1\nsecond 0\nold\n" in result.stdout
    assert result.stderr.count("No space left on device") == 2
    assert "there is no report" in result.stderr
    assert os.listdir(small_disk) == []
