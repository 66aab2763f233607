"""One command on each node, without ssh: node 0 is the launcher, and the others connect to it.

All nodes are on this machine unless a test says otherwise.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE, Launcher, OnHosts, free_port, wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")

PLACE = """
place="$HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE"
echo $place $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE $MINE
"""
TRAIN = """
import numpy as np, sys
import horovod as hvd
hvd.init()
total = hvd.allreduce(np.full(100_000, hvd.rank() + 1.0), op=hvd.Sum, name="x")
assert total[0] == sum(range(hvd.size() + 1)), total
print(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
hvd.shutdown()
"""


class Nodes:
    """Starts the nodes of a job one by one."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.place = f"127.0.0.1:{free_port()}"
        self.secret = "0123456789abcdef"

    def start(self, index: int, count: int, *words: str, **more: str) -> subprocess.Popen[str]:
        options = ["--nnodes", str(count), "--node-rank", str(index), "--rendezvous", self.place]
        return self.start_plain(*options, *words, **more)

    def start_plain(self, *words: str, **more: str) -> subprocess.Popen[str]:
        variables = {"HOROVOD_SECRET": self.secret, "CUDA_VISIBLE_DEVICES": ""} | more
        return self.launcher.start(*words, env=self.launcher.environment(**variables))


@pytest.fixture
def nodes(launcher: Launcher) -> Nodes:
    return Nodes(launcher)


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=DEADLINE)
    return process.returncode, out, err


def ends(processes: Sequence[subprocess.Popen[str]], code: int) -> list[str]:
    """What each has written to stderr; they all have this exit code."""
    results = [end(process) for process in processes]
    assert [result[0] for result in results] == [code] * len(results), results
    assert [result[1] for result in results[1:]] == [""] * (len(results) - 1)
    return [result[2] for result in results]


def numbered(lines: Sequence[str]) -> list[str]:
    return [f"[{i}]<stdout>: {line}" for i, line in enumerate(lines)]


def test_places(nodes: Nodes) -> None:
    """In any order, with any number of ranks on each; the environment is the node's own."""
    words = ["bash", "-c", PLACE]
    others = [
        nodes.start(2, 3, "-np", "1", *words, MINE="c"),
        nodes.start(1, 3, "-np", "2", *words, MINE="b"),
    ]
    first = nodes.start(0, 3, *words, MINE="a")
    code, out, err = end(first)
    assert code == 0, err
    assert sorted(out.splitlines()) == numbered(
        ["0/4 0/1 0/3 a", "1/4 0/2 1/3 b", "2/4 1/2 0/1 b", "3/4 0/1 2/3 c"]
    )
    said = [end(other) for other in others]
    assert [(code, out) for code, out, _ in said] == [(0, "")] * 2
    assert "horovodrun: node 1 of 3; node 0 at 127.0.0.1:" in said[1][2]


@pytest.mark.parametrize("words", [[], ["--encryption"]])
def test_a_program_with_allreduces(nodes: Nodes, words: list[str]) -> None:
    command = [*words, "-np", "2", *nodes.launcher.python(TRAIN)]
    first, second = nodes.start(0, 2, *command), nodes.start(1, 2, *command)
    code, out, err = end(first)
    assert code == 0, err
    assert sorted(out.splitlines()) == numbered(["0 4 0 2 0 2", "1 4 1 2 0 2", "2 4 0 2 1 2", "3 4 1 2 1 2"])
    assert end(second)[0] == 0


def test_variables_of_a_scheduler(nodes: Nodes) -> None:
    """Without any option; HOROVOD_PORTS keeps the test's own port."""
    port = nodes.place.split(":")[1]
    variables = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2"}
    variables |= {"SKYPILOT_NUM_GPUS_PER_NODE": "2", "HOROVOD_RENDEZVOUS": f"127.0.0.1:{port}"}
    both = [
        nodes.start_plain("bash", "-c", PLACE, SKYPILOT_NODE_RANK=str(i), MINE=str(i), **variables)
        for i in range(2)
    ]
    code, out, err = end(both[0])
    assert code == 0, err
    assert sorted(out.splitlines()) == numbered(
        ["0/4 0/2 0/2 0", "1/4 1/2 0/2 0", "2/4 0/2 1/2 1", "3/4 1/2 1/2 1"]
    )
    assert end(both[1])[0] == 0


def test_a_job_in_an_indexed_job(nodes: Nodes) -> None:
    variables = {"HOROVOD_NODES": "2", "HOROVOD_RENDEZVOUS": nodes.place}
    both = [
        nodes.start_plain("bash", "-c", PLACE, JOB_COMPLETION_INDEX=str(i), **variables) for i in range(2)
    ]
    code, out, err = end(both[0])
    assert code == 0, err
    assert sorted(out.splitlines()) == numbered(["0/2 0/1 0/2", "1/2 0/1 1/2"])
    assert end(both[1])[0] == 0


def test_the_first_cause_on_every_node(nodes: Nodes) -> None:
    script = "[ $HOROVOD_RANK = 2 ] && { echo broken >&2; exit 7; }; exec sleep 100"
    errors = ends([nodes.start(i, 3, "bash", "-c", script) for i in range(3)], 7)
    for text in errors:
        assert re.search(
            r"horovodrun: the first to fail was rank 2 \(pid \d+\) on .*: it ended with exit code 7", text
        )
        assert "horovodrun:   broken" in text


def test_a_command_that_is_not_there(nodes: Nodes) -> None:
    both = [nodes.start(0, 2, "true"), nodes.start(1, 2, "no-such-program")]
    for text in ends(both, 127):
        assert "'no-such-program' was not found" in text


def running(nodes: Nodes, count: int) -> list[subprocess.Popen[str]]:
    """All ranks of these nodes run."""
    folder = nodes.launcher.folder
    script = f"touch {folder}/up.$HOROVOD_RANK; exec sleep 100"
    started = [nodes.start(i, count, "bash", "-c", script) for i in range(count)]
    assert wait_until(lambda: len(list(folder.glob("up.*"))) == count)
    return started


@pytest.mark.parametrize(("node", "number"), [(0, signal.SIGINT), (1, signal.SIGTERM)])
def test_a_signal(nodes: Nodes, node: int, number: signal.Signals) -> None:
    started = running(nodes, 2)
    started[node].send_signal(number)
    for text in ends(started, 128 + number):
        assert f"got {number.name}; ending the job" in text


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(nodes: Nodes, process: subprocess.Popen[str]) -> None:
    """The machine of the node is gone, as far as others can see."""
    own = [pid for pid in nodes.launcher.alive() if process.pid in ancestors(pid)]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none of them sees the end of another one
        for pid in own:
            with contextlib.suppress(ProcessLookupError):  # it ends with the one before
                os.kill(pid, number)


def test_node_0_is_killed(nodes: Nodes) -> None:
    started = running(nodes, 3)
    begin = time.monotonic()
    kill(nodes, started[0])
    for text in ends(started[1:], 1):
        assert f"horovodrun: lost node 0 at {nodes.place}: its connection has ended" in text
    assert time.monotonic() - begin < 20


def test_another_node_is_killed(nodes: Nodes) -> None:
    started = running(nodes, 3)
    kill(nodes, started[1])
    results = [end(started[i]) for i in (0, 2)]
    for code, _, text in results:
        assert code == 1, results
        assert re.search(r"lost host .* with rank 1: its connection has ended", text)


# ---- jobs that can't start -----------------------------------------------------------------------


def test_a_node_that_never_comes(nodes: Nodes) -> None:
    words = ["--start-timeout", "2", "true"]
    text = ends([nodes.start(i, 4, *words) for i in (0, 2)], 1)
    for each in text:
        assert (
            "nodes 1, 3 of 4 have not come within 2 s (--start-timeout); does horovodrun run there with the "
            f"same --nnodes, and does it reach node 0 at {nodes.place}?" in each
        )


def test_node_0_never_comes(nodes: Nodes) -> None:
    [text] = ends([nodes.start(1, 2, "--start-timeout", "1", "true")], 1)
    assert f"node 0 at {nodes.place} can't be reached" in text
    assert "HOROVOD_START_TIMEOUT" in text


def test_two_nodes_of_one_number(nodes: Nodes) -> None:
    for text in ends([nodes.start(i, 3, "true") for i in (0, 1, 1)], 1):
        assert "there are two nodes 1, on host" in text


def test_numbers_of_nodes_that_differ(nodes: Nodes) -> None:
    for text in ends([nodes.start(0, 3, "true"), nodes.start(1, 2, "true")], 1):
        assert "says that there are 2 nodes, node 0 says 3; give all the same --nnodes" in text


def test_another_release(nodes: Nodes, tmp_path: Path) -> None:
    """A horovodrun in which the text of the release is another one."""
    program = Path(nodes.launcher.program).read_bytes()
    release = subprocess.run(
        [nodes.launcher.program, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    other = release[:-1] + ("8" if release[-1] != "8" else "9")
    assert release.encode() + b"\0" in program
    copy = tmp_path / "horovodrun"
    copy.write_bytes(program.replace(release.encode() + b"\0", other.encode() + b"\0"))
    copy.chmod(0o755)
    first = nodes.start(0, 2, "true")
    nodes.launcher.program = str(copy)
    for text in ends([first, nodes.start(1, 2, "true")], 1):
        assert f"has release {other}, node 0 has {release}; install the same release on all nodes" in text


def test_another_secret(nodes: Nodes) -> None:
    """Only the node without the right one ends at once; node 0 says later what it has refused."""
    first = nodes.start(0, 2, "--start-timeout", "3", "true")
    second = nodes.start(1, 2, "true", HOROVOD_SECRET="another")
    code, _, text = end(second)
    assert (code, first.poll()) == (1, None)
    assert "it has another secret" in text
    [text] = ends([first], 1)
    assert "node 1 of 2 has not come within 3 s" in text
    assert "A connection was refused: 127.0.0.1:" in text


def test_a_signal_before_all_have_come(nodes: Nodes) -> None:
    """Also a node that waits for node 0 ends at once."""
    alone = nodes.start(1, 3, "true")
    first = nodes.start(0, 3, "true")
    assert wait_until(lambda: len(nodes.launcher.named("hvd-job")) == 2)
    time_of_join(nodes)
    first.send_signal(signal.SIGTERM)
    for text in ends([first, alone], 128 + signal.SIGTERM):
        assert "horovodrun: got SIGTERM; ending the job" in text
    waiting = nodes.start(2, 3, "true")
    assert wait_until(lambda: len(nodes.launcher.named("hvd-job")) == 1)
    waiting.send_signal(signal.SIGINT)
    assert end(waiting)[0] == 128 + signal.SIGINT


def time_of_join(nodes: Nodes) -> None:
    """Node 1 has connected to node 0."""
    port = int(nodes.place.split(":")[1])
    end = f"0100007F:{port:04X} 0100007F:"

    def connected() -> bool:
        table = Path("/proc/net/tcp").read_text()
        return any(end in line and line.split()[3] == "01" for line in table.splitlines())

    assert wait_until(connected)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nnodes", "2"], "which of the 2 nodes is this? Say --node-rank N"),
        (["--nnodes", "2", "--node-rank", "2", "--rendezvous", "a"], "--node-rank=2 is outside of 2 nodes"),
        (["--nnodes", "2", "--node-rank", "0"], "where is node 0? Say --rendezvous HOST:PORT"),
        (["--node-rank", "0"], "--node-rank and --rendezvous need --nnodes"),
        (["--nnodes", "2", "-H", "a:1"], "--hosts: with one command on each node"),
        (["--nnodes", "2", "--min-np", "1"], "--min-np: with one command on each node"),
    ],
)
def test_options(launcher: Launcher, words: list[str], text: str) -> None:
    result = launcher.run(*words, "true", env=launcher.environment(HOROVOD_SECRET="0123"))
    assert (result.returncode, result.stdout) == (2, "")
    assert text in result.stderr


def test_no_secret(launcher: Launcher) -> None:
    result = launcher.run("--nnodes", "2", "--node-rank", "1", "--rendezvous", "a:1", "true")
    assert result.returncode == 2
    assert "node 1 of 2 (--nnodes): the nodes need a secret in common" in result.stderr


# ---- hosts ---------------------------------------------------------------------------------------


def test_hosts(launcher: Launcher, on_hosts: OnHosts) -> None:
    """A name of node 0, a network, and no ssh."""
    words = ["--nnodes", "3", "-np", "2", "--rendezvous", "b:29600"]
    command = launcher.python(TRAIN)
    options: dict[str, Any] = {"env": launcher.environment(HOROVOD_SECRET="0123", CUDA_VISIBLE_DEVICES="")}
    started = [
        on_hosts.start(*words, "--node-rank", str(i), *command, host=host, **options)
        for i, host in ((1, "a"), (2, "c"), (0, "b"))
    ]
    code, out, err = end(started[2])
    assert code == 0, err
    assert sorted(out.splitlines()) == numbered([f"{r} 6 {r % 2} 2 {r // 2} 3" for r in range(6)])
    assert [end(other)[:2] for other in started[:2]] == [(0, "")] * 2
