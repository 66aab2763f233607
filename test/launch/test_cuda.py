"""Arrays on GPUs, on the stand-in for NVIDIA's driver, which is found before a driver of this host."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest
from conftest import Launcher

BUILD = Path(os.environ.get("HVD_BUILD", str(Path(__file__).parents[2] / "build")))
STANDIN = BUILD / "test" / "standin"
BY_HOST = str(STANDIN)
BY_NCCL = f"{STANDIN}:{STANDIN / 'nccl'}"
WORKER = Path(__file__).with_name("cuda_worker.py")


@pytest.mark.parametrize(("size", "path"), [(1, BY_HOST), (2, BY_HOST), (2, BY_NCCL)])
def test_arrays_on_gpus(launcher: Launcher, size: int, path: str) -> None:
    version = "22707" if path == BY_NCCL else "0"
    environment = launcher.environment(LD_LIBRARY_PATH=path, EXPECTED_NCCL=version)
    done = launcher.run("-np", str(size), sys.executable, str(WORKER), env=environment)
    assert done.returncode == 0, done.stderr
    for words in ("Array is", "Exporter is", "LegacyExporter is"):
        assert done.stdout.count(f"{words} read after its stream") >= 3
    for words in ("ArrayWithoutStreams is", "ExporterWithoutWait is"):
        assert done.stdout.count(f"{words} read too early") == 3
    assert "a child leaves the driver alone" in done.stdout


def test_check_build_finds_gpus(launcher: Launcher) -> None:
    environment = launcher.environment(LD_LIBRARY_PATH=BY_NCCL, STANDIN_DEVICES="1")
    text = launcher.run("--check-build", env=environment).stdout
    assert "GPUs: 1 GPU by a driver for CUDA 13.0: stand-in GPU. The authors have tested tensors on" in text
    assert "    [X] NCCL\n" in text
    path = STANDIN / "nccl" / "libnccl.so.2"
    assert f"\nNCCL 2.27.7 ({path}); never run by the authors on a GPU.\n" in text


def test_a_driver_without_gpus(launcher: Launcher) -> None:
    environment = launcher.environment(LD_LIBRARY_PATH=str(STANDIN), CUDA_VISIBLE_DEVICES="")
    text = launcher.run("--check-build", env=environment).stdout
    assert "GPUs: the driver finds no GPU; `nvidia-smi` and CUDA_VISIBLE_DEVICES may say why.\n" in text


def test_a_host_without_a_driver(launcher: Launcher) -> None:
    """A GPU's tensor is refused, and the text says why."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("this host has a driver")
    assert (
        "GPUs: no driver for NVIDIA's GPUs was found: libcuda.so.1: " in launcher.run("--check-build").stdout
    )
    script = launcher.script(
        "import ctypes\n"
        "import horovod as hvd\n"
        "from dlpack_structures import Managed, Tensor, make_capsule\n"
        "class Array:\n"
        "    def __dlpack__(self, **_):\n"
        "        self.shape = (ctypes.c_int64 * 1)(4)\n"
        "        self.managed = Managed(1, 0, None, None, 0, Tensor(64, 2, 0, 1, 2, 32, 1, self.shape))\n"
        "        return make_capsule(self.managed, b'dltensor_versioned')\n"
        "hvd.init()\n"
        "assert not hvd.cuda_built()\n"
        "try:\n"
        "    hvd.allreduce_(Array())\n"
        "except ValueError as error:\n"
        "    print(error)\n"
    )
    environment = launcher.environment(PYTHONPATH=str(Path(__file__).parent))
    done = launcher.run("-np", "1", sys.executable, script, env=environment)
    assert (
        "tensor 0 is on a GPU, which this process can't use (no driver for NVIDIA's GPUs was found: "
        in done.stdout
    )
    assert done.stdout.rstrip().endswith("; copy it to the CPU")
