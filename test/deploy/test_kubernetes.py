"""The Helm chart by Helm's own engine; its objects and those of deploy/kubernetes by their schemas.

MPIJob and RayJob have no schema here: their pods are checked, and the names of their own fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

helm = pytest.importorskip("helm_python", reason="pip install helm-python-sdk")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
models = pytest.importorskip("kubeflow_trainer_api.models", reason="pip install kubeflow-trainer-api")
yaml = pytest.importorskip("yaml", reason="pip install pyyaml")

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "horovod"
EXAMPLES = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.29", "1.37")

GPUS = {"limits": {"nvidia.com/gpu": 4, "memory": "64Gi"}, "requests": {"cpu": 16}}
VALUES: dict[str, Object] = {
    "default": {},
    "launcher": {"mode": "launcher"},
    "gpus": {"worker": {"number": 8, "resources": GPUS, "env": {"NCCL_DEBUG": "INFO", "DEPTH": 50}}},
    "gpus-launcher": {"mode": "launcher", "worker": {"number": 3, "resources": GPUS, "env": {"DEPTH": 50}}},
    "network": {"useHostNetwork": True, "queue": "training", "backoffLimit": 3, "sharedMemory": "8Gi"},
    "placed": {
        "mode": "launcher",
        "queue": "training",
        "worker": {
            "ranks": 2,
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "imagePullSecrets": [{"name": "registry"}],
        },
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    },
}


def rendered(values: Object, name: str = "train") -> list[Object]:
    chart = helm.Chart.load(CHART)
    texts = chart.render(values, name=name, namespace="lab", is_install=True)
    return [
        each
        for path, text in texts.items()
        if not path.endswith("NOTES.txt")
        for each in yaml.safe_load_all(text)
        if each
    ]


def validate(thing: Object) -> None:
    for version in VERSIONS:
        kubernetes_validate.validate(thing, version, strict=True)


def kind(things: list[Object], name: str) -> Object:
    [found] = [each for each in things if each["kind"] == name]
    return found


def container(thing: Object) -> Object:
    [found] = thing["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_chart_makes_valid_objects(values: Object) -> None:
    things = rendered(values)
    assert len(things) >= 3
    for thing in things:
        validate(thing)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_lint_has_nothing_to_say(values: Object) -> None:
    report = helm.lint(str(CHART), values, strict=True)
    assert not [each for each in report["messages"] if "icon is recommended" not in str(each)], report


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"workers": 3}, "workers"),
        ({"worker": {"numbr": 3}}, "numbr"),
        ({"worker": {"number": 0}}, "number"),
        ({"mode": "mpi"}, "mode"),
        ({"command": "python train.py"}, "command"),
        ({"ssh": {"useSecrets": True}}, "ssh"),
        ({"sharedMemory": "much"}, "sharedMemory"),
    ],
)
def test_wrong_values_are_refused_by_name(values: Object, text: str) -> None:
    with pytest.raises(helm.HelmError, match=text):
        rendered(values)


def test_a_pod_runs_as_many_ranks_as_it_has_gpus() -> None:
    job = container(kind(rendered(VALUES["gpus"]), "Job"))
    assert job["args"][:6] == [
        "horovodrun",
        "--nnodes=8",
        "--node-rank=$(JOB_COMPLETION_INDEX)",
        "--rendezvous=train-horovod-0.train-horovod:29600",
        "-np",
        "4",
    ]
    hostfile = kind(rendered(VALUES["gpus-launcher"]), "ConfigMap")["data"]["hostfile"]
    names = [f"train-horovod-worker-{each}.train-horovod slots=4" for each in range(3)]
    assert hostfile.splitlines() == names


def test_secrets_are_random() -> None:
    for mode, key in (("job", "secret"), ("launcher", "ssh-privatekey")):
        found = [kind(rendered({"mode": mode}), "Secret")["data"] for _ in range(2)]
        assert len(found[0][key]) > 80 and found[0] != found[1]


def test_nothing_runs_as_root() -> None:
    for values in VALUES.values():
        for thing in rendered(values):
            if template := thing["spec"].get("template") if "spec" in thing else None:
                assert template["spec"]["securityContext"]["runAsNonRoot"]
                assert not container(thing)["securityContext"]["allowPrivilegeEscalation"]


# ---- examples ----------------------------------------------------------------------------------------------

MODELS = {
    "TrainJob": "TrainerV1alpha1TrainJob",
    "ClusterTrainingRuntime": "TrainerV1alpha1ClusterTrainingRuntime",
    "JobSet": "JobsetV1alpha2JobSet",
}
# The fields that our examples use of kinds without a schema here, as their controllers' sources name them.
FIELDS = {
    "MPIJob": {
        "slotsPerWorker",
        "sshAuthMountPath",
        "launcherCreationPolicy",
        "runPolicy",
        "mpiReplicaSpecs",
    },
    "RayJob": {"entrypoint", "shutdownAfterJobFinishes", "rayClusterSpec", "backoffLimit"},
}


def documents() -> Iterator[tuple[str, Object]]:
    for path in EXAMPLES:
        for thing in yaml.safe_load_all(path.read_text()):
            yield f"{path.stem}-{thing['kind']}", thing


def templates(thing: Any) -> Iterator[Object]:
    """The templates of pods anywhere in an object."""
    if isinstance(thing, dict):
        if "containers" in thing.get("spec", {}):
            yield thing
        for each in thing.values():
            yield from templates(each)
    elif isinstance(thing, list):
        for each in thing:
            yield from templates(each)


def unknown(thing: Any, model: Any, path: str = "") -> Iterator[str]:
    """Keys that the model drops: pydantic ignores names that it does not know."""
    known = model.to_dict() if hasattr(model, "to_dict") else model
    if isinstance(thing, dict) and isinstance(known, dict):
        for key, value in thing.items():
            if key not in known:
                yield f"{path}.{key}"
            else:
                yield from unknown(value, known[key], f"{path}.{key}")
    elif isinstance(thing, list) and isinstance(known, list):
        for number, value in enumerate(thing):
            yield from unknown(value, known[number], f"{path}[{number}]")


@pytest.mark.parametrize("thing", [each for _, each in documents()], ids=[name for name, _ in documents()])
def test_an_example_is_valid(thing: Object) -> None:
    if thing["kind"] in MODELS:
        model = getattr(models, MODELS[thing["kind"]]).from_dict(thing)
        assert not list(unknown(thing, model))
    elif thing["kind"] in FIELDS:
        assert set(thing["spec"]) <= FIELDS[thing["kind"]]
    else:
        validate(thing)
    for template in templates(thing):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]}
        validate(pod)


def test_no_example_contains_a_secret() -> None:
    for name, thing in documents():
        assert thing["kind"] != "Secret", name
        for entry in re.findall(r"'HOROVOD_SECRET'.{40}", str(thing)):
            assert "secretKeyRef" in entry
