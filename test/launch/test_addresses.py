"""How ranks on several hosts find each other: interfaces that lead nowhere, names, IPv6, ports."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from conftest import Launcher, OnHosts
from virtual_hosts import DEADLINE, NAMES, SUBNET, VirtualHosts, wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")
# On every host alike: one address, which is that of all; no carrier; packets to it vanish on the other hosts.
INTERFACES = """
set -e
i=$1
for name in docker hole dead; do
    ip link add ${name}0 type veth peer name ${name}1
    ip link set ${name}0 up
    [ $name = dead ] || ip link set ${name}1 up
done
ip address add 172.17.0.1/16 dev docker0
ip address add 10.98.0.$i/24 dev dead0
ip address add 10.99.0.$i/32 dev hole0
ip route add 10.99.0.0/24 dev eth0
for other in 1 2 3; do ip neigh replace 10.99.0.$other lladdr 02:00:00:00:00:99 dev eth0; done
ip neigh replace 10.83.0.66 lladdr 02:00:00:00:00:99 dev eth0
ip -6 address add fd00:83::$i/64 dev eth0 nodad
"""


def prepare_hosts(hosts: VirtualHosts) -> None:
    for i, name in enumerate(NAMES, 1):
        assert hosts.inside(name, "bash", "-c", INTERFACES, "-", str(i)) == 0


TRAIN = """
import ipaddress, pathlib, socket, sys, time
import numpy as np
import horovod as hvd

def listeners():
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", name).read_text().splitlines()[1:]:
            address, port = line.split()[1].split(":")
            words = [bytes.fromhex(address)[i : i + 4][::-1] for i in range(0, len(address) // 2, 4)]
            if line.split()[3] == "0A" and int(port, 16) != 22:
                yield f"{ipaddress.ip_address(b''.join(words))} {int(port, 16)}"

begin = time.monotonic()
hvd.init()
print(f"{time.monotonic() - begin:.3f} s", file=sys.stderr)
assert hvd.allreduce(np.ones(100_000), op=hvd.Sum, name="x")[0] == hvd.size()
if hvd.local_rank() == 0:
    print(socket.gethostname(), *listeners())
hvd.barrier()
hvd.shutdown()
"""


def listeners(result: subprocess.CompletedProcess[str]) -> dict[str, set[tuple[str, int]]]:
    """The addresses and ports that the ranks have printed, by host."""
    assert result.returncode == 0, result.stderr
    found = {}
    for line in result.stdout.splitlines():
        host, *words = line.split(": ")[-1].split()
        found[host] = {(address, int(port)) for address, port in zip(words[::2], words[1::2], strict=True)}
    return found


def addresses(result: subprocess.CompletedProcess[str]) -> dict[str, set[str]]:
    return {host: {address for address, _ in found} for host, found in listeners(result).items()}


EVERYWHERE = {f"{SUBNET}.%d", "fd00:83::%d", "172.17.0.1", "10.99.0.%d"}


def of_hosts(patterns: set[str], *numbers: int) -> dict[str, set[str]]:
    return {NAMES[i - 1]: {each.replace("%d", str(i)) for each in patterns} for i in numbers}


@pytest.mark.parametrize(
    ("interfaces", "expected"),
    [
        ("", EVERYWHERE),  # except loopback and interfaces without a carrier
        ("dead0,docker0,hole0,eth0", EVERYWHERE),  # the wrong ones first
        ("10.0.0.0/8,^hole0", {f"{SUBNET}.%d"}),
        ("^docker0,hole0,dead0,10.83.0.0/16", {"fd00:83::%d"}),
    ],
)
def test_interfaces(launcher: Launcher, on_hosts: OnHosts, interfaces: str, expected: set[str]) -> None:
    """Ranks connect although some addresses lead nowhere, and listen on these interfaces only."""
    words = ["--network-interface", interfaces] if interfaces else []
    result = on_hosts.run(*words, "--start-timeout", "60", "-H", "b:1,c:1,a:1", *launcher.python(TRAIN))
    assert addresses(result) == of_hosts(expected, 1, 2, 3)


def test_an_interface_that_some_hosts_lack(
    launcher: Launcher, hosts: VirtualHosts, on_hosts: OnHosts
) -> None:
    """Names may differ between hosts; a host without any of them is named before anything starts."""
    assert hosts.inside("b", "ip", "link", "set", "hole0", "name", "ib0") == 0
    try:
        words = ["-H", "b:1,c:1", *launcher.python(TRAIN)]
        found = addresses(on_hosts.run("--network-interface", "ib0,10.83.0.0/24", *words))
        assert found == {"b": {"10.99.0.2", f"{SUBNET}.2"}, "c": {f"{SUBNET}.3"}}
        result = on_hosts.run("--network-interface", "ib0", *words)
    finally:
        assert hosts.inside("b", "ip", "link", "set", "ib0", "name", "hole0") == 0
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "horovodrun: host c: no network interface here is up and allowed by 'ib0' "
        "(HOROVOD_NETWORK_INTERFACE); there are lo (127.0.0.1), "
    )


def test_an_interface_that_this_host_lacks(launcher: Launcher) -> None:
    malformed = launcher.run("-H", "nowhere:1", "--network-interface", "10.0.0.0/99", "true")
    assert (malformed.returncode, "'10.0.0.0/99' is no subnet" in malformed.stderr) == (2, True)
    result = launcher.run("-np", "1", "--network-interface", "eth77", "echo", "started")
    assert (result.returncode, result.stdout) == (1, "")
    assert "horovodrun: no network interface here is up and allowed by 'eth77'" in result.stderr


def test_ports(launcher: Launcher, on_hosts: OnHosts) -> None:
    """One for each rank of a host, and one for the rendezvous."""
    words = ["-H", "b:2,c:1", "--network-interface", "10.83.0.0/24", *launcher.python(TRAIN)]
    found = listeners(on_hosts.run("--ports", "21000-21002", *words))
    assert found == {
        "b": {(f"{SUBNET}.2", port) for port in (21000, 21001, 21002)},
        "c": {(f"{SUBNET}.3", 21000)},
    }
    result = on_hosts.run("--ports", "21000-21001", *words)
    assert result.returncode == 1
    assert (
        "all ports of HOROVOD_PORTS=21000-21001 are in use on host b; every rank needs one" in result.stderr
    )


def test_malformed_ports(launcher: Launcher) -> None:
    result = launcher.run("-np", "1", "--ports", "21000:21001", "echo", "started")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "horovodrun: HOROVOD_PORTS=21000:21001 is no range of ports; write one like 20000-20099\n"
    )


def test_ipv6_alone(launcher: Launcher, hosts: VirtualHosts, on_hosts: OnHosts) -> None:
    hosts.write(
        "hosts6", "::1 localhost\n" + "".join(f"fd00:83::{i} {name}\n" for i, name in enumerate(NAMES, 1))
    )
    others = "for i in docker0 hole0 dead0; do ip link set $i %s; done"
    for i, name in enumerate(NAMES, 1):
        assert hosts.inside(name, "ip", "address", "del", f"{SUBNET}.{i}/24", "dev", "eth0") == 0
        assert hosts.inside(name, "bash", "-c", others % "down") == 0
        assert hosts.inside(name, "mount", "--bind", str(hosts.folder / "hosts6"), "/etc/hosts") == 0
    try:
        result = on_hosts.run("-H", "b:1,c:2", *launcher.python(TRAIN))
    finally:
        for i, name in enumerate(NAMES, 1):
            assert hosts.inside(name, "umount", "/etc/hosts") == 0
            assert hosts.inside(name, "ip", "address", "add", f"{SUBNET}.{i}/24", "dev", "eth0") == 0
            assert hosts.inside(name, "bash", "-c", others % "up") == 0
            assert hosts.inside(name, "bash", "-c", RENEW) == 0
    assert addresses(result) == of_hosts({"fd00:83::%d"}, 2, 3)


RENEW = """
ip route replace 10.99.0.0/24 dev eth0
for other in 1 2 3; do ip neigh replace 10.99.0.$other lladdr 02:00:00:00:00:99 dev eth0; done
ip neigh replace 10.83.0.66 lladdr 02:00:00:00:00:99 dev eth0
"""


class Job:
    """Ranks that are started by hand; rank 0 serves the rendezvous."""

    def __init__(self, on_hosts: OnHosts, rendezvous: str) -> None:
        self.on_hosts, self.rendezvous = on_hosts, rendezvous
        self.script = on_hosts.launcher.script(TRAIN)

    def start(self, host: str, script: str, **variables: str) -> subprocess.Popen[str]:
        environment = self.on_hosts.launcher.environment(**variables)
        return self.on_hosts.start(script, program=sys.executable, host=host, env=environment)

    def start_rank(self, host: str, rank: int, **variables: str) -> subprocess.Popen[str]:
        given = {"RENDEZVOUS": self.rendezvous, "SECRET": "secret", "RANK": str(rank), "SIZE": "2"}
        given |= {"START_TIMEOUT": "60"} | variables
        return self.start(host, self.script, **{f"HOROVOD_{name}": text for name, text in given.items()})


def ends_well(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("interfaces", ["", "10.83.0.0/24"])
def test_names(hosts: VirtualHosts, on_hosts: OnHosts, interfaces: str) -> None:
    """On its own host the name means loopback, as Debian has it; on the other it is unknown at first, and
    then has two addresses, of which the first swallows all packets."""
    only = {"NETWORK_INTERFACE": interfaces, "SIZE": "3"}
    names = {"a": "127.0.1.1 head\n", "b": "127.0.0.1 localhost\n"}
    for name, text in names.items():
        hosts.write(f"hosts.{name}", text)
        assert hosts.inside(name, "mount", "--bind", str(hosts.folder / f"hosts.{name}"), "/etc/hosts") == 0
    try:
        job = Job(on_hosts, "head:23000")
        late = job.start_rank("b", 1, **only)
        first = job.start_rank("a", 0, **only)
        second = job.start_rank("a", 2, **only)
        time.sleep(1)
        hosts.write("hosts.b", f"{SUBNET}.66 head\n{SUBNET}.1 head\n")
        found = [ends_well(process).split()[1::2] for process in (first, late, second)]
    finally:
        for name in names:
            assert hosts.inside(name, "umount", "/etc/hosts") == 0
    assert f"{SUBNET}.1" in found[0]
    assert f"{SUBNET}.2" in found[1]


# As a container's ports are published by its host.
FORWARD = """
import socket, threading
def copy(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)
def serve(server, port):
    while True:
        client, _ = server.accept()
        try:
            inner = socket.create_connection(("10.83.0.2", port))
        except OSError: # nobody listens there yet
            client.close()
            continue
        for pair in ((client, inner), (inner, client)):
            threading.Thread(target=copy, args=pair, daemon=True).start()
for outer, inner in ((22001, 22000), (23000, 23000)):
    server = socket.create_server(("10.83.0.1", outer))
    threading.Thread(target=serve, args=(server, inner)).start()
print("forwarding", flush=True)
"""


def test_a_published_port(hosts: VirtualHosts, on_hosts: OnHosts) -> None:
    """c reaches b only by ports of a."""
    job = Job(on_hosts, f"{SUBNET}.1:23000")
    forward = job.start("a", on_hosts.launcher.script(FORWARD))
    assert forward.stdout and forward.stdout.readline() == "forwarding\n"
    unreachable = ["ip", "route", "%s", "unreachable", f"{SUBNET}.2/32"]
    assert hosts.inside("c", *(word.replace("%s", "add") for word in unreachable)) == 0
    only = {"NETWORK_INTERFACE": "10.83.0.0/24"}
    try:
        inner = job.start_rank("b", 0, PORTS="22000", ADVERTISED_ADDRESS=f"{SUBNET}.1:22001", **only)
        assert f"{SUBNET}.3" in ends_well(job.start_rank("c", 1, **only))
        assert f"{SUBNET}.2 22000" in ends_well(inner)
        # Without it: what was tried, from where, and with what outcome.
        job.start_rank("b", 0, PORTS="22000", **only)
        serves = ["bash", "-c", f"exec 3<>/dev/tcp/{SUBNET}.2/23000"]
        assert wait_until(lambda: hosts.inside("b", *serves) == 0)
        outer = job.start_rank("c", 1, START_TIMEOUT="3", **only)
        error = outer.communicate(timeout=DEADLINE)[1]
    finally:
        assert hosts.inside("c", *(word.replace("%s", "del") for word in unreachable)) == 0
    for pid in on_hosts.launcher.alive():  # the forwarder, and rank 0, which waits
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert f"rank 1 (host c) tried: {SUBNET}.2 port 22000: No route to host" in error


# ---- torch.distributed: its store on rank 0's host, and Gloo inside ---------------------------------------

DISTRIBUTED = """
import socket, threading
import torch, torch.distributed as dist
import horovod as hvd
import horovod.torch.distributed

created = dist.TCPStore

def with_other_server(host, port, *rest, **options):
    if not with_other_server.servers:  # on the other host, at the same port of every address
        with_other_server.servers.append(socket.create_server(("", port), backlog=50))
    return created(host, port, *rest, **options)

with_other_server.servers = []
hvd.init()
if hvd.rank():
    horovod.torch.distributed.dist = type("", (), {**vars(dist), "TCPStore": staticmethod(with_other_server)})
dist.init_process_group("horovod")
bits = torch.tensor([1 << dist.get_rank()])
dist.all_reduce(bits, dist.ReduceOp.OPERATION)
print(bits.item(), socket.gethostname())
dist.destroy_process_group()
"""


@pytest.fixture
def names(hosts: VirtualHosts) -> Iterator[Callable[[dict[str, str]], None]]:
    """Gives hosts a and b an /etc/hosts of their own."""

    def give(lines: dict[str, str]) -> None:
        for name, text in lines.items():
            path = hosts.folder / f"hosts.{name}"
            path.write_text(f"127.0.0.1 localhost\n{text}")
            assert hosts.inside(name, "mount", "--bind", str(path), "/etc/hosts") == 0

    yield give
    for name in ("a", "b"):
        hosts.inside(name, "umount", "/etc/hosts")


def test_own_name_means_loopback(
    launcher: Launcher, on_hosts: OnHosts, names: Callable[[dict[str, str]], None]
) -> None:
    """Debian's default, and 172.17.0.1 is an address of both hosts: another program listens there on b."""
    pytest.importorskip("torch")
    names({"a": f"127.0.1.1 a\n{SUBNET}.2 b\n", "b": f"127.0.1.1 b\n{SUBNET}.1 a\n"})
    words = ["--network-interface", "docker0,eth0", "--start-timeout", "60"]
    result = on_hosts.run(*words, "-H", "a:1,b:1", *launcher.python(DISTRIBUTED.replace("OPERATION", "SUM")))
    lines = ["[0]<stdout>: 3 a", "[1]<stdout>: 3 b"]
    assert sorted(result.stdout.splitlines()) == lines, result.stderr


def test_name_unknown_and_ipv6_only(
    launcher: Launcher, hosts: VirtualHosts, on_hosts: OnHosts, names: Callable[[dict[str, str]], None]
) -> None:
    pytest.importorskip("torch")
    names({"a": "fd00:83::2 b\n", "b": ""})
    hosts.know_hosts("host_key")
    key = " ".join((hosts.folder / "host_key.pub").read_text().split()[:2])
    hosts.write("known_hosts", f"b,fd00:83::2 {key}\n")
    for name in ("a", "b"):
        assert hosts.inside(name, "ip", "link", "set", "docker0", "down") == 0
        assert hosts.inside(name, "ip", "-4", "address", "flush", "dev", "eth0") == 0
        assert hosts.inside(name, "ip", "-4", "address", "flush", "dev", "hole0") == 0
    try:
        program = launcher.python(DISTRIBUTED.replace("OPERATION", "BOR"))  # by Gloo
        result = on_hosts.run("--start-timeout", "60", "-H", "localhost:1,b:1", *program)
    finally:
        for i, name in enumerate(NAMES[:2], 1):
            hosts.inside(name, "ip", "link", "set", "docker0", "up")
            hosts.inside(name, "ip", "address", "add", f"{SUBNET}.{i}/24", "dev", "eth0")
            hosts.inside(name, "ip", "address", "add", f"10.99.0.{i}/32", "dev", "hole0")
    lines = ["[0]<stdout>: 3 a", "[1]<stdout>: 3 b"]
    assert sorted(result.stdout.splitlines()) == lines, result.stderr
