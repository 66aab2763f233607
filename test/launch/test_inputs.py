"""Lists, files, words and variables as people write them: each works, or a text says what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import DEADLINE, Launcher, free_port

ECHO = ["bash", "-c", "echo $HOROVOD_SIZE"]


def sizes(result: subprocess.CompletedProcess[str]) -> set[str]:
    assert result.returncode == 0, result.stderr
    return {line.partition(": ")[2] for line in result.stdout.splitlines()}


@pytest.mark.parametrize(
    "hosts",
    [
        "localhost:1, localhost:2",
        " localhost : 2 ,127.0.0.1:1\t",
        "localhost:2,[::1] :1",
        "localhost:1,\nlocalhost:2\r\n",
    ],
)
def test_blanks_in_a_list_of_hosts(launcher: Launcher, hosts: str) -> None:
    assert sizes(launcher.run("-H", hosts, *ECHO)) == {"3"}


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbflocalhost slots=3\n",
        b"\xef\xbb\xbf# comment\r\nlocalhost slots=3\r\n\r\n",
        b"localhost slots = 3 max_slots =4\n",
        b"\tlocalhost\tslots=\t3 \t# three\n",
        b"localhost : 3",
        b"localhost:1\r\nlocalhost:2",
    ],
)
def test_host_files(launcher: Launcher, text: bytes) -> None:
    (launcher.folder / "hosts").write_bytes(text)
    assert sizes(launcher.run("--hostfile", "hosts", *ECHO)) == {"3"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "the host file hosts names no host"),
        (b"\xef\xbb\xbf", "the host file hosts names no host"),
        (b"# none\n\r\n", "the host file hosts names no host"),
        (b"localhost:1\rlocalhost:1\r", "hosts:1: 'localhost:1' is not understood"),
        ("\ufefflocalhost:1\n".encode("utf-16-le"), "hosts:1: there is a NUL byte"),
        (b"localhost:1\nlocal\x07host:1\n", "hosts:2: 'local\x07host' is no name of a host"),
        (
            b"localhost:1\n\xef\xbb\xbflocalhost:1\n",
            "is no name of a host: the character at byte 1 is invisible",
        ),
        (b"[::1]:\n", "hosts:1: '' is not a number of slots"),
        (b"localhost slots=0x10\n", "'0x10' is not a number of slots"),
        (b"localhost slots=99999999999999999999\n", "'99999999999999999999' is not a number of slots"),
    ],
)
def test_host_files_that_are_refused(launcher: Launcher, text: bytes, problem: str) -> None:
    (launcher.folder / "hosts").write_bytes(text)
    result = launcher.run("--hostfile", "hosts", "true")
    assert (result.returncode, result.stdout) == (2, "")
    assert problem in result.stderr


def test_a_folder_in_place_of_a_file(launcher: Launcher) -> None:
    for option, what in (("--hostfile", "host"), ("--config-file", "config")):
        result = launcher.run("-np", "1", option, ".", "true")
        assert result.returncode == 2
        assert f"can't read the {what} file .: Is a directory" in result.stderr


@pytest.mark.parametrize(
    ("hosts", "problem"),
    [
        ("localhost:1,,localhost:1", "'' is not of the form host:slots"),
        (",", "'' is not of the form host:slots"),
        ("a b:1", "'a b' is no name of a host"),
        ("localhost:1,\u00a0localhost:1", "is no name of a host: the character at byte 1 is invisible"),
        ("local\u200bhost:2", "the character at byte 6 is invisible"),
        (f"localhost:1{' ' * 500}2", "is no name of a host"),
        ("[::1]", "'[::1]' is not of the form host:slots"),
        ("x" * 300 + ":1", "is no name of a host"),
    ],
)
def test_lists_of_hosts_that_are_refused(launcher: Launcher, hosts: str, problem: str) -> None:
    result = launcher.run("-H", hosts, "true")
    assert (result.returncode, result.stdout) == (2, "")
    assert problem in result.stderr


@pytest.mark.parametrize("text", [b"\xef\xbb\xbfparams:\r\n  cycle_time_ms: 3\r\n", b"\xef\xbb\xbf"])
def test_a_config_file_with_a_byte_order_mark(launcher: Launcher, text: bytes) -> None:
    (launcher.folder / "run.yaml").write_bytes(text)
    result = launcher.run("-np", "1", "--config-file", "run.yaml", "printenv", "HOROVOD_CYCLE_TIME")
    assert result.stdout == ("[0]<stdout>: 3\n" if b"params" in text else ""), result.stderr


def test_blanks_in_lists_of_settings(launcher: Launcher) -> None:
    options = [
        "--network-interface",
        "lo , ^eth77",
        "--ports",
        " 20000 - 20099 ",
        "--thread-affinity",
        "0, 0",
    ]
    names = ["HOROVOD_NETWORK_INTERFACE", "HOROVOD_PORTS", "HOROVOD_THREAD_AFFINITY"]
    result = launcher.run("-np", "1", *options, "printenv", *names)
    lines = [line.removeprefix("[0]<stdout>: ") for line in result.stdout.splitlines()]
    assert lines == ["lo,^eth77", "20000-20099", "0,0"], result.stderr


WORDS = ["a b", "it's", '"', "n\nl", "$HOME", "\\", "", "*", "größe", "`true`", "-x", "\x7f\t"]


def test_words_and_folders_reach_other_hosts_unchanged(launcher: Launcher) -> None:
    folder = launcher.folder / "a b'c $d\n"
    folder.mkdir()
    show = launcher.python("import os, sys; print([os.getcwd(), *sys.argv[1:]])")
    result = launcher.run(*launcher.agents(), "-H", "x_1:1", *show, *WORDS, cwd=folder)
    assert result.stdout == f"[0]<stdout>: {[str(folder), *WORDS]}\n", result.stderr


START_FILES = """
export HOROVOD_HOST_ID=$1; shift
export HOME=$PWD BASH_ENV=$PWD/bash_env SSH_CLIENT='::1 1 2' SHLVL=0
echo 'export PATH=/from/bashrc:$PATH RC=$((RC + 1))' >.bashrc
echo 'export PATH=/from/bash_env:$PATH' >bash_env
eval "$@"
"""


def test_host_setup_changes_what_it_sets(launcher: Launcher) -> None:
    """Start files of the shell that starts the setup change variables, too; these stay the launcher's."""
    given = launcher.environment(MINE="launcher", BOTH="launcher", RC="7")
    words = [
        *launcher.agents(START_FILES),
        "-H",
        "x:1,y:1",
        "--host-setup",
        "wait; export BOTH='a\nb' OWN=1",
    ]
    show = launcher.python(
        "import os; e = os.environ; print([e[k] for k in ('PATH', 'MINE', 'RC', 'BOTH', 'OWN')])"
    )
    result = launcher.run(*words, *show, env=given)
    expected = [given["PATH"], "launcher", "7", "a\nb", "1"]
    assert sorted(result.stdout.splitlines()) == [f"[{i}]<stdout>: {expected}" for i in range(2)], (
        result.stderr
    )


def test_host_setup_adds_to_the_path(launcher: Launcher) -> None:
    words = [*launcher.agents(), "-H", "x:1", "--host-setup", "PATH=/new:$PATH", "printenv", "PATH"]
    assert launcher.run(*words).stdout == f"[0]<stdout>: /new:{os.environ['PATH']}\n"


@pytest.mark.parametrize(
    ("setup", "own"),
    [
        (" ", "launcher"),
        ("# nothing", "launcher"),
        ("unset OWN", ""),
        ("exec >/dev/null 2>&1 </dev/zero; echo; OWN=1", "1"),
    ],
)
def test_host_setups(launcher: Launcher, setup: str, own: str) -> None:
    words = [*launcher.agents(), "-H", "x:1", "--host-setup", setup, "bash", "-c", "echo $OWN"]
    result = launcher.run(*words, env=launcher.environment(OWN="launcher"))
    assert (result.stdout, result.stderr) == (f"[0]<stdout>: {own}\n", "")


WITHOUT_PROC = """
export HOROVOD_HOST_ID=$1; shift
if [ -e /proc/self ]; then
    exec unshare --mount sh -c 'mount -t tmpfs none /proc; exec "$@"' x "$0" "$HOROVOD_HOST_ID" "$@"
fi
eval "$@"
"""
RUN = """
import horovod
def place():
    import horovod as hvd
    hvd.init()
    return hvd.rank(), hvd.size()
if __name__ == "__main__":
    print(horovod.run(place, hosts="x:2"))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of its own needs root")
def test_hosts_without_proc(launcher: Launcher) -> None:
    """What a shell offers as `<(command)`, and the opening of /proc/self/fd/N, are not there."""
    option, agent = launcher.agents(WITHOUT_PROC)
    result = launcher.run(
        option, agent, "-H", "x:1", "--host-setup", "export A=1", "bash", "-c", "echo $A $(ls /proc)"
    )
    assert (result.stdout, result.stderr) == ("[0]<stdout>: 1\n", "")
    program, *words = launcher.python(RUN)
    result = launcher.run(*words, program=program, env=launcher.environment(OMPI_MCA_plm_rsh_agent=agent))
    assert result.stdout == "[(0, 2), (1, 2)]\n", result.stderr


MANY = "import sys; sys.stdout.buffer.write({start!r} + '{character}'.encode() * 50_000 + b'\\n')"


@pytest.mark.parametrize("where", ["here", "agent"])
@pytest.mark.parametrize("character", ["ß", "€", "🙂"])
def test_long_lines_are_cut_between_characters(launcher: Launcher, character: str, where: str) -> None:
    words = ["-np", "1"] if where == "here" else [*launcher.agents(), "-H", "x:1"]
    for start in (b"", b"a", b"ab", b"\xff"):
        source = MANY.format(start=start, character=character)
        result = launcher.run(*words, "--output-filename", "out", sys.executable, "-c", source, text=False)
        lines = result.stdout.splitlines()  # type: ignore[attr-defined]
        pieces = [line.removeprefix(b"[0]<stdout>: ") for line in lines]
        whole = start + character.encode() * 50_000
        assert b"".join(pieces) == whole
        for piece in pieces:
            piece.removeprefix(b"\xff").decode()
        assert (launcher.folder / "out/rank.0/stdout").read_bytes() == whole + b"\n"


def test_what_is_no_utf_8_passes_unchanged(launcher: Launcher) -> None:
    source = "import sys; sys.stdout.buffer.write((b'\\xe2\\x82' + bytes(range(128, 256)) + b'\\xf0') * 2000)"
    out = launcher.run("-np", "1", sys.executable, "-c", source, text=False).stdout
    assert isinstance(out, bytes)
    lines = [line.removeprefix(b"[0]<stdout>: ") for line in out.split(b"\n")[:-1]]
    assert b"".join(lines) == (b"\xe2\x82" + bytes(range(128, 256)) + b"\xf0") * 2000


INIT = "import horovod as hvd; hvd.init(); hvd.shutdown(); hvd.init()"
MISSPELT = {"HOROVOD_FUSION_TRESHOLD": "1", "HOROVOD_CYCLE_TIME_MS": "1", "HOROVOD_IMAGE": "x"}
NAMED = [
    "HOROVOD_CYCLE_TIME_MS is no variable of Horovod's, and has no effect; did you mean HOROVOD_CYCLE_TIME?",
    "HOROVOD_FUSION_TRESHOLD is no variable of Horovod's, and has no effect; did you mean "
    "HOROVOD_FUSION_THRESHOLD?",
]


def test_misspelt_variables_are_named_once(launcher: Launcher) -> None:
    environment = launcher.environment(**MISSPELT)
    result = launcher.run("-np", "2", *launcher.python(INIT), env=environment)
    assert sorted(result.stderr.splitlines()) == [f"horovodrun: {text}" for text in NAMED]


def test_misspelt_variables_without_a_launcher(launcher: Launcher) -> None:
    """Rank 0 names them, once."""
    place = {
        "HOROVOD_SIZE": "2",
        "HOROVOD_RENDEZVOUS": f"127.0.0.1:{free_port()}",
        "HOROVOD_SECRET": "0" * 64,
    }
    command = launcher.python(INIT)
    ranks = [
        launcher.start(
            *command[1:],
            program=command[0],
            env=launcher.environment(**MISSPELT, **place, HOROVOD_RANK=str(rank)),
        )
        for rank in range(2)
    ]
    texts = [rank.communicate(timeout=DEADLINE)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], texts
    assert sorted(line.partition("[0]: ")[2] for line in texts[0].splitlines()) == NAMED
    assert texts[1] == ""
