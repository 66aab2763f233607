"""horovodrun as a user runs it: real processes, found again by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import virtual_hosts
from slurm import Slurm
from starter import Starter
from virtual_hosts import DEADLINE, VirtualHosts, wait_until


def pytest_configure(config: pytest.Config) -> None:
    """Started programs must not inherit ignored signals: SIGINT of a background job, SIGHUP of nohup."""
    config.addinivalue_line(
        "markers",
        "one_case(of): each case of the test, or test of this group, starts many processes; "
        "HOROVOD_TEST_SEED draws one",
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the cases that options select; all of them without a seed."""
    seed = os.environ.get("HOROVOD_TEST_SEED")
    cases: dict[str, list[pytest.Item]] = {}
    for item in items if seed and "HOROVOD_TEST_FULL" not in os.environ else ():
        if mark := item.get_closest_marker("one_case"):
            cases.setdefault(mark.args[0] if mark.args else item.nodeid.partition("[")[0], []).append(item)
    drawn = [random.Random(f"{seed} {of}").choice(each) for of, each in cases.items()]
    left_out = [item for each in cases.values() for item in each if item not in drawn]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def free_port() -> int:
    """Below those that the system gives away by itself: it is still free when a program takes it."""
    while True:
        port = random.SystemRandom().randrange(10_000, 20_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


def frame_kinds() -> dict[str, int]:
    """The numbers of the messages between the launcher and its agents, by name."""
    text = (Path(__file__).parents[2] / "launch/frames.h").read_text()
    kinds = re.findall(r"^    (FRAME_[A-Z_]+) =\s+([0-9]+)", text, re.MULTILINE)
    return {name: int(number) for name, number in kinds}


# What jobs get of the environment of the tests: a batch system or another launcher may have started them.
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH",
        "VIRTUAL_ENV", "PYTHONPATH", "OMP_NUM_THREADS", "TF_CPP_MIN_LOG_LEVEL", "KERAS_BACKEND",
        "JAX_DISABLE_MOST_OPTIMIZATIONS", "HVD_BUILD")  # fmt: skip


def environment_of(process: int) -> list[bytes]:
    """The entries of a process's environment; none once it has ended."""
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def oldest_first(processes: Iterable[int]) -> list[int]:
    """By their start: numbers of processes begin anew, after 32,768 on many machines."""

    def start(process: int) -> tuple[int, int]:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            return 0, process
        return int(fields[19]), process

    return sorted(processes, key=start)


class Launcher:
    """Starts horovodrun, and finds every process that it started."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.mark = f"LAUNCH_TEST_MARK={uuid.uuid4().hex}"
        self.started: list[subprocess.Popen[str]] = []

    def environment(self, **more: str) -> dict[str, str]:
        name, value = self.mark.split("=")
        kept = {each: os.environ[each] for each in KEPT if each in os.environ}
        # The traces of jobs that fail on purpose would take the places of the user's own.
        return kept | {name: value, "HOROVOD_FAILURE_TIMELINE": "off"} | more

    def start(
        self, *arguments: str, program: str = "", inside: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[str]:
        """Starts a program, by default horovodrun; the words `inside` enter a host or a namespace first."""
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("env", self.environment())
        options.setdefault("cwd", self.folder)
        options.setdefault("text", True)
        words = [*inside, program or self.program, *arguments]
        process: subprocess.Popen[str] = subprocess.Popen(words, **options)
        self.started.append(process)
        return process

    def run(
        self, *arguments: str, give: str | None = None, seconds: float = DEADLINE, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        if give is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*arguments, **options)
        out, err = process.communicate(give, timeout=seconds)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def script(self, source: str) -> str:
        """The path of a file with this text."""
        path = self.folder / f"{uuid.uuid4().hex}.py"
        path.write_text(source)
        return str(path)

    def python(self, source: str) -> list[str]:
        """The words of a command that runs `source`, which is kept in a file."""
        return [sys.executable, self.script(source)]

    def agents(self, script: str = 'export HOROVOD_HOST_ID=$1; shift; eval "$@"') -> list[str]:
        """The option for a program in ssh's place; by default each host is an agent on this one."""
        path = self.folder / "rsh"
        path.write_text("#!/bin/bash\n" + script)
        path.chmod(0o755)
        return ["--rsh-agent", str(path)]

    def alive(self) -> list[int]:
        """Every process that inherited the mark, the launcher first; zombies have no environment."""
        processes = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
        return oldest_first(each for each in processes if self.mark.encode() in environment_of(each))

    def named(self, *names: str) -> list[int]:
        """The processes that have one of these names, the oldest first."""
        found = []
        for pid in self.alive():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() in names:
                    found.append(pid)
        return found

    def inside(self) -> list[int]:
        """Every process in the test's folder, whatever it did to its environment."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cwd").readlink() == self.folder:
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    def none_alive(self, seconds: float = DEADLINE) -> bool:
        return wait_until(lambda: not self.alive(), seconds)

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait(DEADLINE)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        for pid in {*self.alive(), *self.inside()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    program = os.environ.get("HOROVODRUN") or shutil.which("horovodrun")
    if not program:
        pytest.fail("no horovodrun: set HOROVODRUN to its path")
    result = Launcher(os.path.abspath(program), tmp_path)
    yield result
    result.end()


@pytest.fixture
def starter(launcher: Launcher) -> Starter:
    return Starter(launcher)


@contextlib.contextmanager
def virtual_hosts_or_skip(names: Sequence[str] = virtual_hosts.NAMES) -> Iterator[VirtualHosts]:
    try:
        made = virtual_hosts.make(names)
    except virtual_hosts.UnavailableError as reason:
        pytest.skip(str(reason))
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(made.folder)


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest) -> Iterator[VirtualHosts]:
    """The hosts of a module: those that it names in HOSTS, after its `prepare_hosts`, if it has these."""
    with virtual_hosts_or_skip(getattr(request.module, "HOSTS", virtual_hosts.NAMES)) as made:
        getattr(request.module, "prepare_hosts", lambda _: None)(made)
        yield made


@pytest.fixture(scope="module")
def slurm(hosts: VirtualHosts) -> Iterator[Slurm]:
    made = Slurm(hosts)
    yield made
    made.end()


class OnHosts:
    """Starts programs on virtual hosts, in the folder of the test: by default horovodrun on host a."""

    def __init__(self, launcher: Launcher, hosts: VirtualHosts) -> None:
        self.launcher = launcher
        self.hosts = hosts

    def start(
        self, *words: str, host: str = "a", folder: Path | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        inside = self.hosts.enter(host, folder or self.launcher.folder)
        return self.launcher.start(*words, inside=inside, **options)

    def run(
        self, *words: str, host: str = "a", folder: Path | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        inside = self.hosts.enter(host, folder or self.launcher.folder)
        return self.launcher.run(*words, inside=inside, **options)


@pytest.fixture
def on_hosts(launcher: Launcher, hosts: VirtualHosts) -> OnHosts:
    hosts.know_hosts("host_key")
    return OnHosts(launcher, hosts)


@pytest.fixture
def nothing_left(request: pytest.FixtureRequest, launcher: Launcher) -> Iterator[None]:
    """The processes of the test end, within LEFT_SECONDS of the module if it has a limit."""
    yield
    assert launcher.none_alive(getattr(request.module, "LEFT_SECONDS", DEADLINE)), launcher.alive()
