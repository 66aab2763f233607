"""Limits of a control group, as containers and batch jobs have them."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Launcher, wait_until

MOUNT = Path("/sys/fs/cgroup")
pytestmark = pytest.mark.usefixtures("nothing_left")


class Group:
    """A control group below that of the test, of version 1 or 2."""

    def __init__(self, controller: str) -> None:
        own = Path("/proc/self/cgroup").read_text().splitlines()
        paths = {words: path for _, words, path in (line.split(":", 2) for line in own)}
        name = f"horovod-test-{uuid.uuid4().hex}"
        words = next((words for words in paths if controller in words.split(",")), "")
        self.second = not words
        self.folder = MOUNT / words / paths.get(words, "/").lstrip("/") / name
        try:
            self.folder.mkdir()
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")

    def limit(self, first: dict[str, str], second: dict[str, str]) -> None:
        try:
            for name, value in (second if self.second else first).items():
                (self.folder / name).write_text(value)
        except OSError as error:
            pytest.skip(f"no limit can be set here: {error}")

    def enter(self) -> list[str]:
        return ["sh", "-c", f'echo 0 >{self.folder}/cgroup.procs && exec "$@"', "sh"]

    def remove(self) -> None:
        for pid in (self.folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)

        def is_removed() -> bool:
            """Not as long as a process that was killed is in it."""
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            return not self.folder.exists()

        assert wait_until(is_removed)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(request.param)
    yield made
    made.remove()


@pytest.mark.parametrize("group", ["cpu"], indirect=True)
@pytest.mark.parametrize(("ranks", "given", "threads"), [(1, "", "1"), (3, "", "1"), (1, "5", "5")])
def test_a_quota(launcher: Launcher, group: Group, ranks: int, given: str, threads: str) -> None:
    """Libraries must not start a thread for each core of the machine."""
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        pytest.skip("a quota below one core and a quota below all cores are the same here")
    group.limit({"cpu.cfs_quota_us": "150000"}, {"cpu.max": "150000 100000"})
    environment = launcher.environment()
    environment.pop("OMP_NUM_THREADS", None)
    environment |= {"OMP_NUM_THREADS": given} if given else {}
    words = ["--log-level", "INFO", "-np", str(ranks), "sh", "-c", "echo $OMP_NUM_THREADS"]
    result = launcher.run(*words, inside=group.enter(), env=environment)
    assert result.returncode == 0, result.stderr
    assert set(re.findall(r"<stdout>: (.*)", result.stdout)) == {threads}
    said = f"a CPU quota grants 1.5 of {cores} cores to {ranks} ranks: OMP_NUM_THREADS={threads}"
    assert (said in result.stderr) == (not given), result.stderr


@pytest.mark.parametrize("group", ["memory"], indirect=True)
@pytest.mark.parametrize("hosts", [["-np", "2"], ["-H", "x:2"]])
def test_memory_runs_out(launcher: Launcher, group: Group, hosts: list[str]) -> None:
    """Who has killed the rank is counted by the kernel, also in a container, in which dmesg is closed."""
    group.limit(
        {"memory.limit_in_bytes": "64M", "memory.swappiness": "0"},
        {"memory.max": "64M", "memory.swap.max": "0"},
    )
    grow = (
        'import os, time\nif os.environ["HOROVOD_RANK"] == "1":\n    x = b"x" * 200_000_000\ntime.sleep(60)'
    )
    words = [*launcher.agents(), *hosts] if "-H" in hosts else hosts
    result = launcher.run(*words, *launcher.python(grow), inside=group.enter())
    assert result.returncode == 137, result.stderr
    why = r"\(by the kernel: the memory of its container, batch job or host ran out\)"
    assert re.search(rf"rank 1 .*it was killed by SIGKILL {why} after", result.stderr), result.stderr


def test_somebody(launcher: Launcher) -> None:
    result = launcher.run("-np", "2", "sh", "-c", "[ $HOROVOD_RANK = 0 ] && kill -9 $$; exec sleep 60")
    assert result.returncode == 137
    assert re.search(r"rank 0 .*it was killed by SIGKILL \(by somebody", result.stderr), result.stderr
