"""The live page of a job: what its link shows, and to whom."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from conftest import Launcher, wait_until

PROGRAM = """
import sys, time
import numpy as np
import horovod as hvd

hvd.init()
print("ready", flush=True)
for step in range(100000):
    time.sleep(0.01)
    hvd.allreduce(np.ones(10, np.float32), name="<img src=x onerror=alert(1)>")
"""


def get(url: str, cookie: str = "") -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(url, headers={"Cookie": cookie} if cookie else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, {}, ""


@pytest.fixture
def link(launcher: Launcher) -> Iterator[str]:
    """The link that a job prints, once its ranks run."""
    environment = launcher.environment(USER="somebody")
    job = launcher.start("-np", "2", "--metrics-port", "0", *launcher.python(PROGRAM), env=environment)
    assert job.stderr and job.stdout
    lines = [job.stderr.readline() for _ in range(3)]
    found = re.search(r"live page: (http://127\.0\.0\.1:([0-9]+)/\?token=[0-9a-f]{32})\n", "".join(lines))
    assert found, lines
    port = found[2]
    assert re.search(rf"run there: ssh -N -L {port}:127\.0\.0\.1:{port} somebody@.", "".join(lines)), lines
    assert "ready" in job.stdout.readline() and "ready" in job.stdout.readline()
    yield found[1]
    job.terminate()
    job.communicate(timeout=60)


def test_the_link_shows_the_page_and_what_it_asks_for(link: str) -> None:
    code, headers, page = get(link)
    assert code == 200
    policy = headers["Content-Security-Policy"]
    for element in ("style", "script"):
        [text] = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy
    cookie = headers["Set-Cookie"].split(";")[0]
    base = link.split("?")[0]
    assert get(base, cookie)[2] == page
    status = json.loads(get(base + "status.json", cookie)[2])
    assert [rank["rank"] for rank in status["ranks"]] == [0, 1]

    def are_of_one_look() -> bool:
        """A look is good for a second, within which two questions are asked sooner or later."""
        one, other = (get(base + "status.json", cookie)[2] for _ in range(2))
        return one == other

    assert wait_until(are_of_one_look)
    course = json.loads(get(base + "course.json", cookie)[2])
    assert set(course) >= {"points", "verdicts", "late", "cost"}


@pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")
def test_looks_stop_without_requests(launcher: Launcher, link: str) -> None:
    """They start again with a request for metrics or by --status, before which the curve has a gap."""
    base = link.split("?")[0]
    cookie = get(link)[1]["Set-Cookie"].split(";")[0]
    requests: list[Callable[[], object]] = [lambda: get(base + "metrics"), lambda: launcher.run("--status")]
    for count, request in enumerate(requests, 1):
        time.sleep(100)  # a minute with looks, then more without any than count as a gap
        request()
        time.sleep(3)  # for the look; a request for the course starts one, but has only what was known
        points = json.loads(get(base + "course.json", cookie)[2])["points"]
        assert len([point for point in points if len(point) > 5]) == count


def test_without_the_token_nothing_is_shown(link: str) -> None:
    base = link.split("?")[0]
    for path in ("", "status.json", "course.json", "none"):
        assert get(base + path)[0] == 403
    assert get(base + "?token=" + 32 * "0")[0] == 403
    assert get(base + "status.json", "horovod_00000000=" + 32 * "0")[0] == 403
