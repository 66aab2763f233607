"""The live page of a job that runs, and its report, in the browser."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from chromium import Browser, Page

PROGRAM = """
import time
import numpy as np
import horovod as hvd

hvd.init()
print("ready", flush=True)
for step in range(100000):
    time.sleep(0.02 if hvd.rank() == 0 else 0.05)
    hvd.allreduce(np.ones(1000, np.float32), name="<img src=x onerror=alert(1)>")
"""


def test_a_job_from_its_link_to_its_report(browser: Browser, tmp_path: Path) -> None:
    program = shutil.which("horovodrun")
    if program is None:
        pytest.skip("horovodrun is not installed")
    (tmp_path / "train.py").write_text(PROGRAM)
    words = [
        program,
        "-np",
        "2",
        "--metrics-port",
        "0",
        "--report",
        "report.html",
        sys.executable,
        "train.py",
    ]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stderr and job.stdout
        try:
            lines = "".join(job.stderr.readline() for _ in range(2))
            found = re.search(r"live page: (\S+)", lines)
            assert found, lines
            assert "ready" in job.stdout.readline()
            page = Page(browser, 1440, 900)
            page.open(found[1])
            page.wait("document.querySelectorAll('#ranks tbody tr').length > 0")
            page.wait("document.querySelector('#rate path.rate') !== null")
            assert page.evaluate("location.href") == found[1].split("?")[0]  # the token is not left in sight
            assert "train" in page.evaluate("document.querySelector('h1').innerText")
            assert page.problems() == []
        finally:
            job.terminate()
            job.communicate(timeout=60)
    page.wait("document.body.className === 'lost'")
    page.open((tmp_path / "report.html").as_uri())
    assert page.evaluate("document.querySelector('#verdict').className") == "ended"  # it has not failed
    assert "SIGTERM ended the job" in page.evaluate("document.querySelector('#verdict').innerText")
    assert page.evaluate("document.querySelectorAll('img').length") == 0
