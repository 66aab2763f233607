"""The arguments that horovodrun accepts and rejects, and its messages."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys

import pytest
from conftest import Launcher

CHECK_BUILD = r"""Horovod v\d+\.\d+\.\d+:

Available Frameworks:
    \[ \] TensorFlow
    \[ \] PyTorch
    \[ \] MXNet
    \[ \] Keras
    \[ \] JAX
    \[ \] NumPy

Available Controllers:
    \[ \] MPI
    \[X\] Gloo

Available Tensor Operations:
    \[ \] NCCL
    \[ \] DDL
    \[ \] CCL
    \[ \] MPI
    \[X\] Gloo
    \[X\] shm
    \[X\] tcp

Frameworks: as seen by .*
MPI: no library .*
GPUs: .*
NCCL: no NCCL was found: .*
DDL, CCL: not in this version\.
(\w+ is missing: \S+ -m pip install "horovod(\[\w+\])?"\n)*"""
SHOW = ["bash", "-c", 'echo "$HOROVOD_FUSION_THRESHOLD $HOROVOD_CYCLE_TIME $HOROVOD_LOG_LEVEL"']


def test_help_lists_options_and_settings(launcher: Launcher) -> None:
    result = launcher.run("--help")
    assert result.returncode == 0
    for text in (
        "-np, --num-proc N",
        "--hostfile FILE",
        "--fusion-threshold-mb N",
        "--[no-]log-hide-timestamp",
        "\nInformation:\n",
        "\nparams:\n",
        "--[no-]hierarchical-allreduce ",
        "\nAccepted for compatibility:\n",
        "\nRefused by this version:\n",
        "[HOROVOD_FUSION_THRESHOLD, default 128]",
    ):
        assert text in result.stdout


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_version(launcher: Launcher, flag: str) -> None:
    result = launcher.run(flag)
    assert result.returncode == 0
    assert result.stdout.strip().count(".") == 2


@pytest.mark.parametrize("flag", ["-cb", "--check-build"])
def test_check_build(launcher: Launcher, flag: str) -> None:
    result = launcher.run(
        flag,
        env=launcher.environment(
            HOROVOD_MPI_LIBRARY="/no/libmpi.so", HOROVOD_NCCL_LIBRARY="/no/libnccl.so.2"
        ),
    )
    assert result.returncode == 0
    text = re.sub(
        r"\[X\] (TensorFlow|PyTorch|MXNet|Keras|JAX|NumPy)\n", r"[ ] \1\n", result.stdout
    )  # whether they are installed here
    assert re.fullmatch(CHECK_BUILD, text), result.stdout


def test_check_build_finds_what_can_be_used(launcher: Launcher) -> None:
    """A framework without the package for it, a package without its framework, and both."""
    for module in ("horovod", "horovod/keras", "horovod/mxnet", "keras", "tensorflow"):
        (launcher.folder / module).mkdir()
        (launcher.folder / module / "__init__.py").touch()
    result = launcher.run("--check-build", env=launcher.environment(PYTHONPATH=str(launcher.folder)))
    assert "[ ] TensorFlow\n" in result.stdout
    assert "[X] Keras\n" in result.stdout
    assert "[ ] MXNet\n" in result.stdout
    assert re.search(
        r'^MXNet is missing: /.* -m pip install "horovod\[mxnet\]"$', result.stdout, re.MULTILINE
    )
    assert "Keras is missing" not in result.stdout


def test_check_build_with_an_mpi(launcher: Launcher) -> None:
    """As the back end finds it, not as it was compiled."""
    if not shutil.which("mpirun.openmpi"):
        pytest.skip("mpirun.openmpi is not installed: see tools/deps.sh")
    result = launcher.run("--check-build")
    assert result.stdout.count("    [X] MPI\n") == 2
    assert re.search(r"^MPI: .*Open MPI v\d+\.\d+\.\d+ \(/.*/libmpi\.so\.40.*\)", result.stdout, re.MULTILINE)


def test_check_build_by_a_python_without_a_path(launcher: Launcher) -> None:
    """An embedded one, say, has no sys.executable."""
    python = launcher.folder / "python3"
    python.write_text(
        "#!/bin/sh\n"
        "program=$2; shift 2\n"
        f'exec {sys.executable} -c "import sys; sys.executable = str(); $program" "$@"\n'
    )
    python.chmod(0o755)
    path = f"{launcher.folder}:{os.environ['PATH']}"
    result = launcher.run("--check-build", env=launcher.environment(PATH=path))
    assert re.search(r"\[[ X]\] TensorFlow\n", result.stdout)
    assert "as seen by python3." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "there is no command to run"),
        (["-np", "2"], "there is no command to run"),
        (["true"], "how many ranks? Say -np N or -H localhost:N"),
        (["-np"], "-np needs a value"),
        (["-np", "two", "true"], "-np=two must be a whole number"),
        (["-np", "0", "true"], "-np=0 must be a whole number from 1"),
        (["-np", "-3", "true"], "-np=-3 must be"),
        (["--num-procs", "2", "true"], "there is no option --num-procs; did you mean --num-proc?"),
        (["-nq", "2", "true"], "there is no option -nq; did you mean -np?"),
        (["--cycle-time", "1", "true"], "did you mean --cycle-time-ms?"),
        (["--autotone", "true"], "did you mean --autotune?"),
        (["--stall-warning", "9", "true"], "did you mean --stall-check-warning-time-seconds?"),
        (["--stall-chekc", "true"], "did you mean --stall-check?"),
        (["--autotune-log", "x", "true"], "did you mean --autotune-log-file?"),
        (["--timeout", "9", "true"], "did you mean --timeout-seconds?"),
        (["--log", "INFO", "true"], "did you mean --log-level?"),
        (["--prefix", "true"], "did you mean --prefix-timestamp?"),
        (["--gloo-t", "9", "true"], "did you mean --gloo-timeout-seconds?"),
        (["--tmeline", "x", "true"], "there is no option --tmeline; did you mean --timeline?"),
        (["--fusion-treshold", "9", "true"], "did you mean --fusion-threshold-mb?"),
        (["--stall-shutdwn", "9", "true"], "did you mean --stall-check-shutdown-time-seconds?"),
        (["--num_proc", "2", "true"], "did you mean --num-proc?"),
        (["--no-autotone", "true"], "did you mean --no-autotune?"),
        (["--min-mp", "2", "true"], "did you mean --min-np?"),
        (["-x", "true"], "there is no option -x\n"),
        (["--xylophone-orchestra", "true"], "there is no option --xylophone-orchestra\n"),
        (["--verbose=yes", "true"], "--verbose takes no value"),
        (["-np", "2", "--cycle-time-ms", "-1", "true"], "--cycle-time-ms=-1 must be >= 0"),
        (["-np", "2", "--cycle-time-ms", "soon", "true"], "--cycle-time-ms=soon is not a number"),
        (["-np", "2", "--no-cycle-time-ms", "true"], "there is no option --no-cycle-time-ms"),
        (["-np", "2", "--log-level", "LOUD", "true"], "log level 'LOUD' is unknown"),
        (["-H", "localhost", "true"], "'localhost' is not of the form host:slots"),
        (["-H", "localhost:x", "true"], "'x' is not a number of slots"),
        (["-H", "localhost:2,", "true"], "'' is not of the form host:slots"),
        (["-H", "localhost:0", "true"], "'0' is not a number of slots; it must be a whole number from 1"),
        (
            ["-H", "::1:2", "true"],
            "'::1' is no name of a host; an IPv6 address stands in brackets, e.g. [fd00::7]:4",
        ),
        (["-H", "@localhost:2", "true"], "'@localhost' is no name of a host"),
        (["-H", "-oProxyCommand=x:2", "true"], "'-oProxyCommand=x' is no name of a host"),
        (
            ["--ssh-port", "70000", "-np", "2", "true"],
            "--ssh-port=70000 must be a whole number from 1 to 65535",
        ),
        (
            ["-np", "3", "-H", "localhost:2", "true"],
            "-np 3 asks for more ranks than the hosts have slots (2)",
        ),
        (["-H", "localhost:2", "--hostfile", "x", "true"], "--hosts and --hostfile exclude each other"),
        (["--hostfile", "absent", "true"], "can't read the host file absent: No such file"),
        (["-np", "1", "--config-file", "absent", "true"], "can't read the config file absent: No such file"),
    ],
)
def test_refusals(launcher: Launcher, arguments: list[str], problem: str) -> None:
    result = launcher.run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert problem in result.stderr
    assert result.stderr.startswith("horovodrun: ")
    assert result.stderr.splitlines()[1:] == ["Try 'horovodrun --help'."]


def test_bad_environment_is_said_once(launcher: Launcher) -> None:
    result = launcher.run("-np", "2", "true", env=launcher.environment(HOROVOD_CYCLE_TIME="soon"))
    assert result.returncode == 2
    assert "HOROVOD_CYCLE_TIME=soon is not a number" in result.stderr
    result = launcher.run("-np", "2", "true", env=launcher.environment(HOROVOD_ENCRYPTION="maybe"))
    assert "HOROVOD_ENCRYPTION=maybe is neither yes nor no: write 1 or 0 (" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        (["-np", "3"], 3),
        (["--num-proc=3"], 3),
        (["-H", "localhost:3"], 3),
        (["-H", "localhost:1,127.0.0.1:2"], 3),
        (["-np", "2", "--hosts", "localhost:3"], 2),
        (["-H", f"{socket.gethostname()}:2"], 2),
    ],
)
def test_number_of_ranks(launcher: Launcher, arguments: list[str], ranks: int) -> None:
    result = launcher.run(*arguments, "bash", "-c", "echo $HOROVOD_RANK/$HOROVOD_SIZE")
    assert sorted(result.stdout.splitlines()) == [f"[{i}]<stdout>: {i}/{ranks}" for i in range(ranks)]
    assert result.returncode == 0


def own_names() -> list[str]:
    here = socket.gethostname()
    full = socket.getaddrinfo(here, None, flags=socket.AI_CANONNAME)[0][3]
    return [here.upper(), here.partition(".")[0], full, "LOCALHOST", "127.0.0.2"]


@pytest.mark.parametrize("name", own_names())
def test_names_of_this_host(launcher: Launcher, name: str) -> None:
    (launcher.folder / "hosts").write_text(f"{name} slots=1\n")
    for words in (["-H", f"{name}:1"], ["--hostfile", "hosts"]):
        assert launcher.run(*words, "echo", "x").stdout == "[0]<stdout>: x\n"


def test_host_file(launcher: Launcher) -> None:
    (launcher.folder / "hosts").write_text(
        f"# mine {'x' * 2000}\n\nlocalhost slots=1  # one\n127.0.0.1\tslots=1\nlocalhost:1\n[::1]:1\n"
        "localhost max_slots=2 slots=1\n"
    )
    for flag in ["-hostfile", "--hostfile"]:
        assert launcher.run(flag, "hosts", "echo", "x").stdout.count("x") == 5


@pytest.mark.parametrize(
    "line",
    [
        "localhost 4",
        "localhost slots=4 extra",
        "localhost slots=",
        "localhost slots=2 port=0",
        "localhost slots=2 port=65536",
        "localhost slots=3 max_slots=2",
    ],
)
def test_host_file_with_a_bad_line(launcher: Launcher, line: str) -> None:
    (launcher.folder / "hosts").write_text(f"localhost slots=1\n{line}\n")
    result = launcher.run("--hostfile", "hosts", "true")
    assert result.returncode == 2
    assert "hosts:2: " in result.stderr


def test_options_after_the_command_are_the_commands(launcher: Launcher) -> None:
    assert launcher.run("-np", "1", "echo", "-np", "--verbose").stdout == "[0]<stdout>: -np --verbose\n"
    assert launcher.run("-np", "1", "--", "echo", "-v").stdout == "[0]<stdout>: -v\n"


def test_flags_set_the_ranks_environment(launcher: Launcher) -> None:
    flags = ["--fusion-threshold-mb", "32", "--cycle-time-ms=2.5", "--log-level", "DEBUG"]
    assert launcher.run("-np", "1", *flags, *SHOW).stdout == "[0]<stdout>: 33554432 2.5 DEBUG\n"
    show = ["bash", "-c", "echo $HOROVOD_LOG_HIDE_TIME"]
    assert launcher.run("-np", "1", "--log-hide-timestamp", *show).stdout == "[0]<stdout>: 1\n"
    assert launcher.run("-np", "1", "--no-log-hide-timestamp", *show).stdout == "[0]<stdout>: 0\n"


def test_what_is_not_asked_for_stays(launcher: Launcher) -> None:
    environment = launcher.environment(HOROVOD_CYCLE_TIME="7")
    assert launcher.run("-np", "1", *SHOW, env=environment).stdout == "[0]<stdout>:  7 \n"
    assert (
        launcher.run("-np", "1", "--cycle-time-ms", "3", *SHOW, env=environment).stdout
        == "[0]<stdout>:  3 \n"
    )


def test_config_file_over_environment_and_under_flags(launcher: Launcher) -> None:
    (launcher.folder / "run.yaml").write_text(
        "# settings\nparams:\n  fusion_threshold_mb: 16\n  cycle_time_ms: 3.5\nlogging:\n  level: INFO\n"
    )
    environment = launcher.environment(HOROVOD_CYCLE_TIME="7")
    words = ["-np", "1", "--log-level", "ERROR", "--config-file", "run.yaml"]
    assert launcher.run(*words, *SHOW, env=environment).stdout == "[0]<stdout>: 16777216 3.5 ERROR\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("params:\n  cycle_time_ms: 1\n  cycle_tim: 3\n", "run.yaml:3: params.cycle_tim is no setting"),
        ("param:\n  cycle_time_ms: 1\n", "run.yaml:2: param.cycle_time_ms is no setting"),
        ("params:\n  cycle_time_ms: soon\n", "run.yaml:2: params.cycle_time_ms=soon is not a number"),
        ("params:\n  cycle_time_ms: [1, 2]\n", "run.yaml:2: params.cycle_time_ms must be a single value"),
        (
            "params:\n  cycle_time_ms: 99999999\n",
            "run.yaml:2: params.cycle_time_ms=99999999 must be <= 60000",
        ),
        ("params: {a: {b: 1}}\n", "run.yaml:1: params.a is no setting"),
        ("- a\n- b\n", "run.yaml:1: expected lines of the form 'name: value'"),
        ("a: [1\n", "not YAML"),
        ("? {a: 1}\n: 2\n", "run.yaml:1: a name must be a single word"),
        (
            "params:\n  cycle_time_ms: 1\n  cycle_time_ms: 1\n",
            "run.yaml:3: params.cycle_time_ms gives again what line 2 gives",
        ),
        ("params: {cycle_time_ms: 1}\nparams: {}\n", "run.yaml:2: params gives again what line 1 gives"),
        ("params: {join: 1}\n---\nparams: {}\n", "run.yaml:3: a second document"),
        ("params: {join: 1}\n---\n}\n", "run.yaml:3: not YAML"),
        (
            "params.join: 1\nparams:\n  join: 1\n",
            "run.yaml:3: params.join gives again what line 1 gives",
        ),
        (
            "start_timeout: 9\nlibrary_options: {gloo_timeout_seconds: 8}\n",
            "run.yaml:2: library_options.gloo_timeout_seconds gives again what line 1 gives",
        ),
    ],
)
def test_config_file_with_a_mistake(launcher: Launcher, text: str, problem: str) -> None:
    (launcher.folder / "run.yaml").write_text(text)
    result = launcher.run("-np", "1", "--config-file", "run.yaml", "true")
    assert result.returncode == 2
    assert problem in result.stderr


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("params.cycle_tim", "params.cycle_time_ms"),
        ("param.cycle_time_ms", "params.cycle_time_ms"),
        ("cycle_time_ms", "params.cycle_time_ms"),
        ("logging.cycle_tme_ms", "params.cycle_time_ms"),
        ("fusion-threshold-mb", "params.fusion_threshold_mb"),
        ("stall_chek.enabled", "stall_check.enabled"),
        ("tiemline.filname", "timeline.filename"),
        ("autotune.noise", "autotune.gaussian_process_noise"),
        ("params.xy", ""),
        ("orchestra.xylophone", ""),
    ],
)
def test_config_file_with_an_unknown_key(launcher: Launcher, key: str, right: str) -> None:
    (launcher.folder / "run.yaml").write_text(f"{key}: 1\n")
    result = launcher.run("-np", "1", "--config-file", "run.yaml", "true")
    rest = f"did you mean {right}?" if right else "docs/settings.md lists them"
    assert f"run.yaml:1: {key} is no setting; {rest}\n" in result.stderr


def test_empty_config_file(launcher: Launcher) -> None:
    for text in ("# nothing\n", "---\n", "params: {join: 1}\n---\n...\n"):
        (launcher.folder / "run.yaml").write_text(text)
        assert launcher.run("-np", "1", "--config-file", "run.yaml", "true").returncode == 0
