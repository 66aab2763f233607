"""The pods of the indexed Job and of the chart, by podman, with what Kubernetes' controllers would add."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Shell, needs, wait_until
from test_image import TRAIN
from test_kubernetes import rendered

yaml = pytest.importorskip("yaml", reason="pip install pyyaml")

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    needs("podman"),
    pytest.mark.skipif(
        not any(shutil.which("catatonit", path=path) for path in ("/usr/bin", "/usr/libexec/podman")),
        reason="there is no catatonit, without which podman has no pods",
    ),
]


class Pods:
    """Makes pods of templates, in one network, where a pod has the names that its Service gives it."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        (shell.folder / "train.py").write_text(TRAIN)
        shell.out("podman network create --subnet 10.89.7.0/24 pods")

    def secret(self, name: str, data: dict[str, str]) -> None:
        """In the form in which podman's pods read it: values in base64, as in the object."""
        (self.shell.folder / "secret").write_text(json.dumps(data))
        self.shell.out(f"podman secret create {name} secret")

    def start(self, name: str, address: int, hosts: dict[str, int], template: Object) -> None:
        """`hosts` are all names and the last bytes of their addresses."""
        spec = json.loads(json.dumps(template["spec"]))
        # podman 4.3 makes no emptyDir in memory; the engine needs no /dev/shm of its own.
        lost = [each["name"] for each in spec["volumes"] if "emptyDir" in each]
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            self.adapt(container, name.rsplit("-", 1)[1], lost)
        volumes = [each for each in spec["volumes"] if each["name"] not in lost]
        volumes.append({"name": "code", "hostPath": {"path": str(self.shell.folder)}})
        for each in ("subdomain", "enableServiceLinks", "automountServiceAccountToken"):
            spec.pop(each, None)
        names = [{"ip": f"10.89.7.{last}", "hostnames": [host]} for host, last in hosts.items()]
        spec |= {"volumes": volumes, "hostAliases": names, "hostname": name}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        (self.shell.folder / f"{name}.yaml").write_text(yaml.safe_dump(pod))
        self.shell.out(f"podman kube play --network pods --ip 10.89.7.{address} {name}.yaml")

    def adapt(self, container: Object, index: str, lost: list[str]) -> None:
        """Our image and program, the index that the controller gives, no volumes that podman lacks."""
        container |= {"image": "localhost/horovod", "imagePullPolicy": "Never"}
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": index})
        container["args"] = [word.replace("$(JOB_COMPLETION_INDEX)", index) for word in container["args"]]
        mounts = [each for each in container["volumeMounts"] if each["name"] not in lost]
        for each in mounts:
            each.pop("subPath", None)
        container.pop("ports", None)  # podman would publish them on this machine
        container["volumeMounts"] = [*mounts, {"name": "code", "mountPath": "/shared"}]

    def end(self, *names: str) -> str:
        """Exit codes must be 0; the output of all."""
        codes = self.shell.out("podman wait " + " ".join(names))
        out = "".join(self.shell.out(f"podman logs {name}") for name in names)
        assert codes.split() == ["0"] * len(names), out
        return out


@pytest.fixture
def pods(shell: Shell) -> Iterator[Pods]:
    yield Pods(shell)
    shell.run("podman pod rm --all --force --time 0; podman secret rm --all")


def secret_of(things: list[Object]) -> Object:
    return next(dict(each) for each in things if each["kind"] == "Secret")


def test_the_pods_of_the_indexed_job(pods: Pods) -> None:
    things = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "indexed-job.yaml").read_text()))
    job = next(each for each in things if each["kind"] == "Job")
    pods.secret("train", {"secret": base64.b64encode(b"5" * 64).decode()})
    hosts = {"train-0.train": 10, "train-1.train": 11}
    for index in (1, 0):
        pods.start(f"train-{index}", 10 + index, hosts, job["spec"]["template"])
    out = pods.end("train-0-train", "train-1-train")
    assert out.count("trained 4 [[0, 2], [1, 2], [0, 2], [1, 2]]") == 4


def test_the_pods_of_the_chart(pods: Pods) -> None:
    things = rendered({"worker": {"ranks": 2}}, name="lab")
    pods.secret("lab-horovod", secret_of(things)["data"])
    job = next(each for each in things if each["kind"] == "Job")
    hosts = {f"lab-horovod-{index}.lab-horovod": 10 + index for index in (0, 1)}
    for index in (0, 1):
        pods.start(f"lab-horovod-{index}", 10 + index, hosts, job["spec"]["template"])
    out = pods.end("lab-horovod-0-horovod", "lab-horovod-1-horovod")
    assert out.count("trained 4 [[0, 2], [1, 2], [0, 2], [1, 2]]") == 4


def test_the_launcher_and_workers_of_the_chart(pods: Pods) -> None:
    """podman 4.3 mounts no Secret into a pod and no file of a ConfigMap: folders stand in for them."""
    things = rendered({"mode": "launcher", "worker": {"ranks": 2}}, name="lab")
    folder = pods.shell.folder
    (folder / "keys").mkdir()
    key = folder / "keys" / "ssh-privatekey"
    key.write_bytes(base64.b64decode(secret_of(things)["data"]["ssh-privatekey"]))
    key.chmod(0o440)  # of root's group, which is the user's, as with fsGroup
    hostfile = next(each for each in things if each["kind"] == "ConfigMap")["data"]["hostfile"]
    (folder / "hostfile").write_text(hostfile)
    stand_ins = {"keys": str(folder / "keys"), "hostfile": str(folder / "hostfile")}

    def template(kind: str) -> Object:
        found = next(dict(each) for each in things if each["kind"] == kind)["spec"]["template"]
        for volume in found["spec"]["volumes"]:
            if (name := volume["name"]) in stand_ins:
                volume.clear()
                volume.update({"name": name, "hostPath": {"path": stand_ins[name]}})
        return dict(found)

    hosts = {f"lab-horovod-worker-{index}.lab-horovod": 10 + index for index in (0, 1)}
    for index in (0, 1):
        name = f"lab-horovod-worker-{index}"
        pods.start(name, 10 + index, hosts, template("StatefulSet"))
        ready = f"podman exec {name}-horovod bash -c '</dev/tcp/127.0.0.1/2222'"
        assert wait_until(lambda ready=ready: pods.shell.run(ready).returncode == 0), ready
    pods.start("lab-horovod-launcher-0", 12, hosts, template("Job"))
    out = pods.end("lab-horovod-launcher-0-horovod")
    assert out.count("trained 4 [[0, 2], [1, 2], [0, 2], [1, 2]]") == 4
