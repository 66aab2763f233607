"""What a rank finds when it starts."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher, wait_until

ROOT = Path(__file__).parents[2]


def environments(output: str) -> list[dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for line in output.splitlines():
        prefix, text = line.split("<stdout>: ")
        name, _, value = text.partition("=")
        found.setdefault(int(prefix[1:-1]), {})[name] = value
    return [found[rank] for rank in sorted(found)]


def test_place_and_rendezvous(launcher: Launcher) -> None:
    ranks = environments(launcher.run("-np", "3", "env").stdout)
    assert len(ranks) == 3
    for rank, environment in enumerate(ranks):
        place = {
            "RANK": str(rank), "SIZE": "3", "LOCAL_RANK": str(rank), "LOCAL_SIZE": "3", "CROSS_RANK": "0",
            "CROSS_SIZE": "1", "HOSTNAME": "localhost",
        }  # fmt: skip
        assert {name: environment["HOROVOD_" + name] for name in place} == place
        host, port = environment["HOROVOD_RENDEZVOUS"].split(":")
        assert host == "127.0.0.1"
        assert 0 < int(port) < 65536
        assert environment["PYTHONUNBUFFERED"] == "1"
    for name in ["HOROVOD_RENDEZVOUS", "HOROVOD_JOB", "HOROVOD_SECRET"]:
        assert len({environment[name] for environment in ranks}) == 1
    assert len(bytes.fromhex(ranks[0]["HOROVOD_SECRET"])) == 32


def test_every_job_has_its_own_name_and_secret(launcher: Launcher) -> None:
    jobs = [environments(launcher.run("-np", "1", "env").stdout)[0] for _ in range(2)]
    for name in ["HOROVOD_JOB", "HOROVOD_SECRET"]:
        assert jobs[0][name] != jobs[1][name]


def test_inherited_variables(launcher: Launcher) -> None:
    given = launcher.environment(
        MINE="a=b c",
        HOROVOD_RANK="9",
        HOROVOD_SECRET="theirs",
        HOROVOD_SECRET_FILE="/x",
        HOROVOD_SLOT="theirs",
        HOROVOD_EPOCH="7",
        PYTHONUNBUFFERED="0",
    )
    environment = environments(launcher.run("-np", "1", "env", env=given).stdout)[0]
    assert environment["MINE"] == "a=b c"
    assert environment["HOROVOD_RANK"] == "0"
    assert environment["HOROVOD_SECRET"] != "theirs"
    assert environment["HOROVOD_SLOT"] == environment["HOROVOD_EPOCH"] == "0"
    assert "HOROVOD_SECRET_FILE" not in environment
    assert environment["PYTHONUNBUFFERED"] == "0"


def test_many_variables(launcher: Launcher) -> None:
    many = {f"VARIABLE_{i}": str(i) for i in range(40_000)}
    count = ["grep", "-zc", "^VARIABLE_[0-9]*=[0-9]*$", "/proc/self/environ"]
    result = launcher.run("-np", "8", *count, env=launcher.environment(**many))
    assert result.stdout.count(">: 40000\n") == 8, result.stderr


def test_the_secret_is_on_no_command_line(launcher: Launcher) -> None:
    process = launcher.start("-np", "2", "--verbose", "bash", "-c", "echo $HOROVOD_SECRET; sleep 60 & wait")
    assert process.stdout
    secret = process.stdout.readline().split()[-1].encode()
    assert len(secret) == 64
    assert wait_until(lambda: len(launcher.alive()) >= 5)
    for folder in Path("/proc").iterdir():
        try:
            assert not folder.name.isdigit() or secret not in (folder / "cmdline").read_bytes()
        except OSError:
            continue
    assert secret not in Path(f"/proc/{process.pid}/environ").read_bytes()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=DEADLINE)
    assert "HOROVOD_RANK=1" in err
    assert secret.decode() not in err


def test_only_rank_0_gets_stdin(launcher: Launcher) -> None:
    result = launcher.run("-np", "3", "bash", "-c", "cat; readlink /proc/self/fd/0 >&2", give="one\ntwo\n")
    assert result.stdout == "[0]<stdout>: one\n[0]<stdout>: two\n"
    assert "[1]<stderr>: /dev/null" in result.stderr
    assert "[2]<stderr>: /dev/null" in result.stderr
    assert "[0]<stderr>: pipe:" in result.stderr


LEADS = "import os; print(os.getpid() == os.getpgid(0), os.getsid(0), os.getsid(0) == os.getpid())"


def test_a_rank_with_a_core_leads_its_own_session(launcher: Launcher) -> None:
    ranks = len(os.sched_getaffinity(0))
    found = launcher.run("-np", str(ranks), *launcher.python(LEADS)).stdout
    assert len(re.findall(r": True \d+ True\n", found)) == ranks


def test_ranks_that_share_cores_share_a_session(launcher: Launcher) -> None:
    ranks = len(os.sched_getaffinity(0)) + 1
    found = launcher.run("-np", str(ranks), *launcher.python(LEADS)).stdout
    sessions = re.findall(r": True (\d+) False\n", found)
    assert len(sessions) == ranks and len(set(sessions)) == 1
    assert sessions[0] != str(os.getsid(0))


def test_ranks_inherit_no_file_of_the_launcher(launcher: Launcher) -> None:
    show = launcher.python("import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])")
    assert launcher.run("-np", "2", *show).stdout.count("[0, 1, 2]") == 2


def test_ranks_start_with_the_usual_signals(launcher: Launcher) -> None:
    for line in launcher.run(
        "-np", "2", "bash", "-c", "grep -E 'SigBlk|SigIgn' /proc/self/status"
    ).stdout.splitlines():
        named = int(line.split()[-1], 16) & 0x7FFFFFFF  # 32 and above are the C library's and real-time ones
        assert named == 0, line


def test_closed_standard_files(launcher: Launcher) -> None:
    script = f"{launcher.program} -np 2 bash -c 'echo hi' 0<&- 2>&-"
    result = launcher.run("-c", script, program="bash")
    assert result.stdout.count("hi") == 2


@pytest.mark.parametrize(
    "change, places",
    [
        (
            "HOROVOD_LOCAL_RANK=$((1 - HOROVOD_RANK)) HOROVOD_RANK=$((1 - HOROVOD_RANK))",
            ["rank 1 of 2", "rank 0 of 2"],
        ),
        ("HOROVOD_JOB=another", ["rank 0 of 2", "rank 1 of 2"]),
        (
            "HOROVOD_RANK=0 HOROVOD_SIZE=1 HOROVOD_LOCAL_RANK=0 HOROVOD_LOCAL_SIZE=1",
            ["rank 0 of 1", "rank 0 of 1"],
        ),
    ],
)
def test_a_program_may_change_its_place(launcher: Launcher, change: str, places: list[str]) -> None:
    """Its slot has a place in the table of the job, but the program makes a job of its own."""
    program = Path(os.environ.get("HVD_BUILD", ROOT / "build")) / "examples" / "c" / "pi"
    result = launcher.run("-np", "2", "sh", "-c", f'{change} exec "$@"', "-", str(program))
    assert result.returncode == 0, result.stderr
    assert all(f"[{rank}]<stdout>: {place}:" in result.stdout for rank, place in enumerate(places))
