"""Programs that a rank starts inherit the variables of its rank, which names one process at a time."""

from __future__ import annotations

import os
import re

import pytest
from conftest import DEADLINE, Launcher, free_port
from starter import OPEN_MPI, Starter

long = pytest.mark.skipif("HOROVOD_TEST_FULL" not in os.environ, reason="long: HOROVOD_TEST_FULL=1")
WAYS = 5  # to start a process, below

# Each rank starts processes that call init: while it is a rank itself, and after that.
PROGRAM = """
import multiprocessing, os, subprocess, sys
import numpy as np
import horovod as hvd

def total(name):
    hvd.init()
    result = int(hvd.allreduce(np.full(4, hvd.rank() + 1.0), op=hvd.Sum, name=name)[3])
    hvd.shutdown()
    return result

def join():
    try:
        hvd.init()
        print("JOINED", flush=True)
    except ValueError as error:
        print("REFUSED", os.getpid(), error, flush=True)

def start_children():
    program = [sys.executable, __file__, "join"]
    subprocess.run(program, check=True)
    subprocess.run(program, check=True, close_fds=False)
    for method in ("spawn", "forkserver", "fork"):
        process = multiprocessing.get_context(method).Process(target=join)
        process.start()
        process.join(60)
        assert process.exitcode == 0, (method, process.exitcode)

if __name__ == "__main__":
    if sys.argv[1:] == ["join"]:
        join()
    elif sys.argv[1:] == ["next"]:
        print("NEXT", total("next"), flush=True)
    else:
        first = total("first")
        hvd.init()
        print("RANK", os.getpid(), flush=True)
        start_children()
        print("RIGHT", first, int(hvd.allreduce(np.ones(4), op=hvd.Sum)[0]), flush=True)
        hvd.shutdown()
        if "HOROVOD_JOB" in os.environ:  # elsewhere rank 0's process serves the rendezvous itself
            subprocess.run([sys.executable, __file__, "next"], check=True)
        print("LAST", total("last"), flush=True)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["horovodrun"],
        OPEN_MPI,
        ["mpirun.mpich"],
        pytest.param(
            ["torchrun", "--no-python", "--standalone"],
            marks=long,
        ),
    ],
)
def test_children_of_a_rank(starter: Starter, words: list[str]) -> None:
    """They are rejected at once, with a reason; the job continues, and a later life may use any of them."""
    count = "--nproc-per-node" if words[0] == "torchrun" else "-np"
    program = starter.launcher.python(PROGRAM)
    result = starter.run(*words, count, "2", *program, HOROVOD_START_TIMEOUT="300")
    assert result.returncode == 0, result.stderr
    check_children(result.stdout)
    assert result.stdout.count("NEXT 3") == (2 if words[0] == "horovodrun" else 0)
    assert starter.launcher.none_alive()


@long
def test_children_of_a_rank_that_was_started_by_hand(starter: Starter) -> None:
    program = starter.launcher.python(PROGRAM)
    place = {"HOROVOD_SIZE": "2", "HOROVOD_RENDEZVOUS": f"127.0.0.1:{free_port()}"} | starter.secret_file()
    ranks = [starter.start([], *program, HOROVOD_RANK=str(rank), **place) for rank in range(2)]
    texts = [rank.communicate(timeout=DEADLINE) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], texts
    check_children("".join(out for out, _ in texts))
    assert starter.launcher.none_alive()


def check_children(output: str) -> None:
    assert "JOINED" not in output
    assert output.count("RIGHT 3 2") == output.count("LAST 3") == 2, output
    ranks = re.findall(r"RANK (\d+)", output)
    refused = re.findall(r"REFUSED (\d+) (.*)", output)
    assert len(refused) == WAYS * len(ranks)
    for pid, text in refused:
        if "PMI_FD=" not in text:  # a closed connection says it before
            assert text.startswith(f"process {pid} can't be rank ")
            assert any(f"process {rank} is this rank already" in text for rank in ranks), text


UNGUARDED = """
import multiprocessing
import horovod as hvd
hvd.init()
process = multiprocessing.get_context("spawn").Process(target=print)
process.start()
process.join(60)
hvd.barrier()
print("ENDED", process.exitcode, flush=True)
"""


def test_worker_of_a_script_without_a_guard(launcher: Launcher) -> None:
    """It runs the script once more, and says what to write."""
    environment = launcher.environment(HOROVOD_START_TIMEOUT="300")
    result = launcher.run("-np", "2", *launcher.python(UNGUARDED), env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("ENDED 1") == 2
    assert result.stderr.count('if __name__ == "__main__"') >= 2


# ---- jobs that a rank starts -----------------------------------------------------------------------------

JOBS = """
import subprocess, sys
import numpy as np
import horovod as hvd
from horovod.runner import run

def join():
    hvd.init()
    return hvd.rank(), hvd.size(), int(hvd.allreduce(np.ones(4), op=hvd.Sum)[0])

if __name__ == "__main__":
    if sys.argv[1:]:
        print("INNER", *join(), flush=True)
    else:
        hvd.init()
        subprocess.run(["horovodrun", "-np", "3", sys.executable, __file__, "inner"], check=True)
        assert run(join, np=2) == [(0, 2, 2), (1, 2, 2)]
        print("OUTER", int(hvd.allreduce(np.ones(4), op=hvd.Sum)[0]), flush=True)
"""
every_starter = pytest.mark.parametrize(
    "words",
    [
        ["horovodrun", "-np"],
        pytest.param([*OPEN_MPI, "-np"], marks=long),
        pytest.param(["mpirun.mpich", "-np"], marks=long),
        pytest.param(["torchrun", "--no-python", "--standalone", "--nproc-per-node"], marks=long),
    ],
)


@every_starter
def test_jobs_of_a_rank(starter: Starter, words: list[str]) -> None:
    """The variables of the outer rank mean nothing to the launcher of another job."""
    result = starter.run(*words, "2", *starter.launcher.python(JOBS))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("OUTER 2") == 2, result.stdout
    for rank in range(3):
        assert result.stdout.count(f"INNER {rank} 3 3") == 2, result.stdout
    assert starter.launcher.none_alive()


WRAPPER = """
import subprocess, sys, time
import numpy as np
import horovod as hvd
hvd.init()
rank, total = hvd.rank(), int(hvd.allreduce(np.ones(4), op=hvd.Sum)[0])
hvd.shutdown()
if not sys.argv[1:]:
    time.sleep(0 if rank else 1)  # the others look for an offer before there is a new one
    subprocess.run([sys.executable, __file__, "program"], check=True)
print("TOTAL", total, flush=True)
"""


@pytest.mark.parametrize("words", [["horovodrun"], OPEN_MPI])
def test_wrapper_that_was_a_rank(starter: Starter, words: list[str]) -> None:
    """The program that it starts is the rank next, and doesn't meet what the wrapper has offered."""
    result = starter.run(*words, "-np", "2", *starter.launcher.python(WRAPPER), HOROVOD_START_TIMEOUT="60")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("TOTAL 2") == 4, result.stdout


RESTARTED = """
import os, signal
import numpy as np
import horovod as hvd
hvd.init()
life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
hvd.barrier()
if life == 0 and hvd.rank() == int(os.environ["VICTIM"]):
    os.kill(os.getpid(), signal.SIGKILL)
os.write(1, b"LIFE %d %d\\n" % (life, hvd.allreduce(np.ones(4), op=hvd.Sum)[0]))
"""


@long
@pytest.mark.parametrize("victim", [0, 1])
def test_restart_by_torchrun(starter: Starter, victim: int) -> None:
    """A rank is free as soon as its process has ended."""
    words = ["torchrun", "--no-python", "--standalone", "--max-restarts", "1", "--nproc-per-node", "2"]
    result = starter.run(*words, *starter.launcher.python(RESTARTED), VICTIM=str(victim))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["LIFE 1 2"] * 2


LOADER = """
import torch
import horovod.torch as hvd
hvd.init()
data = torch.utils.data.TensorDataset(torch.arange(8.0))
for _ in torch.utils.data.DataLoader(data, num_workers=1, multiprocessing_context="spawn"):
    pass
"""


@long
def test_spawned_data_loader_without_a_guard(launcher: Launcher) -> None:
    environment = launcher.environment(HOROVOD_START_TIMEOUT="300")
    result = launcher.run("-np", "2", *launcher.python(LOADER), env=environment)
    assert result.returncode != 0
    assert 'if __name__ == "__main__"' in result.stderr
    assert launcher.none_alive()
