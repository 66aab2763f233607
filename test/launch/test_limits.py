"""Limits of the system: horovodrun says which one, in one line, and leaves nothing behind."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Launcher

ROOT = Path(__file__).parents[2]
USER = 61_357  # an unused number: all its processes belong to the test


@pytest.fixture
def public(launcher: Launcher) -> Iterator[Launcher]:
    """A launcher that every user can start."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    launcher.program = str(shutil.copy(launcher.program, folder))
    launcher.folder = folder
    yield launcher
    launcher.end()
    shutil.rmtree(folder)


def lower(limit: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(limit, (value, value))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start horovodrun as a user without processes")
@pytest.mark.parametrize("most", range(1, 8))
def test_no_more_processes(public: Launcher, most: int) -> None:
    """The limit leaves room for all, but the user has other processes."""
    own: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []}
    others = [public.start("100", program="sleep", **own) for _ in range(12 - most)]
    limit = lower(resource.RLIMIT_NPROC, 12)
    result = public.run("-np", "8", "sleep", "100", **own, preexec_fn=limit)
    for other in others:
        other.kill()
        other.wait()
    assert "Resource temporarily unavailable" in result.stderr, (result.returncode, result.stderr)
    assert result.stderr.count("\n") == 1, result.stderr
    # Processes and threads before the first rank: horovodrun, hvd-job, hvd-keeper and the rendezvous.
    if most < 4:
        assert result.returncode == 1, result.stderr
    else:
        assert result.returncode == 126
        begin = f"horovodrun: can't start rank {most - 4}: Resource temporarily"
        assert result.stderr.startswith(begin), result.stderr
    assert not public.alive()


@pytest.mark.parametrize("most", [*range(6, 40, 3), 64])
def test_no_more_files(launcher: Launcher, most: int) -> None:
    limit, ranks = lower(resource.RLIMIT_NOFILE, most), str(most // 2)
    result = launcher.run("-np", ranks, "sleep", "100", preexec_fn=limit)
    assert result.returncode in (1, 126)
    assert "oo many open files" in result.stderr, result.stderr
    assert not launcher.alive()


@pytest.mark.parametrize(("ranks", "pages"), [(5, True), (14, False)])
def test_pages_take_no_room_of_others(launcher: Launcher, ranks: int, pages: bool) -> None:
    """A rank takes two pipes, and later a connection to the rendezvous: without room there are no pages."""
    limit = lower(resource.RLIMIT_NOFILE, 64)
    result = launcher.run("-np", str(ranks), "printenv", "HOROVOD_PAGE", preexec_fn=limit)
    assert result.stdout.count("/proc/") == (ranks if pages else 0), result.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-np", "33"], "33 ranks take 66 of them on localhost, 2 each"),
        (["--output-filename", "out", "-np", "20"], "20 ranks take 80 of them on localhost, 4 each"),
        (["-H", "x:33"], "33 ranks take 66 of them on x, 2 each"),
        (
            ["-H", "x:40", "--output-filename", "out"],
            "40 ranks take 80 of them on horovodrun's own host, 2 each",
        ),
    ],
)
def test_no_room_for_so_many_files(launcher: Launcher, words: list[str], expected: str) -> None:
    """It is said before the first rank is started, and once."""
    limit = lower(resource.RLIMIT_NOFILE, 64)
    result = launcher.run(*launcher.agents(), *words, "touch", "started", preexec_fn=limit)
    assert result.returncode == 1
    assert result.stderr == (
        f"horovodrun: too many open files: {expected}, and the limit is 64; raise `ulimit -n`, or spread the "
        "ranks over more hosts\n"
    )
    assert not (launcher.folder / "started").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start horovodrun as a user without processes")
def test_no_room_for_so_many_processes_of_a_user(public: Launcher) -> None:
    result = public.run(
        "-np", "9", "touch", "started",
        user=USER, group=USER, extra_groups=[], preexec_fn=lower(resource.RLIMIT_NPROC, 12),
    )  # fmt: skip
    assert result.returncode == 1
    assert "9 ranks take 13 of them on localhost, and the limit is 12; raise `ulimit -u`" in result.stderr


@pytest.mark.parametrize("where", ["stdout", "a copy"])
def test_no_larger_files(launcher: Launcher, where: str) -> None:
    script = 'ulimit -f 1; exec "$0" "$@"'
    words = ["-c", script, launcher.program, "-np", "2"]
    if where == "stdout":
        with open(launcher.folder / "out", "w") as out:
            result = launcher.run(*words, "yes", program="bash", stdout=out)
        assert result.returncode == 1
        assert "can't write to stdout: File too large; ending the job" in result.stderr
    else:
        result = launcher.run(*words, "--output-filename", "kept", "seq", "10000", program="bash")
        assert result.returncode == 0
        assert result.stderr.count("can't keep what rank") == 2
        assert result.stderr.count("File too large") == 2
        assert result.stdout.count("\n") == 20_000
    assert not launcher.alive()


@pytest.mark.parametrize("what", ["TIMELINE", "AUTOTUNE_LOG"])
def test_no_larger_files_of_a_rank_in_c(launcher: Launcher, what: str) -> None:
    """Unlike Python, C leaves it at the system's default that SIGXFSZ ends the process."""
    program = Path(os.environ.get("HVD_BUILD", ROOT / "build")) / "examples" / "c" / "pi"
    result = launcher.run(
        "-np", "2", "--grace-seconds", "0.5", "bash", "-c", f"ulimit -f 0; exec {program} 1000",
        env=launcher.environment(**{f"HOROVOD_{what}": "file", "HOROVOD_AUTOTUNE": "1"}),
    )  # fmt: skip
    assert "File too large" in result.stderr or "is not whole" in result.stderr, result.stderr
    assert "SIGXFSZ" not in result.stderr
