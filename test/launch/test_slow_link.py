"""A link at a tenth of the rate of the others: horovodrun --status names it, and blames no rank."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from conftest import OnHosts, wait_until
from virtual_hosts import VirtualHosts

pytestmark = pytest.mark.usefixtures("nothing_left")
HOSTS = ("a", "b", "c")


def prepare_hosts(hosts: VirtualHosts) -> None:
    hosts.control("cubic")
    hosts.limit("400mbit")
    hosts.run("c", "tc qdisc replace dev eth0 root tbf rate 40mbit burst 128k latency 100ms")


PROGRAM = """
import time
import numpy as np
import horovod as hvd

hvd.init()
gradient = np.ones(1 << 18, np.float32)
while True:
    time.sleep(0.01)
    hvd.allreduce(gradient, name="grad")
"""


def test_slow_link(on_hosts: OnHosts) -> None:
    on_hosts.start("-H", "a:1,b:1,c:1", *on_hosts.launcher.python(PROGRAM))
    last: dict[str, Any] = {}

    def names_the_network() -> bool:
        result = on_hosts.run("--status", "--json", seconds=30)
        last.update(json.loads(result.stdout) if result.stdout else {})
        if not last or not last["verdict"]["text"].startswith("the network "):
            return False
        return all(rank["late_share"] < 0.1 for rank in last["ranks"])

    assert wait_until(names_the_network), last
    text = last["verdict"]["text"]
    assert re.match(
        r"the network from host c to host a is the limit: [\d.]+ MB/s while it is busy, \d+ % ", text
    )
    assert last["verdict"]["exit"] == 3
    link = next(link for link in last["links"] if (link["from"], link["to"]) == ("c", "a"))
    assert link["bytes_per_busy_second"] < 8e6  # the others have 50e6
    assert link["busy"] > max(each["busy"] for each in last["links"] if each["from"] != "c")
    on_hosts.launcher.end()
