"""Containers on this machine that leave its network alone: podman in namespaces of its own.

    python tools/containers.py [--store FOLDER] -- deploy/reference/up

runs the command. It finds a `podman` that keeps its images in the store, and whose containers are in a
network of their own, with names. What builds an image has the machine's network, certificates and settings of
pip. The base image is made of Debian's packages, without a registry. When the command has ended, all
containers are removed; images stay. Needs root, podman, netavark, aardvark-dns, runc and mmdebstrap.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "build" / "containers"
BASE = "docker.io/library/debian:bookworm-slim"
PROGRAMS = ("podman", "runc", "mmdebstrap", "nsenter", "unshare")
HELPERS = ("netavark", "aardvark-dns")  # in a folder of podman's

# The network and the folders of addresses that podman gives away; all end with the process.
NAMESPACES = """
set -e
mkdir -p /run/containers /run/netns
mount -t tmpfs tmpfs /run/containers
mount -t tmpfs tmpfs /run/netns
mount -t tmpfs tmpfs /etc/containers/networks 2>/dev/null || true
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo ready
exec sleep infinity
"""
WRAPPER = """#!/bin/sh
# podman with a store and a network of its own; see tools/containers.py
export CONTAINERS_CONF={folder}/containers.conf BUILDAH_ISOLATION=chroot
engine="podman --root {folder}/root --runroot {folder}/run --storage-driver overlay"
if [ "$1" = build ]; then
    shift
    exec env PATH={path} $engine build --pull=never --network host {mounts} "$@"
fi
exec nsenter --net=/proc/{pid}/ns/net --mount=/proc/{pid}/ns/mnt \\
    sh -c 'cd "$1" && shift && export PATH="{path}" && exec "$@"' sh "$PWD" $engine "$@"
"""


class UnavailableError(Exception):
    """Why there can be no containers here."""


def machine_files() -> list[str]:
    """Options that show the machine's certificates and its pip's configuration to commands of a build."""
    places = {
        "/etc/ssl/certs/ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pip.conf": "/etc/pip.conf",
        str(Path.home() / ".config/pip/pip.conf"): "/etc/xdg/pip/pip.conf",
    }
    return [f"-v {source}:{target}:ro" for source, target in places.items() if Path(source).exists()]


class Containers:
    """The engine; `environment` is what commands need that are to use it."""

    def __init__(self, folder: Path = STORE) -> None:
        missing = [name for name in PROGRAMS if not shutil.which(name)]
        helpers = [Path("/usr/lib/podman"), Path("/usr/libexec/podman")]
        missing += [name for name in HELPERS if not any((each / name).exists() for each in helpers)]
        if missing:
            raise UnavailableError(f"there is no {', no '.join(missing)}")
        if os.geteuid() != 0:
            raise UnavailableError("only root can make the network of containers")
        self.folder = folder
        programs = folder / "programs"
        programs.mkdir(parents=True, exist_ok=True)
        files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 1 << 20)
        (folder / "containers.conf").write_text(
            f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc=10000:10000"]\n'
            f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{folder}/networks"\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        words = ["unshare", "--mount", "--net", "sh", "-c", NAMESPACES]
        self.holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout
        if self.holder.stdout.readline() != "ready\n":
            self.holder.wait()
            raise UnavailableError("namespaces can't be made here")
        text = WRAPPER.format(
            folder=folder, pid=self.holder.pid, mounts=" ".join(machine_files()), path=os.environ["PATH"]
        )
        (programs / "podman").write_text(text)
        (programs / "podman").chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "ENGINE": "podman",
        }

    def call(self, *words: str, timeout: float = 300) -> str:
        """The output of one podman command, which must succeed."""
        result = subprocess.run(
            ["podman", *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if result.returncode:
            raise RuntimeError(f"podman {' '.join(words)}:\n{result.stdout[-4000:]}{result.stderr[-4000:]}")
        return result.stdout

    def has(self, image: str) -> bool:
        words = ["podman", "image", "exists", image]
        return subprocess.run(words, env=self.environment, check=False).returncode == 0

    def make_base(self) -> None:
        """Debian's smallest system under the name of its published image, once."""
        if self.has(BASE):
            return
        options = ["--quiet", "--variant=minbase", "--include=ca-certificates"]
        tree = self.folder / "base.tar"
        subprocess.run(["mmdebstrap", *options, "bookworm", str(tree)], check=True, timeout=600)
        self.call("import", "--change", 'CMD ["/bin/bash"]', str(tree), BASE)
        tree.unlink()

    def close(self) -> None:
        """Ends all containers; images stay."""
        subprocess.run(
            ["podman", "rm", "--all", "--force", "--volumes", "--time", "0"],
            env=self.environment, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        self.call("volume", "prune", "--force")
        self.call("network", "prune", "--force")
        self.holder.kill()
        self.holder.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--store", type=Path, default=STORE, help="folder of images (default build/containers)"
    )
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    try:
        containers = Containers(given.store.absolute())
    except UnavailableError as error:
        print(f"containers: {error}", file=sys.stderr)
        return 77
    try:
        containers.make_base()
        return subprocess.run(given.command, env=containers.environment, check=False).returncode
    finally:
        containers.close()


if __name__ == "__main__":
    raise SystemExit(main())
