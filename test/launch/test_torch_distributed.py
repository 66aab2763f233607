"""torch.distributed on this engine, in processes of its own: under torchrun alone and horovodrun."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

import pytest
from conftest import Launcher

pytest.importorskip("torch")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "torch"
full = pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")
TORCHRUN = ["torchrun", "--nproc-per-node", "2", "--standalone"]


def run(
    launcher: Launcher, words: list[str], name: str, *options: str, backend: str = "horovod"
) -> list[str]:
    """What rank 0 of an example has printed."""
    text = (EXAMPLES / name).read_text()
    assert text.count('init_process_group("horovod")') == 1
    changed = launcher.folder / name
    changed.write_text(text.replace('init_process_group("horovod")', f'init_process_group("{backend}")'))
    program, *rest = words
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")]),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    result = launcher.run(
        *rest, str(changed), *options, program=program, env=launcher.environment(**variables)
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return [re.sub(r"^\[0\]<stdout>: ", "", line) for line in result.stdout.splitlines()]


def horovodrun(launcher: Launcher, ranks: int) -> list[str]:
    return [launcher.program, "-np", str(ranks), sys.executable]


def error_of(lines: list[str]) -> float:
    (text,) = (line.split()[-1] for line in lines if line.startswith("relative L2 error"))
    return float(text)


def test_ddp_under_torchrun(launcher: Launcher) -> None:
    lines = run(launcher, TORCHRUN, "ddp.py", "--steps", "300")
    assert "weights equal on all ranks: yes" in lines
    assert error_of(lines) < 1


SUM = """
import torch, torch.distributed as dist
import horovod.torch.distributed
dist.init_process_group("horovod")
x = torch.ones(1)
dist.all_reduce(x)
print(x.item())
dist.destroy_process_group()
"""


def test_master_address_of_ipv6(launcher: Launcher) -> None:
    """LOCAL_WORLD_SIZE is removed, as by a starter that sets the address alone."""
    program = launcher.folder / "sum.py"
    program.write_text("import os\ndel os.environ['LOCAL_WORLD_SIZE']\n" + SUM)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for _ in range(3):  # another process may take the port first
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::", 0))
            port = str(probe.getsockname()[1])
        words = ["--nproc-per-node", "2", "--master-addr", "::1", "--master-port", port, str(program)]
        result = launcher.run(*words, program="torchrun", env=launcher.environment(PATH=path))
        if "EADDRINUSE" not in result.stderr:
            break
    assert result.stdout.count("2.0") == 2, result.stderr


@full
def test_fsdp2_under_horovodrun(launcher: Launcher) -> None:
    lines = run(launcher, horovodrun(launcher, 2), "fsdp2.py", "--steps", "20")
    assert re.fullmatch(r"rank 0 holds \d+ of \d+ weights", lines[0])
    assert sum(line.startswith("step") for line in lines) == 10
    assert error_of(lines) < 2


@full
@pytest.mark.parametrize("name", ["ddp.py", "fsdp2.py"])
def test_the_same_on_gloo(launcher: Launcher, name: str) -> None:
    ours = run(launcher, TORCHRUN, name, "--steps", "300")
    theirs = run(launcher, TORCHRUN, name, "--steps", "300", backend="gloo")
    assert abs(error_of(ours) - error_of(theirs)) < 0.002
    by_horovodrun = run(launcher, horovodrun(launcher, 2), name, "--steps", "300")
    assert abs(error_of(ours) - error_of(by_horovodrun)) < 0.002
    assert error_of(run(launcher, horovodrun(launcher, 1), name, "--steps", "300")) < 1
