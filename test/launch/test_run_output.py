"""What ranks print, where the streams of the caller of horovod.run and execute do not take it as it is."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import DEADLINE, Launcher

import horovod
from horovod.runner.common.util import safe_shell_exec
from horovod.runner.output import Output, pass_on
from horovod.runner.util.threads import in_thread

# More than a pipe holds: who stops reading makes the program wait forever.
TALK = "for i in range(3000): print('größe', i, 'y' * 100)"
TALKED = "".join(f"größe {i} {'y' * 100}\n" for i in range(3000))


class Refusing(io.StringIO):
    """A stream that raises something for some of the lines."""

    def __init__(self, error: BaseException, refuses: Callable[[str], bool] = lambda text: True) -> None:
        super().__init__()
        self.error, self.refuses = error, refuses

    def write(self, text: str) -> int:
        if self.refuses(text):
            raise self.error
        return super().write(text)


class Unprintable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("not even its text")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


def broken_pipe() -> io.TextIOWrapper:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


REFUSING: dict[str, tuple[Callable[[], Any], str]] = {
    "none": (lambda: None, "it is None"),
    "closed": (closed, "closed file"),
    "no write": (object, "AttributeError"),
    "of bytes": (io.BytesIO, "TypeError"),
    "broken pipe": (broken_pipe, "BrokenPipeError"),
    "error": (lambda: Refusing(KeyError("odd")), "KeyError: 'odd'"),
    "never ready": (lambda: Refusing(BlockingIOError()), "fileno"),
    "unprintable": (lambda: Refusing(Unprintable()), "Unprintable"),
}


def talk(program: str, stream: Any, **variables: str) -> Output:
    """Runs a program of Python, whose output goes to the stream."""
    output, errors = Output("stdout", lambda: stream), Output("stderr", lambda: sys.stderr)
    with subprocess.Popen(
        [sys.executable, "-X", "utf8", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **variables},
    ) as process:
        pass_on(process, [output, errors])
    assert process.returncode == 0
    return output


@pytest.mark.parametrize("kind", REFUSING)
def test_a_stream_that_refuses(kind: str) -> None:
    make, cause = REFUSING[kind]
    assert cause in talk(TALK, make()).refusal


def test_only_the_refused_lines_are_lost() -> None:
    stream = Refusing(OSError("full"), lambda text: " 7 " in text)
    assert "full" in talk(TALK, stream).refusal
    assert stream.getvalue() == TALKED.replace(f"größe 7 {'y' * 100}\n", "")


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("ascii", "gr\\xf6\\xdfe \\u20ac\n"),
        ("latin-1", "größe \\u20ac\n"),
        ("iso8859-15", "größe €\n"),
        ("utf-16", "größe €\n"),
    ],
)
def test_characters_that_the_stream_lacks(encoding: str, expected: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert not talk("print('größe €')", stream).refusal
    assert stream.buffer.getvalue().decode(encoding) == expected  # type: ignore[attr-defined]


def test_a_stream_that_does_not_say_its_encoding() -> None:
    stream = Refusing(UnicodeEncodeError("own", "ö", 0, 1, "no"), lambda text: not text.isascii())
    assert not talk("print('größe €')", stream).refusal
    assert stream.getvalue() == "gr\\xf6\\xdfe \\u20ac\n"


def test_the_encoding_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    stream = io.StringIO()
    talk("print('größe')", stream)
    assert stream.getvalue() == "größe\n"
    monkeypatch.setenv("PYTHONIOENCODING", "no such")
    assert Output("stdout", lambda: stream).refusal == ""


def test_output_of_every_form() -> None:
    stream = io.StringIO()
    long = "z" * 3_000_000
    program = f"""
import sys, os
for each in [b"bytes \\xff\\x00\\xfe\\n", b"50 %\\r100 %\\r\\n", b"z" * {len(long)}, b"\\n\\nno end \\xc3"]:
    sys.stdout.buffer.write(each)
"""
    assert not talk(program, stream).refusal
    assert stream.getvalue() == f"bytes \\xff\x00\\xfe\n50 %\r100 %\r\n{long}\n\nno end \\xc3"


def test_a_line_is_one_write() -> None:
    lines: list[str] = []
    stream = SimpleNamespace(write=lines.append)
    talk("print('a\\u2028b\\fc'); print('d')", stream)
    assert lines == ["a\u2028b\fc\n", "d\n"]


def unbuffered(file: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(open(file, "wb", 0), encoding="utf-8", write_through=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [lambda file: os.fdopen(file, "w", encoding="utf-8"), unbuffered])
def test_a_pipe_that_does_not_block(make: Callable[[int], io.TextIOWrapper]) -> None:
    """Its reader is slower than the program."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    received: list[str] = []

    def read() -> None:
        with os.fdopen(reader, encoding="utf-8") as file:
            received.append(file.read())

    with make(writer) as stream:
        thread = in_thread(read)
        output = talk(f"{TALK}\nprint('ö' * 100_000)", stream)
    thread.join(DEADLINE)
    assert not output.refusal
    assert received == [f"{TALKED}{'ö' * 100_000}\n"]


def test_the_stream_is_the_one_of_that_moment() -> None:
    """A capture ends while the job runs in a thread of its own."""
    first, second = io.StringIO(), io.StringIO()
    streams = [first]
    output = Output("stdout", lambda: streams[-1])
    output.receive(b"first\n")
    first.close()
    streams.append(second)
    output.receive(b"second\n")
    assert (output.refusal, second.getvalue()) == ("", "second\n")


def test_a_process_that_stays_with_the_pipes() -> None:
    """As a connection that ssh shares: the job has ended, but its stderr is still open."""
    stream = io.StringIO()
    output, errors = Output("stdout", lambda: stream), Output("stderr", lambda: stream)
    command = ["sh", "-c", "setsid sleep 60 & echo $!; exit 3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        thread = in_thread(pass_on, (process, [output, errors]))
        thread.join(DEADLINE)
        assert not thread.is_alive()
    os.kill(int(stream.getvalue()), signal.SIGKILL)
    assert process.returncode == 3


@pytest.mark.parametrize("kind", ["closed", "error"])
def test_execute_goes_on(kind: str) -> None:
    make, cause = REFUSING[kind]
    command = f"{sys.executable} -X utf8 -c {shlex.quote(TALK)}; echo done >&2; exit 3"
    errors = io.StringIO()
    with pytest.warns(RuntimeWarning, match=f"stdout refused it.*{cause}"):
        assert safe_shell_exec.execute(command, stdout=make(), stderr=errors, index=1) == 3
    assert errors.getvalue() == "[1]<stderr>:done\n"


def test_execute_leaves_nobody_who_writes() -> None:
    out = io.StringIO()
    assert safe_shell_exec.execute("yes & echo $$; exit 4", stdout=out) == 4
    assert out.getvalue().startswith("y\n") or out.getvalue()[0].isdigit()


# -- horovod.run -----------------------------------------------------------------------------------

RUN = """
import io, signal, sys
import horovod

def talk():
    import horovod as hvd
    hvd.init()
    for i in range(3000):
        print("größe", i, "y" * 100)
    return hvd.rank()

error, out = sys.stderr, sys.stdout
{before}
print(horovod.run(talk, np=2), file=error)
"""


def run(launcher: Launcher, before: str, redirect: str = "", **variables: str) -> tuple[str, str]:
    """stdout and stderr of a program that calls horovod.run."""
    words = shlex.join([sys.executable, *launcher.python(RUN.format(before=before))[1:]])
    environment = launcher.environment(PYTHONUTF8="1", **variables)
    result = launcher.run("-c", f"{words} {redirect}", program="/bin/sh", env=environment, encoding=None)
    return result.stdout, result.stderr


@pytest.mark.parametrize(
    ("before", "redirect", "cause"),
    [
        ("sys.stdout.close()", "", "closed file"),
        ("", ">&-", "it is None"),
        ("", "| head -1", "BrokenPipeError"),
        ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", ">/dev/full", "No space left"),
    ],
)
def test_the_results_come_back(launcher: Launcher, before: str, redirect: str, cause: str) -> None:
    _, errors = run(launcher, before, redirect)
    assert "[0, 1]" in errors.splitlines()
    assert errors.count("RuntimeWarning: some output of the processes is lost: sys.stdout refused it") == 1
    assert cause in errors


def test_all_streams_closed(launcher: Launcher) -> None:
    before = "error = open('results', 'w')"
    run(launcher, before, "<&- >&- 2>&-")
    assert (launcher.folder / "results").read_text() == "[0, 1]\n"


def test_an_ascii_stream(launcher: Launcher) -> None:
    out, errors = run(launcher, "sys.stdout.reconfigure(encoding='ascii')")
    assert errors == "[0, 1]\n"
    assert out.count("gr\\xf6\\xdfe") == 6000


def test_an_interrupted_run_prints_last_lines(launcher: Launcher) -> None:
    """Of the launcher and the ranks, which a signal for the caller alone reaches by way of it."""
    before = "horovod.run(lambda: (print('ready', flush=True), __import__('time').sleep(60)), np=1)"
    process = launcher.start(*launcher.python(RUN.format(before=before))[1:], program=sys.executable)
    assert process.stdout and "ready" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=DEADLINE)
    assert "KeyboardInterrupt" in errors
    assert launcher.none_alive()


@pytest.mark.filterwarnings("error")
def test_a_rank_failed_where_warnings_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        print("lost")
        raise KeyError("own")

    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(RuntimeError, match="rank 0: KeyError: 'own'"):
        horovod.run(fail, np=1)


def test_in_a_thread_and_in_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> list[int]:
        return await asyncio.to_thread(horovod.run, lambda: print("as in a notebook") or 7, np=1)

    assert asyncio.run(main()) == [7]
    assert capsys.readouterr().out == "[0]<stdout>: as in a notebook\n"
