"""Collectives by an MPI, in processes that its mpirun has started; communicators of mpi4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARIES = {
    "openmpi": "libmpi.so.40",
    "mpich": "libmpich.so.12",
    "intel": "libmpi.so.12",
    "standard": "libmpi_abi.so.1",  # MPICH 5
}
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")},
    "HOROVOD_CPU_OPERATIONS": "mpi",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


@dataclass(frozen=True)
class Mpi:
    kind: str
    folder: Path  # of its programs

    @property
    def mpirun(self) -> str:
        return self.program("mpirun")

    @property
    def is_debians(self) -> bool:
        return self.kind in ("openmpi", "mpich")

    def program(self, name: str) -> str:
        """Debian has two of each, with the kind in their names."""
        return str(self.folder / (f"{name}.{self.kind}" if self.is_debians else name))

    @property
    def variables(self) -> dict[str, str]:
        """Others have their library beside the mpirun, where no loader looks; MPICH has two of them."""
        path = {} if self.is_debians else {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        return path | ({"HOROVOD_MPI_LIBRARY": self.library} if self.kind == "standard" else {})

    @property
    def library(self) -> str:
        name = LIBRARIES[self.kind]
        return name if self.is_debians else str(self.folder.parent / "lib" / name)

    def find_compiler(self) -> str:
        program = self.program("mpicc_abi" if self.kind == "standard" else "mpicc")
        return shutil.which(program) or pytest.skip(f"there is no {program}")

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run(self.mpirun, *command, **(self.variables | variables))


def find_mpi(kind: str) -> Mpi:
    folders = {"intel": Path(os.environ.get("I_MPI_ROOT", "")), "standard": Path(sys.prefix, "mpi5")}
    if kind in folders:
        if (folders[kind] / "bin" / "mpirun").exists():
            return Mpi(kind, folders[kind] / "bin")
        if kind == "intel":
            pytest.skip("I_MPI_ROOT names no Intel MPI: pip install impi-rt, and set it to sys.prefix")
        pytest.skip(f"there is no MPICH 5 in {folders[kind]}: see tools/venv.sh")
    program = shutil.which(f"mpirun.{kind}")
    return Mpi(kind, Path(program).parent) if program else pytest.skip(f"mpirun.{kind}: see tools/deps.sh")


@pytest.fixture(params=LIBRARIES)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return find_mpi(request.param)


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**ENVIRONMENT, **variables}, capture_output=True, text=True, timeout=120
    )


LIBRARY = """
import numpy as np, horovod as hvd
assert not hvd.mpi_enabled()
hvd.init()
assert hvd.mpi_enabled() and hvd.mpi_built() and hvd.mpi_threads_supported()
for round in range(2):
    assert hvd.allreduce(np.ones(5, np.float16), op=hvd.Sum)[4] == hvd.size()
if hvd.rank() == 0:
    print([line.split("/")[-1] for line in open("/proc/self/maps").read().split() if "libmpi" in line][0])
hvd.shutdown()
hvd.init()
assert hvd.allreduce(np.ones(5), op=hvd.Sum)[4] == hvd.size()
"""


def test_the_timeline_says_mpi(mpi: Mpi, tmp_path: Path) -> None:
    """The library is that of the mpirun, and batches go there; after a shutdown, too."""
    timeline = tmp_path / "timeline.json"
    result = mpi.run("-np", "2", sys.executable, "-c", LIBRARY, HOROVOD_TIMELINE=str(timeline))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(LIBRARIES[mpi.kind])
    assert '_MPI"' in timeline.read_text()


COMMUNICATORS = """
import os
from mpi4py import MPI
import numpy as np, horovod as hvd
world = MPI.COMM_WORLD
if os.environ["HOROVOD_CPU_OPERATIONS"] == "mpi":
    hvd.init(comm=[2, 0] if world.rank != 1 else [1])
    assert hvd.allreduce(np.array([10.0 ** world.rank]), op=hvd.Sum)[0] == (10 if world.rank == 1 else 101)
    hvd.shutdown()
    for life in range(3):  # rank 0, which serves the others, leaves at once
        hvd.init(comm=[0] if world.rank == 0 else [1, 2])
        assert hvd.size() == (1 if world.rank == 0 else 2)
        hvd.shutdown()
half = world.Split(world.rank % 2, -world.rank)
hvd.init(comm=half)
half_size, half_rank = half.size, half.rank
half.Free()
assert (hvd.rank(), hvd.size()) == (half_rank, half_size)
for round in range(20):  # MPI's own calls among ours, some while ours are under way
    handle = hvd.allreduce_async(np.full(100000, 10.0 ** world.rank), name=f"x{round}", op=hvd.Sum)
    assert world.allreduce(1) == world.size
    total = hvd.synchronize(handle)[0]
hvd.shutdown()
hvd.init(comm=world)
everybody = hvd.allreduce(np.array([1.0]), op=hvd.Sum)[0]
os.write(1, f"{world.rank} {total:.0f} {everybody:.0f}\\n".encode())  # mpirun may mix the parts of lines
"""


@pytest.mark.parametrize("operations", ["mpi", "gloo"])
def test_communicators_of_mpi4py(mpi: Mpi, operations: str, tmp_path: Path) -> None:
    """A split communicator is the job, whatever moves the bytes; MPI's calls and ours interleave."""
    pytest.importorskip("mpi4py")
    if mpi.kind == "standard":
        pytest.skip("mpi4py opens the other library of MPICH 5")
    variables = {"HOROVOD_CPU_OPERATIONS": operations}
    if mpi.kind == "mpich":  # Debian's name for it is another
        library = next(Path("/usr/lib").glob("*/libmpich.so.12"))
        (tmp_path / "libmpi.so.12").symlink_to(library)
        variables |= {"LD_LIBRARY_PATH": str(tmp_path), "MPI4PY_MPIABI": "mpich"}
    if mpi.kind == "intel":
        variables |= {"LD_LIBRARY_PATH": str(mpi.folder.parent / "lib"), "MPI4PY_MPIABI": "mpich"}
    result = mpi.run("-np", "3", sys.executable, "-c", COMMUNICATORS, **variables)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["0 101 3", "1 10 3", "2 101 3"]


ABSENT = """
import ctypes, os, signal, sys, time
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
mpi = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
mpi.MPI_Init_thread(None, None, int(sys.argv[2]), ctypes.byref(ctypes.c_int()))
if rank:
    time.sleep(60)
import horovod as hvd
{wait}
"""

TIMES_OUT = """
for attempt in range(2):
    try:
        hvd.init()
    except Exception as error:
        os.write(1, f"{error}\\n".encode())
os._exit(1)
"""

INTERRUPTED = """
import threading
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    hvd.init()
except KeyboardInterrupt:
    os.write(1, b"interrupted\\n")
os._exit(1)
"""


@pytest.mark.parametrize("wait", [TIMES_OUT, INTERRUPTED])
def test_a_rank_that_does_not_come(mpi: Mpi, wait: str) -> None:
    """It is in MPI, but never calls hvd.init(): the others say so in time, and answer Ctrl-C."""
    program = ABSENT.replace("{wait}", wait)
    multiple = "4096" if mpi.kind == "standard" else "3"  # MPI_THREAD_MULTIPLE
    words = ["-np", "2", sys.executable, "-c", program, mpi.library, multiple]
    result = mpi.run(*words, HOROVOD_START_TIMEOUT="2" if wait == TIMES_OUT else "50")
    said = "not all 2 of the communicator have called hvd.init() within the time to start"
    expected, count = (said, 2) if wait == TIMES_OUT else ("interrupted", 1)
    assert result.stdout.count(expected) == count, result.stdout + result.stderr


OTHER = """
#include <mpi.h>
#include <string.h>
int main(int argc, char **argv)
{
    int threads;
    MPI_Request arrived;
    MPI_Group group;
    MPI_Comm job;
    char own[64] = "horovod\\0" "0.28.1", all[128];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
    MPI_Ibarrier(MPI_COMM_WORLD, &arrived);
    MPI_Wait(&arrived, MPI_STATUS_IGNORE);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &job);
    MPI_Allgather(own, 64, MPI_BYTE, all, 64, MPI_BYTE, job);
    return MPI_Finalize();
}
"""


def test_another_release(mpi: Mpi, tmp_path: Path) -> None:
    """A stand-in that sends the first message of another release, which begins with the release."""
    compiler = mpi.find_compiler()
    (tmp_path / "other.c").write_text(OTHER)
    subprocess.run([compiler, "other.c", "-o", "other"], cwd=tmp_path, check=True)
    program = "import horovod as hvd; hvd.init()"
    words = ["-np", "1", sys.executable, "-c", program, ":", "-np", "1", str(tmp_path / "other")]
    result = mpi.run(*words)
    assert "rank 1 runs release 0.28.1 of horovod, but rank 0 runs 1." in result.stderr


@pytest.mark.parametrize("kind", ["intel", "standard"])
def test_every_operation(kind: str) -> None:
    """As CMake runs it by Debian's MPIs."""
    program = ROOT / "build" / "test" / "group_test_collectives"
    variables = {"HOROVOD_TEST_MPI": "2", "HOROVOD_TEST_FILTER": "over_shm_nontemporal_stores"}
    result = find_mpi(kind).run("-np", "2", str(program), **variables)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert re.search(r" [1-9]\d* test.s. run", result.stdout + result.stderr)


LINKED = """
#include <mpi.h>
#include <horovod.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int threads;
    hvd_context *context;
    hvd_status status;
    MPI_Comm world = MPI_COMM_WORLD; /* a copy relocation of Open MPI's object */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
    float data = 1;
    hvd_tensor tensor = {.data = &data, .dtype = HVD_FLOAT32, .device_type = HVD_CPU};
    hvd_request sum = {
        .struct_size = sizeof sum, .reduction = HVD_SUM, .name = "x", .count = 1, .inputs = &tensor};
    if (hvd_init(NULL, &context, &status) || hvd_run(context, &sum, NULL, &status))
        puts(status.text);
    MPI_Allreduce(MPI_IN_PLACE, &data, 1, MPI_FLOAT, MPI_SUM, world);
    printf("%g\\n", data);
    hvd_shutdown(context);
    return MPI_Finalize();
}
"""


def test_a_program_that_is_linked_with_mpi(mpi: Mpi, tmp_path: Path) -> None:
    """It contains copies of the library's objects."""
    compiler = mpi.find_compiler()
    (tmp_path / "linked.c").write_text(LINKED)
    build = ROOT / "build"
    options = [f"-I{ROOT / 'include'}", f"-L{build}", f"-Wl,-rpath,{build}", "-lhorovod"]
    subprocess.run([compiler, "linked.c", "-o", "linked", *options], cwd=tmp_path, check=True)
    result = mpi.run("-np", "2", str(tmp_path / "linked"))
    assert result.stdout.split() == ["4", "4"], result.stdout + result.stderr


def test_no_starter() -> None:
    result = run(sys.executable, "-c", "import horovod as hvd; hvd.init()")
    assert "start them with `horovodrun --mpi -np N ...` or with mpirun" in result.stderr.splitlines()[-1]


def test_no_such_library(mpi: Mpi) -> None:
    program = "import horovod as hvd; hvd.init()"
    result = mpi.run("-np", "1", sys.executable, "-c", program, HOROVOD_MPI_LIBRARY="libmissing.so.9")
    assert "can't open the MPI of HOROVOD_MPI_LIBRARY: libmissing.so.9" in result.stderr


def test_a_library_of_another_mpi(mpi: Mpi) -> None:
    """Each process would be alone in it."""
    other = LIBRARIES["mpich" if mpi.kind == "openmpi" else "openmpi"]
    program = "import horovod as hvd; hvd.init(); print(hvd.size())"
    result = mpi.run("-np", "2", sys.executable, "-c", program, HOROVOD_MPI_LIBRARY=other)
    assert "is not the MPI that has started" in result.stderr, (result.stdout, result.stderr)


def test_no_mpi_at_all() -> None:
    program = "import horovod as hvd; hvd.init()"
    result = run(sys.executable, "-c", program, PMI_RANK="0", HOROVOD_MPI_LIBRARY="libm.so.6")
    assert "libm.so.6 is an MPI of an unknown kind" in result.stderr


def test_no_encryption_by_mpi() -> None:
    """Before MPI is looked for: it would send the tensors in clear."""
    result = run(sys.executable, "-c", "import horovod as hvd; hvd.init()", HOROVOD_ENCRYPTION="1")
    assert "HOROVOD_ENCRYPTION=1 with HOROVOD_CPU_OPERATIONS=mpi: MPI would send the tensors" in result.stderr
    assert result.returncode == 1


def test_unknown_operations() -> None:
    result = run(sys.executable, "-c", "import horovod as hvd; hvd.init()", HOROVOD_CPU_OPERATIONS="nccl")
    assert "HOROVOD_CPU_OPERATIONS=nccl: it is 'mpi', or 'gloo'" in result.stderr


DEATH = """
import os, signal, threading, numpy as np, horovod as hvd
hvd.init()
x = np.ones(1 << 22, np.float32)
hvd.allreduce(x, name="first")
if hvd.rank() == 1:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    hvd.allreduce(x, name="x")
"""


def test_a_rank_dies(mpi: Mpi) -> None:
    """The MPI ends the job; nothing hangs."""
    result = mpi.run("-np", "2", sys.executable, "-c", DEATH)
    assert result.returncode != 0


@pytest.fixture
def folder_of_mpirun(mpi: Mpi, tmp_path: Path) -> str:
    """A PATH on which it is mpirun."""
    if "PATH" in mpi.variables:
        return mpi.variables["PATH"]
    program = tmp_path / "mpirun"
    program.write_text(f'#!/bin/sh\nexec {mpi.mpirun} "$@"\n')
    program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def horovodrun(*words: str, path: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run("horovodrun", *words, **{"PATH": path, "HOROVOD_CPU_OPERATIONS": "", **variables})


PLACE = """
import os, numpy as np, horovod as hvd
hvd.init()
total = hvd.allreduce(np.ones(3, np.float16), op=hvd.Sum)[0]
line = f"place {hvd.rank()} {hvd.size()} {hvd.mpi_enabled()} {int(total)} {os.environ['HOROVOD_CYCLE_TIME']}"
os.write(1, (line + os.linesep).encode())  # at once: mpirun labels what comes in one piece
"""


def test_horovodrun(folder_of_mpirun: str) -> None:
    """Settings reach the ranks, and --mpi-args the mpirun; numbers of another starter do not."""
    words = ["--mpi", "--mpi-args=-wdir /", "--cycle-time-ms", "0.5", "-np"]
    result = horovodrun(*words, "3", sys.executable, "-c", PLACE, path=folder_of_mpirun, HOROVOD_RANK="7")
    assert result.returncode == 0, result.stderr
    lines = sorted(re.findall(r"place (.*)", result.stdout))
    assert lines == [f"{rank} 3 True 3 0.5" for rank in range(3)]
    assert horovodrun(*words, "1", "pwd", path=folder_of_mpirun).stdout.endswith("/\n")


def test_horovodrun_hands_the_exit_code_on(folder_of_mpirun: str) -> None:
    assert horovodrun("--mpi", "-np", "2", "sh", "-c", "exit 3", path=folder_of_mpirun).returncode == 3


def test_horovodrun_without_an_mpi(tmp_path: Path) -> None:
    program, shell = shutil.which("horovodrun"), shutil.which("sh")
    assert program and shell
    (tmp_path / "sh").symlink_to(shell)
    result = run(program, "--mpi", "-np", "2", "true", PATH=str(tmp_path))
    assert result.returncode == 2
    assert "there is no mpirun of Open MPI, MPICH or Intel MPI on the PATH" in result.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--host-setup", "true"], "--host-setup can't be used with --mpi"),
        (["--report", "F.html"], "--report can't be used with --mpi"),
        (["--metrics-ranks", "5"], "--metrics-ranks can't be used with --mpi"),
        (["-H", "me@localhost:2"], "mpirun takes no user and no port of a host"),
        (["--mpi-args", "a'b"], "--mpi-args: 'a'b' can't be split into words"),
    ],
)
def test_horovodrun_refuses(folder_of_mpirun: str, words: list[str], problem: str) -> None:
    result = horovodrun("--mpi", "-np", "2", *words, "true", path=folder_of_mpirun)
    assert (result.returncode, problem in result.stderr) == (2, True), result.stderr


def test_what_is_for_ssh_reaches_mpirun(tmp_path: Path) -> None:
    """One of Open MPI, as a stand-in, which shows the variables that all three read."""
    script = '#!/bin/sh\ntest "$1" != --version || exec echo "Open MPI"\nenv | grep -i _args= | sort\n'
    (tmp_path / "mpirun").write_text(script)
    (tmp_path / "mpirun").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    words = ["--mpi", "-np", "1", "-p", "2222", "-i", "key", "true"]
    result = horovodrun(*words, path=path, OMPI_MCA_plm_rsh_args="-q")
    assert result.stdout.splitlines() == [
        "HYDRA_LAUNCHER_EXTRA_ARGS=-p 2222 -i key",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS=-p 2222 -i key",
        "OMPI_MCA_plm_rsh_args=-q -p 2222 -i key",
        "PRTE_MCA_plm_ssh_args=-p 2222 -i key",
    ], result.stderr
    result = horovodrun("--mpi", "-np", "1", "-i", "a key", "true", path=path)
    assert (result.returncode, "mpirun takes no path with blanks" in result.stderr) == (2, True)


STAND_IN = """#!/bin/sh
test "$1" != --version || exec echo "Intel(R) MPI Library for Linux* OS"
echo "$1 $2 $3 $4" && cat "$5"
"""


def test_unequal_hosts_of_intel_mpi(tmp_path: Path) -> None:
    """By a stand-in for its mpirun: the list of hosts is a file, since -hosts takes no numbers of ranks."""
    (tmp_path / "mpirun").write_text(STAND_IN)
    (tmp_path / "mpirun").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    result = horovodrun("--mpi", "-np", "4", "-H", "a:1,b:3", "true", path=path)
    assert result.stdout.splitlines() == ["-np 4 -l -machinefile", "a:1", "b:3"], result.stderr
