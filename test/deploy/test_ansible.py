"""deploy/ansible: syntax, lint, and the whole playbook, twice, on containers that stand in for machines.

Containers have neither the kernel's NFS nor systemd. So the folder is not shared here, and the test starts
JupyterLab by the command of its service.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Shell, needs

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "ansible"

pytestmark = needs("ansible-playbook", "ansible-lint")

# The image has what the roles install, so that they need no network.
IMAGE = """
FROM docker.io/library/debian:bookworm-slim
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\
    iproute2 openssh-client openssh-server prometheus prometheus-node-exporter python3 python3-apt \\
    python3-packaging python3-venv sudo
RUN python3 -m venv /usr/local/horovod \\
    && /usr/local/horovod/bin/pip install --no-cache-dir numpy cloudpickle jupyterlab
RUN mkdir /run/sshd
# The lists of packages count as new, since there is no network to get others from.
CMD ["sh", "-c", "touch /var/lib/apt/lists && exec /usr/sbin/sshd -D -e"]
"""
# Waits until JupyterLab answers and prints the status.
ASK = """
import sys, time
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

request = Request("http://127.0.0.1:8888/api/contents")
request.add_header("Authorization", "token " + sys.argv[1])
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        print(urlopen(request).status)
        break
    except HTTPError as error:
        print(error.code)
        break
    except URLError:
        time.sleep(0.2)
"""
HOSTS = ("master", "worker1", "worker2")


def ansible(words: list[str], folder: Path, enter: list[str] | None = None) -> str:
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(FOLDER / "ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_NOCOLOR": "1",
    }
    result = subprocess.run(
        [*(enter or []), *words], cwd=FOLDER, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    return result.stdout


def test_lint_has_nothing_to_say(tmp_path: Path) -> None:
    ansible(["ansible-lint", "--offline", "-q", "--profile", "production"], tmp_path)


def test_the_example_of_an_inventory_is_understood(tmp_path: Path) -> None:
    inventory = ["-i", str(FOLDER / "inventory.example.ini")]
    ansible(["ansible-playbook", *inventory, "--syntax-check", "site.yml"], tmp_path)
    text = ansible(["ansible-inventory", *inventory, "--list"], tmp_path)
    assert '"slots": 2' in text


@pytest.fixture
def machines(shell: Shell) -> Path:
    """Three containers with sshd, and their inventory."""
    folder = shell.folder
    (folder / "Dockerfile").write_text(IMAGE)
    shell.out("podman build -t machine .", 280)
    shell.out("ssh-keygen -q -t ed25519 -N '' -f key; podman network create machines >/dev/null")
    lines = []
    for name in HOSTS:
        shell.out(
            f"podman run -d --name {name} --hostname {name} --network machines machine\n"
            f"podman exec -i {name} sh -c 'mkdir -m 700 ~/.ssh && cat >~/.ssh/authorized_keys' <key.pub"
        )
        address = shell.out(
            f"podman inspect --format '{{{{.NetworkSettings.Networks.machines.IPAddress}}}}' {name}"
        )
        lines.append(f"{name} ansible_host={address.strip()} address={address.strip()}")
    text = ["[masters]", lines[0], "[workers]", *lines[1:], "[all:vars]", "ansible_user=root", "slots=2"]
    text += [
        f"ansible_ssh_private_key_file={folder}/key",
        f"ansible_ssh_common_args=-o UserKnownHostsFile={folder}/known",
    ]
    (folder / "inventory.ini").write_text("\n".join([*text, ""]))
    return folder


def test_a_missing_wheel_is_named(tmp_path: Path) -> None:
    settings = {"horovod_wheel": "", "ansible_connection": "local", "ansible_become": False}
    settings["ansible_python_interpreter"] = sys.executable
    words = ["ansible-playbook", "--check", "-i", "localhost,", "-e", json.dumps(settings), "site.yml"]
    with pytest.raises(AssertionError, match="run `make wheels`, or set horovod_wheel"):
        ansible(words, tmp_path)


def test_the_playbook_makes_a_cluster_and_changes_nothing_the_second_time(
    shell: Shell, machines: Path
) -> None:
    enter = ["nsenter", f"--net=/proc/{shell.engine.holder.pid}/ns/net"]
    [wheel] = (ROOT / "build" / "wheels").glob("*.whl")
    settings = {
        "mount_shared": False,
        "enable_monitoring": True,
        "horovod_wheel": str(wheel),
        "pip_packages": [],
    }
    words = [
        "ansible-playbook",
        "-i",
        str(machines / "inventory.ini"),
        "-e",
        json.dumps(settings),
        "site.yml",
    ]
    first = ansible(words, machines, enter)
    assert len(re.findall(r"failed=0", first)) == 3 and "changed=0" not in first
    second = ansible(words, machines, enter)
    assert len(re.findall(r"changed=0 ", second)) == 3, second

    run = "podman exec master su - train -c"
    out = shell.out(f"{run} 'cat $HOSTLIST; horovodrun --hostfile $HOSTLIST hostname'")
    assert out.startswith("master slots=2\nworker1 slots=2\nworker2 slots=2\n")
    assert [out.count(f">: {name}\n") for name in HOSTS] == [2, 2, 2]

    service = shell.out("podman exec master cat /etc/systemd/system/jupyter.service")
    [start] = re.findall(r"^ExecStart=(.*)$", service, re.MULTILINE)
    shell.out(f"podman exec -d --user train --workdir /shared master {start}")
    token = shell.out("podman exec master cat /etc/horovod/jupyter_token").strip()
    assert len(token) == 48
    ask = f"podman exec master /usr/local/horovod/bin/python -c {shlex.quote(ASK)}"
    assert shell.out(f"{ask} {token}").strip() == "200"
    assert shell.out(f"{ask} wrong").strip() == "403"
    check = f"{ROOT}/deploy/reference/test --no-notebook -- podman exec -i master su - train -c"
    result = shell.run(check, 280)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "FAILED the folder is shared" in result.stdout and "5 passed, 1 failed" in result.stdout
    assert shell.out("podman exec master promtool check config /etc/prometheus/prometheus.yml")
    targets = shell.out("podman exec master grep 9100 /etc/prometheus/prometheus.yml")
    assert "[master:9100, worker1:9100, worker2:9100]" in targets
