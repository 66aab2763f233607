"""What the ranks print arrives whole, in order, and behind their prefix."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import time
import tty
from pathlib import Path

import pytest
from conftest import DEADLINE, Launcher, wait_until

CHATTER = """
import os, sys
rank = os.environ["HOROVOD_RANK"]
for i in range(20000):
    print(rank, i, "x" * (i % 97), file=sys.stderr if i % 2 else sys.stdout, flush=i % 500 == 0)
"""


def chatter(rank: int, odd: int) -> list[str]:
    return [f"{rank} {i} {'x' * (i % 97)}" for i in range(20000) if i % 2 == odd]


def lines_of(text: str, rank: int, stream: str) -> list[str]:
    prefix = f"[{rank}]<{stream}>: "
    return [line[len(prefix) :] for line in text.splitlines() if line.startswith(prefix)]


def test_lines_of_four_busy_ranks(launcher: Launcher) -> None:
    result = launcher.run("-np", "4", *launcher.python(CHATTER))
    assert result.returncode == 0
    for rank in range(4):
        assert lines_of(result.stdout, rank, "stdout") == chatter(rank, 0)
        assert lines_of(result.stderr, rank, "stderr") == chatter(rank, 1)
    assert len(result.stdout.splitlines()) == len(result.stderr.splitlines()) == 4 * 10000


def test_lines_stay_whole_when_stdout_and_stderr_are_one_pipe(launcher: Launcher) -> None:
    result = launcher.run("-np", "4", *launcher.python(CHATTER), stderr=subprocess.STDOUT)
    assert len(result.stdout.splitlines()) == 4 * 20000
    for rank in range(4):
        assert lines_of(result.stdout, rank, "stdout") == chatter(rank, 0)
        assert lines_of(result.stdout, rank, "stderr") == chatter(rank, 1)


def test_a_slow_reader_loses_nothing(launcher: Launcher) -> None:
    process = launcher.start("-np", "2", "seq", "300000")
    assert process.stdout
    assert wait_until(lambda: len(launcher.alive()) == 5)  # horovodrun is three
    time.sleep(0.3)  # the pipes fill up; whether they do makes no difference to what is asserted
    assert process.poll() is None
    lines = process.stdout.read().splitlines()
    assert process.wait(DEADLINE) == 0
    for rank in range(2):
        assert lines_of("\n".join(lines), rank, "stdout") == [str(i) for i in range(1, 300001)]


@pytest.mark.parametrize("kind", ["socket", "terminal"])
def test_a_slow_reader_of_what_is_shared(launcher: Launcher, kind: str) -> None:
    """O_NONBLOCK is shared with other programs, so it must not change."""
    if kind == "socket":
        ours, theirs = (end.detach() for end in socket.socketpair())
    else:
        ours, theirs = pty.openpty()
        tty.setraw(theirs)
    process = launcher.start(
        "-np", "2", "seq", "300000", stdout=theirs, env=launcher.environment(NO_COLOR="1")
    )
    assert wait_until(lambda: len(launcher.alive()) >= 3)
    time.sleep(0.3)  # it fills up; whether it does makes no difference to what is asserted
    assert fcntl.fcntl(theirs, fcntl.F_GETFL) & os.O_NONBLOCK == 0
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO: no process has the terminal open any more
        while block := os.read(ours, 65536):
            text += block
    os.close(ours)
    assert process.wait(DEADLINE) == 0
    lines = text.decode().splitlines()
    for rank in range(2):
        assert lines_of("\n".join(lines), rank, "stdout") == [str(i) for i in range(1, 300001)]


def test_a_line_comes_when_it_is_printed(launcher: Launcher) -> None:
    source = "import sys; print('ready'); sys.stdin.read()"
    process = launcher.start("-np", "2", *launcher.python(source), stdin=subprocess.PIPE)
    assert process.stdout and process.stdin
    assert "ready" in process.stdout.readline() and "ready" in process.stdout.readline()
    assert process.poll() is None
    process.stdin.write("go\n")
    process.stdin.close()
    assert process.wait(DEADLINE) == 0


def test_a_partial_last_line_gets_its_end(launcher: Launcher) -> None:
    assert (
        launcher.run("-np", "1", "printf", "one\\n\\ntwo").stdout
        == "[0]<stdout>: one\n[0]<stdout>: \n[0]<stdout>: two\n"
    )


def test_carriage_returns_end_lines(launcher: Launcher) -> None:
    result = launcher.run("-np", "1", "printf", "\\r10%%\\r20%%\\r\\ndos\\r\\nlast")
    assert lines_of(result.stdout, 0, "stdout") == ["10%", "20%", "dos", "last"]


@pytest.mark.parametrize("length", [65535, 65536, 65537, 1000000])
def test_very_long_lines_are_cut(launcher: Launcher, length: int) -> None:
    result = launcher.run("-np", "2", *launcher.python(f"print('y' * {length}); print('end')"))
    for rank in range(2):
        lines = lines_of(result.stdout, rank, "stdout")
        assert lines[-1] == "end"
        assert "".join(lines[:-1]) == "y" * length
        assert max(map(len, lines)) <= 65536


def test_bytes_that_are_no_text(launcher: Launcher) -> None:
    result = launcher.run("-np", "1", "printf", "a\\000b\\377\\n", text=False)
    assert result.stdout == b"[0]<stdout>: a\0b\xff\n"  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("flag", ["-prefix-timestamp", "--prefix-output-with-timestamp"])
def test_timestamps(launcher: Launcher, flag: str) -> None:
    result = launcher.run("-np", "1", flag, "echo", "hi")
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>: hi\n", result.stdout)


def test_copies_in_files(launcher: Launcher) -> None:
    result = launcher.run(
        "-np", "11", "--output-filename", "kept", "bash", "-c", "echo o$HOROVOD_RANK; printf e >&2"
    )
    assert result.returncode == 0
    for rank in range(11):
        folder = launcher.folder / "kept" / f"rank.{rank:02d}"
        assert (folder / "stdout").read_text() == f"o{rank}\n"
        assert (folder / "stderr").read_text() == "e"
    assert result.stdout.count("<stdout>: o") == 11


def test_copies_that_cannot_be_made(launcher: Launcher) -> None:
    Path(launcher.folder / "kept").write_text("a file")
    result = launcher.run("-np", "2", "--output-filename", "kept", "echo", "hi")
    assert result.returncode == 1
    assert "can't make the folder kept/rank.0: Not a directory" in result.stderr
    assert result.stdout == ""


def test_copies_that_cannot_be_written(launcher: Launcher) -> None:
    folder = launcher.folder / "kept" / "rank.0"
    folder.mkdir(parents=True)
    (folder / "stdout").symlink_to("/dev/full")
    result = launcher.run("-np", "1", "--output-filename", "kept", "echo", "hi")
    assert result.returncode == 0
    assert result.stdout == "[0]<stdout>: hi\n"
    assert "can't keep what rank 0 prints on stdout: No space left on device" in result.stderr


def test_a_closed_stdout_ends_the_job(launcher: Launcher) -> None:
    process = launcher.start("-np", "2", "yes")
    assert process.stdout
    assert process.stdout.readline().endswith("<stdout>: y\n")
    process.stdout.close()
    assert process.wait(DEADLINE) == 128 + signal.SIGPIPE
    assert process.stderr and "can't write to stdout: Broken pipe; ending the job" in process.stderr.read()
    assert not launcher.alive()


def test_a_full_stdout_ends_the_job(launcher: Launcher) -> None:
    with open("/dev/full", "w") as full:
        result = launcher.run("-np", "2", "yes", stdout=full)
    assert result.returncode == 1
    assert "can't write to stdout: No space left on device" in result.stderr


def on_terminal(launcher: Launcher, **environment: str) -> bytes:
    ours, theirs = pty.openpty()
    process = launcher.start("-np", "2", "echo", "hi", stdout=theirs, stderr=theirs,
                             env=launcher.environment(TERM="xterm") | environment)  # fmt: skip
    os.close(theirs)
    text = b""
    try:
        while block := os.read(ours, 4096):
            text += block
    except OSError:  # EIO: no process has the terminal open any more
        pass
    finally:
        os.close(ours)
    assert process.wait(DEADLINE) == 0
    return text


def test_colour_on_a_terminal_only(launcher: Launcher) -> None:
    assert b"\033[32m[0]<stdout>:\033[0m hi" in on_terminal(launcher)
    assert b"\033[33m[1]<stdout>:\033[0m hi" in on_terminal(launcher)
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        text = on_terminal(launcher, **plain)
        assert b"[1]<stdout>: hi" in text and b"\033" not in text
    assert "\033" not in launcher.run("-np", "2", "echo", "hi").stdout


def test_ranks_can_open_their_own_stdout(launcher: Launcher) -> None:
    assert launcher.run("-np", "1", "bash", "-c", "echo hi > /dev/stdout").stdout == "[0]<stdout>: hi\n"
