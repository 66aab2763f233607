"""Hosts on one machine, for tests and benchmarks: namespaces, an address and a real sshd each.

They share the file system, as with NFS, but not /dev/shm. Nothing is connected to the machine's own network,
and all is gone with the processes that are the hosts.

    python tools/virtual_hosts.py a b [--rate 1gbit] -- horovodrun -H a:2,b:2 python train.py

makes hosts of these names, runs the command on the first one, in the folder that you are in, and removes
them. Needs root, sshd and iproute2. Congestion control is Linux's default.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

DEADLINE = 100.0  # of every wait; no test may take 120 s
SUBNET = "10.83.0"
SECOND = "10.84.0"
NAMES = ("a", "b", "c")

SSHD = """
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/key.pub
StrictModes no
AllowUsers root me
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
MaxStartups 100
SetEnv PATH=/usr/local/bin:/usr/bin:/bin
"""
SSH = """
Host *
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GSSAPIAuthentication no
    ServerAliveInterval 2
    ServerAliveCountMax 2
Host alias
    HostName {subnet}.2
    HostKeyAlias b
"""
# Inside of a new host; $1 is its name, $2 the folder.
BOOT = """
set -e
hostname "$1"
mount --bind "$2/hosts" /etc/hosts
mount -t tmpfs tmpfs /etc/ssh/ssh_config.d
cp "$2/ssh_config" /etc/ssh/ssh_config.d/test.conf
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ip link set lo up
touch "$2/$1.up"
while ! ip -brief address show eth0 2>/dev/null | grep -q 10.83; do sleep 0.02; done
exec /usr/sbin/sshd -D -e -f "$2/sshd_config" 2>>"$2/$1.log"
"""


class UnavailableError(Exception):
    """Why hosts can't be made here."""


def wait_until(condition: Callable[[], bool], seconds: float = DEADLINE) -> bool:
    """Asks until the condition holds; between two answers it sleeps for twice as long as one took.

    Many conditions start a program, which would otherwise keep a core busy.
    """
    end = time.monotonic() + seconds
    asked = time.monotonic()
    while not condition():
        answered = time.monotonic()
        if answered > end:
            return False
        time.sleep(min(max(0.01, 2 * (answered - asked)), 0.25))
        asked = time.monotonic()
    return True


class VirtualHosts:
    def __init__(self, folder: Path, names: Sequence[str] = NAMES, wire: Sequence[str] = ()) -> None:
        self.folder = folder
        self.names = names
        self.wire = wire
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.links = 0

    def start(self) -> None:
        for key in ("key", "host_key", "other_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(words, check=True)
        lines = [f"{SUBNET}.{i} {name}" for i, name in enumerate(self.names, 1)]
        self.write("hosts", "\n".join(["127.0.0.1 localhost", *lines, ""]))
        self.write("sshd_config", SSHD.format(folder=self.folder))
        self.write("ssh_config", SSH.format(folder=self.folder, subnet=SUBNET))
        self.know_hosts("host_key")
        self.processes["switch"] = self.unshare(["--net"], f"touch {self.folder}/switch.up; sleep 1d")
        for name in self.names:
            spaces = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"]
            self.processes[name] = self.unshare(spaces, BOOT, name)
        self.add_link(SUBNET)
        for name in self.names:
            assert wait_until(lambda name=name: self.inside(name, "ssh", name, "true") == 0, 60), self.log(
                name
            )  # type: ignore[misc]

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def know_hosts(self, key: str, names: Sequence[str] = ()) -> None:
        """Writes known_hosts: these hosts, with this key."""
        words = (self.folder / f"{key}.pub").read_text().split()[:2]
        addresses = {name: f"{SUBNET}.{i}" for i, name in enumerate(self.names, 1)}
        self.write(
            "known_hosts",
            "".join(f"{name},{addresses[name]} {' '.join(words)}\n" for name in names or self.names),
        )

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else "no log"

    def unshare(self, spaces: list[str], script: str, name: str = "") -> subprocess.Popen[bytes]:
        words = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            *spaces,
            "--kill-child" if "--fork" in spaces else "--",
            "bash",
            "-c",
            script,
        ]
        os.makedirs("/run/sshd", exist_ok=True)
        return subprocess.Popen(
            [*words, "boot", name, str(self.folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"{name or 'switch'}.log").open("ab"),
            start_new_session=True,
        )

    def run(self, name: str, words: str) -> None:
        """In the network of a host, or of the switch."""
        enter = ["nsenter", "-t", str(self.processes[name].pid), "--net"]
        subprocess.run([*enter, *words.split()], check=True)

    def add_link(self, subnet: str) -> None:
        """One more network interface for every host, eth0 or eth1, and a bridge or the wire between them."""
        marks = [self.folder / f"{name}.up" for name in ("switch", *self.names)]
        assert wait_until(lambda: all(mark.exists() for mark in marks), 60), list(map(self.log, self.names))
        device = f"eth{self.links}"
        if self.wire:
            self.add_wire(device)
        else:
            self.add_bridge(device)
        for i, name in enumerate(self.names, 1):
            self.run(name, f"ip link set {device} address 02:00:00:00:{self.links:02x}:{i:02x} up")
            self.run(name, f"ip addr add {subnet}.{i}/24 dev {device}")
        self.links += 1

    def add_bridge(self, device: str) -> None:
        bridge = f"br{self.links}"
        self.run("switch", f"ip link add {bridge} type bridge")
        self.run("switch", f"ip link set {bridge} up")
        for name in self.names:
            port, pid = f"p{self.links}-{name}", self.processes[name].pid
            self.run("switch", f"ip link add {port} type veth peer name {device} netns {pid}")
            self.run("switch", f"ip link set {port} master {bridge} up")

    def add_wire(self, device: str) -> None:
        """The program that makes the devices lives as long as the hosts do."""
        pids = [str(self.processes[name].pid) for name in self.names]
        words = ["setpriv", "--pdeathsig", "KILL", *self.wire, device, *pids]
        self.processes[device] = subprocess.Popen(words, stderr=(self.folder / f"{device}.log").open("ab"))
        tables = [Path(f"/proc/{pid}/net/dev") for pid in pids]
        made = wait_until(lambda: all(f"{device}:" in table.read_text() for table in tables), 60)
        assert made, self.log(device)
        for name in self.names:
            self.run(name, f"ip link set {device} mtu 9000")  # a program takes its time for every frame

    def limit(self, rate: str, queue: str = "100ms") -> None:
        """Shapes both directions of every host's links: "1gbit", and how long a packet waits at most, as tc
        has them; or "unshaped"."""
        bucket = "pfifo" if rate == "unshaped" else f"tbf rate {rate} burst 128k latency {queue}"
        for name in self.names:
            for number in range(self.links):
                for end, device in ((name, f"eth{number}"), ("switch", f"p{number}-{name}")):
                    self.run(end, f"tc qdisc replace dev {device} root {bucket}")

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing that one host sends arrives at the other one: it goes to an address that nobody has."""
        self.set_address(sender, receiver, 0xFF)

    def mend(self, sender: str, receiver: str) -> None:
        """The end of `cut`."""
        self.set_address(sender, receiver, self.names.index(receiver) + 1)

    def set_address(self, sender: str, receiver: str, last: int) -> None:
        for number, subnet in enumerate((SUBNET, SECOND)[: self.links]):
            to = f"{subnet}.{self.names.index(receiver) + 1}"
            address = f"02:00:00:00:{number:02x}:{last:02x}"
            self.run(sender, f"ip neigh replace {to} lladdr {address} dev eth{number} nud permanent")

    def control(self, algorithm: str) -> None:
        """The congestion control of all connections: "cubic"; without, the one of this machine."""
        for number, subnet in enumerate((SUBNET, SECOND)[: self.links]):
            for i, name in enumerate(self.names, 1):
                route = f"{subnet}.0/24 dev eth{number} proto kernel scope link src {subnet}.{i}"
                self.run(name, f"ip route replace {route} congctl {algorithm}")

    def enter(self, name: str, folder: Path = Path("/")) -> list[str]:
        """The words that run what follows them inside of the host, in the folder."""
        pid = self.processes[name].pid
        spaces = ["--net", "--mount", "--uts", "--ipc", f"--pid=/proc/{pid}/ns/pid_for_children"]
        return ["nsenter", "-t", str(pid), *spaces, "--", "env", "-C", str(folder)]

    def inside(self, name: str, *words: str) -> int:
        return subprocess.run(
            [*self.enter(name), *words], timeout=DEADLINE, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ).returncode

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(DEADLINE)


def make(names: Sequence[str] = NAMES, wire: Sequence[str] = ()) -> VirtualHosts:
    """Raises UnavailableError where the system has not what it takes.

    `wire` is a program that connects network namespaces, started with a device's name and their processes;
    without one there is a bridge.
    """
    if os.getuid() != 0:
        raise UnavailableError("network namespaces need root")
    for program in ("/usr/sbin/sshd", "ssh", "ip", "unshare", "nsenter"):
        if not shutil.which(program):
            packages = "openssh-server, openssh-client, iproute2 and util-linux"
            raise UnavailableError(f"there is no {program}: install {packages}")
    if subprocess.run(["unshare", "--net", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL).returncode:
        raise UnavailableError("this system permits no new namespaces")
    if wire and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise UnavailableError("a program between hosts needs /dev/net/tun")
    hosts = VirtualHosts(Path(tempfile.mkdtemp(prefix="horovod-hosts-")), names, wire)
    try:
        hosts.start()
    except BaseException:
        hosts.end()
        raise
    return hosts


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="of a host")
    parser.add_argument("--rate", default="unshaped", help="of every host's link, as tc has it")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args, command = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    if not command:
        parser.error("which command? It follows --")
    try:
        hosts = make(args.names)
    except UnavailableError as reason:
        sys.exit(f"virtual_hosts: {reason}")
    try:
        hosts.control("cubic")
        hosts.limit(args.rate)
        return subprocess.run([*hosts.enter(args.names[0], Path.cwd()), *command]).returncode
    finally:
        hosts.end()
        shutil.rmtree(hosts.folder)


if __name__ == "__main__":
    sys.exit(main())
