"""What Horovod's command line, config file and environment ask for beside our settings."""

from __future__ import annotations

import pytest
from conftest import Launcher

NEEDLESS = [
    ["--gloo"],
    ["--disable-cache"],
    ["--tcp"],
    ["--mpi-threads-disable"],
    ["--num-nccl-streams", "4"],
    ["--torus-allreduce"],
    ["--autotune-gaussian-process-noise=0.5"],
    ["--binding-args", "--bind-to core"],
]
SILENT = ["--no-torus-allreduce", "--no-mpi-threads-disable"]


@pytest.mark.parametrize("words", NEEDLESS, ids=lambda words: words[0])
def test_taken_and_explained_on_demand(launcher: Launcher, words: list[str]) -> None:
    assert launcher.run("-np", "1", *words, "echo", "x").stdout == "[0]<stdout>: x\n"
    assert launcher.run("-np", "1", *words, "true").stderr == ""
    explained = launcher.run("-np", "1", *words, "--verbose", "true").stderr.splitlines()[0]
    assert explained.startswith("horovodrun: --")
    assert len(explained.split(": ", 2)[2]) > 15


@pytest.mark.parametrize("word", SILENT)
def test_nothing_to_say(launcher: Launcher, word: str) -> None:
    result = launcher.run("-np", "1", word, "--verbose", "true")
    assert result.returncode == 0
    assert word.removeprefix("--no-") not in result.stderr.replace(" ".join(result.args), "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--jsrun"],
            "--jsrun: starting ranks by jsrun comes with a later version; in an allocation of LSF leave it",
        ),
        (["--autotune-warmup-samples", "-1"], "--autotune-warmup-samples=-1 must be >= 0"),
        (
            ["--autotune-gaussian-process-noise=1.5"],
            "--autotune-gaussian-process-noise=1.5 must be in [0, 1]",
        ),
        (["--num-nccl-streams", "many"], "--num-nccl-streams=many is not a number"),
        (["--num-nccl-streams", "4x"], "--num-nccl-streams=4x is not a number"),
        (["--num-nccl-streams", "1 2"], "--num-nccl-streams=1 2: there is more than one value"),
        (["--gloo=yes"], "--gloo takes no value"),
        (["--no-gloo"], "there is no option --no-gloo"),
    ],
)
def test_refused(launcher: Launcher, words: list[str], text: str) -> None:
    result = launcher.run("-np", "1", *words, "true")
    assert result.returncode == 2
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 2


def test_missing_values(launcher: Launcher) -> None:
    assert "--ssh-port needs a value" in launcher.run("--ssh-port").stderr
    assert (
        "--blacklist-cooldown-range needs two values"
        in launcher.run("--blacklist-cooldown-range", "1").stderr
    )


SHOW = ["bash", "-c", "echo $HOROVOD_START_TIMEOUT $HOROVOD_LOG_HIDE_TIME $HOROVOD_NETWORK_INTERFACE"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--gloo-timeout-seconds", "70"], "70"),
        (["--gloo-timeout-seconds", "70", "--start-timeout", "80"], "80"),
        (["--start-timeout", "80", "--gloo-timeout-seconds", "70"], "80"),
        (["--log-without-timestamp"], "1"),
        (["--log-with-timestamp"], "0"),
        (["--network-interfaces", "eth0,eth1"], "eth0,eth1"),
    ],
)
def test_other_names(launcher: Launcher, words: list[str], shown: str) -> None:
    assert launcher.run("-np", "1", *words, *SHOW).stdout == f"[0]<stdout>: {shown}\n"


CONFIG = """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 5
  cache_capacity: 2048
  hierarchical_allreduce: true
  hierarchical_allgather: true
  torus_allreduce: false
autotune:
  enabled: true
  log_file: log.csv
  warmup_samples: 5
  steps_per_sample: 20
  bayes_opt_max_samples: 50
  gaussian_process_noise: 0.9
timeline:
  filename: timeline.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 120
  shutdown_time_seconds: 240
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 0,1
  gloo_timeout_seconds: 60
logging:
  level: INFO
  with_timestamp: false
"""
# What the ranks find of it in their environment.
FOUND = """
HOROVOD_AUTOTUNE=1
HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES=50
HOROVOD_AUTOTUNE_LOG=log.csv
HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=20
HOROVOD_AUTOTUNE_WARMUP_SAMPLES=5
HOROVOD_CACHE_CAPACITY=2048
HOROVOD_CYCLE_TIME=5
HOROVOD_FUSION_THRESHOLD=33554432
HOROVOD_HIERARCHICAL_ALLGATHER=1
HOROVOD_HIERARCHICAL_ALLREDUCE=1
HOROVOD_LOG_HIDE_TIME=1
HOROVOD_LOG_LEVEL=INFO
HOROVOD_STALL_CHECK_DISABLE=1
HOROVOD_STALL_CHECK_TIME_SECONDS=120
HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=240
HOROVOD_START_TIMEOUT=60
HOROVOD_THREAD_AFFINITY=0,1
HOROVOD_TIMELINE=timeline.json
HOROVOD_TIMELINE_MARK_CYCLES=1
"""


def test_every_key_of_the_config_file(launcher: Launcher) -> None:
    (launcher.folder / "run.yaml").write_text(CONFIG)
    words = ["-np", "1", "--config-file", "run.yaml"]
    result = launcher.run(*words, "env")
    found = {line.removeprefix("[0]<stdout>: ") for line in result.stdout.splitlines()}
    assert result.returncode == 0
    assert set(FOUND.split()) <= found
    assert result.stderr == ""
    verbose = launcher.run(*words, "--verbose", "true").stderr
    for name in ["controller", "--mpi-threads-disable", "--num-nccl-streams",
                 "--autotune-gaussian-process-noise"]:  # fmt: skip
        assert f"horovodrun: {name}: " in verbose
    assert "--torus-allreduce" not in verbose


def test_the_command_line_wins(launcher: Launcher) -> None:
    (launcher.folder / "run.yaml").write_text(CONFIG)
    words = ["--no-autotune", "--config-file", "run.yaml", "--log-with-timestamp"]
    show = ["bash", "-c", "echo $HOROVOD_START_TIMEOUT $HOROVOD_LOG_HIDE_TIME $HOROVOD_AUTOTUNE"]
    result = launcher.run("-np", "1", *words, *show, env=launcher.environment(HOROVOD_AUTOTUNE="1"))
    assert (result.stdout, result.stderr) == ("[0]<stdout>: 60 0 0\n", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("controller: [a, b]\n", "run.yaml:1: controller must be a single value"),
        ("autotune:\n  warmup_samples: -3\n", "run.yaml:2: autotune.warmup_samples=-3 must be >= 0"),
        ("autotune:\n  enabled: maybe\n", "run.yaml:2: autotune.enabled=maybe is neither yes nor no"),
        ("autotune:\n  enabled: 1\n  noise: 1\n", "run.yaml:3: autotune.noise is no setting"),
    ],
)
def test_config_file_with_a_mistake(launcher: Launcher, text: str, problem: str) -> None:
    (launcher.folder / "run.yaml").write_text(text)
    result = launcher.run("-np", "1", "--config-file", "run.yaml", "true")
    assert result.returncode == 2
    assert problem in result.stderr


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"HOROVOD_GLOO_TIMEOUT_SECONDS": "90"}, "90"),
        ({"HOROVOD_GLOO_TIMEOUT_SECONDS": "90", "HOROVOD_START_TIMEOUT": "50"}, "50"),
        ({"HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_CONTROLLER": "gloo"}, ""),
    ],
)
def test_variables(launcher: Launcher, variables: dict[str, str], shown: str) -> None:
    result = launcher.run("-np", "1", *SHOW, env=launcher.environment(**variables))
    assert (result.stdout, result.stderr) == (f"[0]<stdout>: {shown}\n", "")


def test_a_variable_that_makes_no_sense(launcher: Launcher) -> None:
    result = launcher.run("-np", "1", "true", env=launcher.environment(HOROVOD_NUM_NCCL_STREAMS="x"))
    assert result.returncode == 2
    assert "HOROVOD_NUM_NCCL_STREAMS=x is not a number" in result.stderr
