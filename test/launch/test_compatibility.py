"""docs/compatibility.md says the truth: the names, options and variables of its tables."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Launcher

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
STATES = ("works", "better", "later", "left out")

# What stands for a value in the table of options, and a value.
VALUES = {
    "N": "2",
    "X": "2.5",
    "NOISE": "0.5",
    "PORT": "22",
    "FILE": "some.file",
    "FOLDER": "folder",
    "SCRIPT": "echo localhost:2",
    "LIST": "lo",
    "CORES": "0,0",
    "TEXT": "-x A",
    "LEVEL": "INFO",
    "HOSTS": "localhost:2",
    "HOSTFILE": "hosts",
    "CONFIG": "run.yaml",
}


def tables() -> Iterator[tuple[str, str, list[str]]]:
    """Heading, title of the first column and cells of every row of the page."""
    heading = first = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        if not line.startswith("|"):
            first = ""
        elif not first:
            first = line.strip("| ").split("|")[0].strip()
        elif not line.startswith("|---"):
            yield heading, first, [cell.strip() for cell in line.strip("|").split("|")]


def rows(heading: str, first: str) -> list[list[str]]:
    found = [cells for under, title, cells in tables() if under == heading and title == first]
    assert found, f"{PAGE.name} has no table of {first} under {heading}"
    return found


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


MODULES = {
    "`horovod` and `horovod.torch`": ["horovod", "horovod.torch"],
    "`horovod.common`": ["horovod.common"],
    "`horovod.torch`": ["horovod.torch"],
    "`horovod.run`": [""],
    "`horovod.tensorflow`": ["horovod.tensorflow"],
    "`horovod.keras`": ["horovod.keras"],
    "`horovod.mxnet`": ["horovod.mxnet"],
}
NAMES = [
    pytest.param(module, name, *cells[1:3], id=f"{module}.{name}".strip("."))
    for heading, modules in MODULES.items()
    for cells in rows(heading, "name")
    for name in quoted(cells[0])
    for module in modules
]


def find(module: str, name: str) -> Any:
    """The object, or None; modules on the way are imported."""
    path = f"{module}.{name}".strip(".").split(".")
    found = importlib.import_module(path[0])
    for depth, part in enumerate(path[1:], 2):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join(path[:depth]))
            except ImportError:
                return None
        found = getattr(found, part, None)
    return found


def spelled(parameter: inspect.Parameter) -> str:
    """As the page writes it."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    name = stars + parameter.name
    if parameter.default is parameter.empty:
        return name
    known = {"process_set": "global_process_set", "compression": "Compression.none"}
    if parameter.name == "op" and parameter.default == 0:
        return "op=Average"
    if parameter.name in known and parameter.default is not None:
        return f"{name}={known[parameter.name]}"
    return f"{name}={parameter.default!r}"


def check_parameters(expected: list[str], found: list[inspect.Parameter]) -> None:
    found = [each for each in found if each.kind is not each.KEYWORD_ONLY or spelled(each) in expected]
    for wanted, parameter in zip(expected, found, strict=False):
        assert wanted in (spelled(parameter), spelled(parameter).partition("=")[0])
    assert len(found) >= len(expected)
    assert all(parameter.default is not parameter.empty for parameter in found[len(expected) :])


@pytest.mark.parametrize(("module", "name", "parameters", "state"), NAMES)
def test_names(module: str, name: str, parameters: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state in STATES
    if module == "horovod.tensorflow":
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    if module == "horovod.mxnet":
        pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)
    if module == "horovod.keras":
        monkeypatch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "torch"))
        pytest.importorskip("keras", reason="Keras is not installed", exc_type=ImportError)
    found = find(module, name)
    assert (found is None) == (state in ("later", "left out"))
    if parameters.isdigit():
        assert found == int(parameters)
    for signature in quoted(parameters):
        if signature.startswith("("):
            expected = [word for word in re.split(r", (?![^(]*\)\))", signature[1:-1]) if word]
            check_parameters(expected, list(inspect.signature(found).parameters.values()))


# What an option needs beside it.
BESIDE = {
    "--max-np": ["--min-np", "1"],
    "--max-num-proc": ["--min-np", "1"],
    "--elastic-timeout": ["--min-np", "1"],
    "--reset-limit": ["--min-np", "1"],
    "--blacklist-cooldown-range": ["--min-np", "1"],
    "--slots-per-host": ["--host-discovery-script", "echo localhost"],
}

OPTIONS = [
    pytest.param(option, cells[1], id=option)
    for cells in rows("Options of `horovodrun`", "option")
    for option in quoted(cells[0])
]


@pytest.mark.parametrize(("option", "state"), OPTIONS)
def test_options(launcher: Launcher, option: str, state: str) -> None:
    (launcher.folder / "hosts").write_text("localhost slots=2\n")
    (launcher.folder / "run.yaml").write_text("params: {cycle_time_ms: 1}\n")
    words = [VALUES.get(word, word) for word in option.split()]
    result = launcher.run("-np", "2", *BESIDE.get(words[0], []), *words, "true")
    assert state in STATES
    if state != "later":
        assert result.returncode == 0, result.stderr
        assert "warning" not in result.stderr
    else:
        assert result.returncode == 2
        assert "later version" in result.stderr


VARIABLES = [
    pytest.param(variable, cells[1], id=variable)
    for cells in rows("Variables", "variable")
    for variable in quoted(cells[0])
]


@pytest.mark.parametrize(("variable", "state"), VARIABLES)
def test_variables(variable: str, state: str) -> None:
    read = [ROOT / "src/base/settings.def", ROOT / "src/bootstrap/starters.c"]
    read += [ROOT / "launch/environment.c", ROOT / "launch/hosts.c", ROOT / "launch/elastic_options.c"]
    read += [*(ROOT / "python").rglob("*.py")]
    if state in ("works", "better"):
        read.append(ROOT / "launch/foreign.def")
    known = any(re.search(rf'"{variable}["=]', path.read_text()) for path in read)
    assert state in STATES
    assert known == (state in ("works", "better"))


PROOFS = [
    pytest.param(proof, id=proof)
    for first in ("operation", "check")
    for cells in rows("Operations and their checks", first)
    for proof in quoted(cells[2])
]


@pytest.mark.parametrize("proof", PROOFS)
def test_proofs_exist(proof: str) -> None:
    path, _, name = proof.partition("::")
    pattern = rf"TEST\({name}[,)]" if path.endswith(".c") else rf"(?m)^def {name}\("
    assert re.search(pattern, (ROOT / path).read_text())


def test_every_check_has_a_state_and_a_proof() -> None:
    for first in ("operation", "check"):
        for _, state, proof in rows("Operations and their checks", first):
            word = state.split(",")[0]
            assert word in STATES
            assert bool(proof) == (word in ("works", "better"))


# All that Horovod has, so that no row of the page gets lost.
HOROVOD_NAMES = """
init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous
start_timeline stop_timeline mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built ddl_built
ccl_built cuda_built rocm_built nccl_built ProcessSet global_process_set add_process_set remove_process_set
Average Sum Adasum Min Max Product Compression HorovodInternalError exceptions.HostsUpdatedInterrupt
exceptions.HorovodVersionMismatchError util.extension_available util.gpu_available util.mpi_built
util.gloo_built util.nccl_built util.ddl_built util.ccl_built util.check_extension util.get_ext_suffix
util.get_extension_full_path util.env util.split_list util.num_rank_is_power_2 util.is_iterable
util.is_version_greater_equal_than util._cache util.get_average_backwards_compatibility_fun
util.check_installed_version allreduce allreduce_ allreduce_async allreduce_async_ grouped_allreduce
grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_ sparse_allreduce_async allgather
allgather_async grouped_allgather grouped_allgather_async broadcast broadcast_ broadcast_async
broadcast_async_ alltoall alltoall_async reducescatter reducescatter_async grouped_reducescatter
grouped_reducescatter_async poll synchronize join barrier broadcast_parameters broadcast_optimizer_state
broadcast_object allgather_object DistributedOptimizer SyncBatchNorm elastic horovod.run
"""
HOROVOD_OPTIONS = """
-v --version -cb --check-build -np --num-proc -H --hosts -hostfile --hostfile --host-discovery-script --gloo
--mpi --jsrun -p --ssh-port -i --ssh-identity-file --network-interfaces --network-interface --start-timeout
--disable-cache --output-filename --verbose --config-file --fusion-threshold-mb --cycle-time-ms
--cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather
--no-hierarchical-allgather --torus-allreduce --no-torus-allreduce --autotune --no-autotune
--autotune-log-file --autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples
--autotune-gaussian-process-noise --min-np --min-num-proc --max-np --max-num-proc --slots-per-host
--elastic-timeout --reset-limit --blacklist-cooldown-range --timeline-filename --timeline-mark-cycles
--no-timeline-mark-cycles --stall-check --no-stall-check --stall-check-warning-time-seconds
--stall-check-shutdown-time-seconds --mpi-threads-disable --no-mpi-threads-disable --mpi-args --tcp
--binding-args --num-nccl-streams --thread-affinity --gloo-timeout-seconds --log-level --log-with-timestamp
--log-without-timestamp --log-hide-timestamp --no-log-hide-timestamp -prefix-timestamp
--prefix-output-with-timestamp
"""
HOROVOD_VARIABLES = """
RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT
GLOO_IFACE GLOO_TIMEOUT_SECONDS CONTROLLER CPU_OPERATIONS FUSION_THRESHOLD CYCLE_TIME CACHE_CAPACITY
HIERARCHICAL_ALLREDUCE HIERARCHICAL_ALLGATHER TORUS_ALLREDUCE AUTOTUNE AUTOTUNE_LOG AUTOTUNE_WARMUP_SAMPLES
AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_BAYES_OPT_MAX_SAMPLES AUTOTUNE_GAUSSIAN_PROCESS_NOISE TIMELINE
TIMELINE_MARK_CYCLES STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS LOG_LEVEL
LOG_HIDE_TIME MPI_THREADS_DISABLE NUM_NCCL_STREAMS BATCH_D2D_MEMCOPIES DISABLE_GROUP_FUSION
ENABLE_ASYNC_COMPLETION ENABLE_XLA_OPS DISABLE_NVTX_RANGES DYNAMIC_PROCESS_SETS ELASTIC THREAD_AFFINITY
ADASUM_MPI_CHUNK_SIZE CCL_CACHE START_TIMEOUT ELASTIC_TIMEOUT SPARK_START_TIMEOUT SPARK_WORK_DIR
SPARK_PYTHONPATH SPARK_USE_LOCAL_RANK_GPU_INDEX TEST_GPU MIXED_INSTALL
"""


def test_no_row_is_missing() -> None:
    names = {name for heading in MODULES for cells in rows(heading, "name") for name in quoted(cells[0])}
    options = {option.values[0].split()[0] for option in OPTIONS}
    assert set(HOROVOD_NAMES.split()) - names == set()
    assert set(HOROVOD_OPTIONS.split()) - options == set()
    assert {f"HOROVOD_{name}" for name in HOROVOD_VARIABLES.split()} - {
        row.values[0] for row in VARIABLES
    } == set()


def test_other_packages() -> None:
    for package, state, _ in rows("Other packages", "package"):
        assert state in STATES
        with pytest.raises(ImportError):
            importlib.import_module(package.strip("`"))
