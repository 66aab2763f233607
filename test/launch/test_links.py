"""Hosts that reach each other by two networks: long messages take both, and a network may be down."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import virtual_hosts
from conftest import Launcher, OnHosts, wait_until
from virtual_hosts import VirtualHosts

pytestmark = pytest.mark.usefixtures("nothing_left")
HOSTS = ("a", "b")


def prepare_hosts(hosts: VirtualHosts) -> None:
    hosts.add_link(virtual_hosts.SECOND)


SUM = """
import numpy as np, pathlib, socket
import horovod as hvd

def sent(device):
    line = pathlib.Path("/proc/net/dev").read_text().split(device + ":")[1]
    return int(line.split()[8])

hvd.init()
mine = np.arange(1 << 22, dtype=np.int32)
before = [sent(device) for device in ("eth0", "eth1")]
for i in range(12):
    total = hvd.allreduce(mine * (hvd.rank() + i), op=hvd.Sum, name=f"x{i}")
    assert (total == mine * (2 * i + 1)).all()
after = [sent(device) for device in ("eth0", "eth1")]
hvd.shutdown()
print(socket.gethostname(), *(b - a >> 20 for a, b in zip(before, after)))
"""


def sent(on_hosts: OnHosts, *words: str) -> list[tuple[int, int]]:
    """MiB that each host has sent by its first and its second interface."""
    result = on_hosts.run(*words, "-H", "a:1,b:1", *on_hosts.launcher.python(SUM))
    assert result.returncode == 0, result.stderr
    lines = sorted(line.split()[-3:] for line in result.stdout.splitlines())
    assert [line[0].split(">")[-1] for line in lines] == ["a", "b"], result.stdout
    return [(int(one), int(two)) for _, one, two in lines]


@pytest.mark.parametrize("flags", [[], ["--encryption"]])
def test_both_carry_a_message(on_hosts: OnHosts, flags: list[str]) -> None:
    """Each carries a good part of the 192 MiB; it is not known which network is faster."""
    for one, two in sent(on_hosts, *flags):
        assert 190 <= one + two <= 230
        assert one >= 40
        assert two >= 40


@pytest.mark.parametrize("flags", [["--sockets-per-peer", "1"], ["--network-interface", "eth0"]])
def test_one_may_be_left_out(on_hosts: OnHosts, flags: list[str]) -> None:
    for one, two in sent(on_hosts, *flags):
        assert (one >= 190, two) == (True, 0)


DOWN = ["ip", "link", "set", "eth1", "down"]
# With a carrier, but packets do not arrive.
DEAF = ["ip", "neighbour", "replace", "10.84.0.2", "lladdr", "02:00:00:00:00:99", "dev", "eth1"]
BACK = ["ip", "neighbour", "del", "10.84.0.2", "dev", "eth1"]


@pytest.mark.parametrize(
    ("host", "fault", "repair"), [("b", DOWN, [*DOWN[:-1], "up"]), ("a", DEAF, BACK)], ids=["down", "deaf"]
)
def test_one_is_down(
    hosts: VirtualHosts, on_hosts: OnHosts, host: str, fault: list[str], repair: list[str]
) -> None:
    assert hosts.inside(host, *fault) == 0
    try:
        for one, two in sent(on_hosts):
            assert (one >= 190, two) == (True, 0)
    finally:
        assert hosts.inside(host, *repair) == 0


ENDLESS = str(Path(__file__).with_name("endless_worker.py"))
BROKEN = (
    r"the network path from rank (\d) \(host ([ab])\) to rank (\d) \(pid \d+, host ([ab])\), "
    r"10\.84\.0\.(\d) to 10\.84\.0\.(\d):\d+, is broken: nothing was acknowledged for 4 s "
    r"\(HOROVOD_TIMEOUT_SECONDS\); is that network up\?"
)
LOSS = "tc qdisc replace dev p1-b root pfifo limit 0"  # what host b would receive is dropped


@pytest.mark.parametrize(
    ("fault", "repair"),
    [("ip link set br1 down", "ip link set br1 up"), (LOSS, "tc qdisc del dev p1-b root")],
    ids=["down", "loss"],
)
def test_one_breaks(launcher: Launcher, on_hosts: OnHosts, fault: str, repair: str) -> None:
    """In the midst of a transfer. The other one is alive, and so are both ranks: by it both get one cause."""
    process = on_hosts.start("--timeout-seconds", "4", "-H", "a:1,b:1", sys.executable, ENDLESS)
    files = [launcher.folder / f"{rank}.step" for rank in range(2)]
    assert wait_until(lambda: all(path.exists() for path in files))
    on_hosts.hosts.run("switch", fault)
    try:
        _, err = process.communicate(timeout=60)
        cause, other = ((launcher.folder / f"{rank}.error").read_text() for rank in range(2))
        assert cause == other, err
        ends = re.fullmatch(BROKEN, cause)
        assert ends, cause
        assert {*ends.groups()} == {"0", "1", "2", "a", "b"}
    finally:
        on_hosts.hosts.run("switch", repair)
