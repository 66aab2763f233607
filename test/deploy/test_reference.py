"""The reference architecture in containers of this machine: up, test, down; and its programs.

No registry gives images here: that of Prometheus is made of Debian's package, and that of Grafana only waits.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Shell, needs
from containers import Containers

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "deploy" / "reference"
DASHBOARD = ROOT / "monitoring" / "grafana" / "dashboards" / "horovod.json"
BASE = "FROM docker.io/library/debian:bookworm-slim\n"
APT = "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "
OTHERS = {
    "docker.io/prom/prometheus:v3.5.0": f'{BASE}{APT}prometheus\nUSER 65534\nENTRYPOINT ["prometheus"]\n',
    "docker.io/grafana/grafana:12.1.0": f'{BASE}CMD ["sleep", "infinity"]\n',
}

TORCH_BASE = "localhost/torch-base"
# What PyTorch needs; the libraries of CUDA that pip would install with it are 3 GB.
TORCH = ("torch", "torchgen", "functorch", "sympy", "mpmath", "networkx", "filelock", "fsspec", "jinja2")

# Runs a job for Prometheus to see, and asks for EXPRESSIONS until each has data; prints those without.
PANELS = """
import json, pathlib, subprocess, sys, time, urllib.parse, urllib.request

PROGRAM = '''
import time, numpy, horovod as hvd
hvd.init()
while True:
    hvd.allreduce(numpy.ones(1 << 16, numpy.float32), name="gradient")
    hvd.step(8)
    time.sleep(0.05)
'''
words = ["horovodrun", "--metrics-discovery", "/var/lib/horovod", "--hostfile", "/etc/horovod/HOSTLIST"]
job = subprocess.Popen([*words, sys.executable, "-c", PROGRAM], stdin=subprocess.DEVNULL)
end = time.monotonic() + 150
try:
    while not (found := list(pathlib.Path("/var/lib/horovod").glob("*.json"))):
        assert job.poll() is None and time.monotonic() < end
        time.sleep(0.2)
    [target] = json.loads(found[0].read_text())[0]["targets"]
    left = dict(EXPRESSIONS)
    while left and job.poll() is None and time.monotonic() < end:
        for title, expression in list(left.items()):
            text = expression.replace("$job", target).replace("$__rate_interval", "1m")
            query = urllib.parse.urlencode({"query": text})
            with urllib.request.urlopen("http://127.0.0.1:9090/api/v1/query?" + query, timeout=10) as answer:
                if json.load(answer)["data"]["result"]:
                    del left[title]
        time.sleep(1)
    print("panels:", len(EXPRESSIONS), "without data:", sorted(left))
finally:
    job.terminate()
    job.wait(30)
"""


def expressions() -> dict[str, str]:
    """What the dashboard asks about a job; exporters of hosts and GPUs do not run here."""
    found = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for number, target in enumerate(panel.get("targets", [])):
            if not re.search("node_|DCGM_", target["expr"]):
                found[f"{panel['title']} {number}"] = target["expr"]
    return found


def make_torch_base(engine: Containers, folder: Path) -> None:
    """Makes a base with the PyTorch of .venv in Debian's Python."""
    [packages] = (ROOT / ".venv" / "lib").glob("python3*/site-packages")
    if not (packages / "torch").exists():
        pytest.skip("there is no PyTorch in .venv: make install")
    place = "/usr/local/lib/python3.11/dist-packages/"
    lines = [f"{BASE}{APT}python3", *(f"COPY {name} {place}{name}/" for name in TORCH)]
    (folder / "Dockerfile").write_text("\n".join([*lines, ""]))
    engine.call("build", "-t", TORCH_BASE, "-f", str(folder / "Dockerfile"), str(packages))


class Cluster(Shell):
    def master(self, text: str, seconds: float = 120) -> str:
        return self.out(f"podman-compose -f ../compose.yaml exec -T master sh -c '{text}'", seconds)


@pytest.fixture(scope="module")
def cluster(engine: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """What `./up --monitoring` starts, with an image that it builds of this tree."""
    if not shutil.which("podman-compose"):
        pytest.skip("there is no podman-compose")
    for name, text in OTHERS.items():
        folder = tmp_path_factory.mktemp("image")
        (folder / "Dockerfile").write_text(text)
        if not engine.has(name):
            engine.call("build", "-t", name, str(folder))
    if not engine.has(TORCH_BASE):
        make_torch_base(engine, tmp_path_factory.mktemp("torch"))
    made = Cluster(engine, REFERENCE)
    made.run("podman untag localhost/horovod-lab")
    made.engine.environment |= {"BASE": TORCH_BASE, "PACKAGES": "matplotlib jupyterlab"}
    print(made.out("./up --monitoring", 290))
    yield made
    made.out("./down --keep")
    assert not engine.call("ps", "--all", "--quiet").split()
    assert "deploy_shared" in engine.call("volume", "ls", "--quiet").split()
    print(made.out("./down"))
    assert not engine.call("volume", "ls", "--quiet").split()


def test_it_passes_its_own_tests(cluster: Cluster) -> None:
    """Hosts, ranks on all, the shared folder, the notebook, JupyterLab's token, and Prometheus."""
    result = cluster.run("./test --monitoring", 280)
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "8 passed, 0 failed" in result.stdout


def test_its_tests_can_fail(cluster: Cluster) -> None:
    cluster.out("podman stop -t 0 deploy_worker2_1")
    try:
        result = cluster.run("./test --no-notebook", 280)
    finally:
        cluster.out("podman start deploy_worker2_1")
    assert result.returncode == 4, result.stdout + result.stderr
    assert "FAILED every host answers" in result.stdout and "worker2" in result.stdout


def test_each_cluster_has_a_key_and_a_token_of_its_own(cluster: Cluster) -> None:
    assert len(cluster.master("cat /keys/grafana").strip()) == 32
    assert "PRIVATE KEY" in cluster.master("cat /keys/id")
    assert re.search(r"token=\w{40,}", cluster.master("jupyter server list"))


def test_the_panels_of_the_dashboard_have_data(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "panels.py"
    script.write_text(f"EXPRESSIONS = {expressions()!r}\n{PANELS}")
    out = cluster.out(f"podman-compose -f ../compose.yaml exec -T master python - <{script}", 280)
    print(out)
    assert re.search(r"panels: (\d{2}) without data: \[\]", out), out


def test_the_evaluation_writes_table_and_plot(cluster: Cluster) -> None:
    options = "--models resnet8 --batch-size 8 --steps 2"
    cluster.master(f"cd /shared && python evaluate.py --hostfile $HOSTLIST {options}", 280)
    table = cluster.master("cat /shared/results/scaling.md")
    print(table)
    assert len(re.findall(r"^\| resnet8 \| [1-4] \| [1-4] \| \d+ \|", table, re.MULTILINE)) == 4
    assert "Several hosts are on one machine" in table
    rows = json.loads(cluster.master("cat /shared/results/scaling.json"))
    assert [row["hosts"] for row in rows] == [1, 2, 3, 4] and rows[0]["efficiency"] == 1
    assert cluster.master("head -c 4 /shared/results/scaling.png | od -An -c").split()[1:] == ["P", "N", "G"]


@needs("podman")
def test_up_names_a_missing_image(engine: Containers) -> None:
    result = Shell(engine, REFERENCE).run("IMAGE=localhost/absent ./up")
    assert result.returncode == 1
    assert result.stderr == "up: there is no image localhost/absent\n"


# ---- programs, without containers --------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["up", "down"])
def test_unknown_options_are_refused(program: str) -> None:
    words = [str(REFERENCE / program), "--all"]
    result = subprocess.run(words, env={"PATH": "/usr/bin:/bin", "ENGINE": "podman"}, capture_output=True,
                            text=True, timeout=60, check=False)  # fmt: skip
    assert result.returncode == 2 and result.stderr.startswith(f"usage: {program} [")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--models", "resnet21"], "ResNets for CIFAR-10 have a depth of"),
        (["--models", "vgg"], "vgg is not one of"),
        (["--steps", "0"], "must be at least 1"),
        (["--hostfile", "absent"], "--hostfile: [Errno 2]"),
        ([], "names no host"),
    ],
)
def test_the_evaluation_refuses(tmp_path: Path, options: list[str], text: str) -> None:
    python = ROOT / ".venv" / "bin" / "python"
    if not python.exists():
        pytest.skip("there is no .venv: make install")
    (tmp_path / "HOSTLIST").write_text("# no host\n")
    script = REFERENCE / "shared" / "evaluate.py"
    words = [str(python), str(script), "--hostfile", "HOSTLIST", *options]
    result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2 and text in result.stderr


def test_other_compose_programs_accept_the_file() -> None:
    program = shutil.which("docker-compose")
    if not program:
        pytest.skip("there is no docker-compose")
    words = [program, "-f", str(ROOT / "deploy" / "compose.yaml"), "config", "--quiet"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


def test_the_notebook_has_no_output() -> None:
    nbformat = pytest.importorskip("nbformat", reason="pip install nbformat")
    notebook = nbformat.read(REFERENCE / "shared" / "train.ipynb", 4)
    nbformat.validate(notebook)
    assert not [cell for cell in notebook.cells if cell.get("outputs")]
