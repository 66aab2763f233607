"""The parts of horovod.spark that need no Spark; test/spark runs the others on a real one."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from horovod.common.exceptions import JobFailedError
from horovod.runner.functions import pickled
from horovod.runner.task import Report
from horovod.spark import barrier, child, conf, elastic, failure, jobs, lines, links
from horovod.spark import slots as spark_slots
from horovod.spark.task import get_available_devices

SECRET = b"s" * 32
DEADLINE = 60.0  # seconds


def test_importing_it_does_not_import_spark() -> None:
    text = "import sys, horovod.spark; print('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", text], timeout=DEADLINE, text=True) == "False\n"


@pytest.mark.parametrize(
    ("hosts", "ranks"),
    [("aabb", [0, 1, 2, 3]), ("abab", [0, 2, 1, 3]), ("bacab", [0, 4, 1, 3, 2]), ("a", [0])],
)
def test_ranks_of_a_host_are_neighbours(hosts: str, ranks: list[int]) -> None:
    assert barrier.order(hosts) == ranks


def test_the_first_device_of_a_rank_has_its_local_rank_as_index() -> None:
    assert barrier.visible_devices([["4", "5"], ["0", "1"], ["7"]]) == ["4", "0", "7", "5", "1"]
    assert barrier.visible_devices([[], []]) == []


def member(host: str, port: int, *devices: str) -> barrier.Member:
    return barrier.Member(host, [f"10.0.0.{port}", "fd00::1"], port, f"secret of {port}", list(devices))


def test_variables_of_ranks() -> None:
    job = barrier.Job(b"", {}, None, "eth1", False)
    members = [member("a", 1, "3"), member("b", 2), member("a", 3, "0", "1")]
    found = barrier.variables_of(job, members, 2)
    assert (found["HOROVOD_RANK"], found["HOROVOD_SIZE"], found["HOROVOD_SECRET"]) == (
        "1",
        "3",
        "secret of 1",
    )
    assert found["HOROVOD_RENDEZVOUS"] == "10.0.0.1:1,[fd00::1]:1"
    assert (found["CUDA_VISIBLE_DEVICES"], found["HOROVOD_SPARK_DEVICES"]) == ("3,0,1", "0,1")
    assert found["HOROVOD_NETWORK_INTERFACE"] == "eth1"
    other = barrier.variables_of(job, members, 1)
    assert other["HOROVOD_RANK"] == "2" and "CUDA_VISIBLE_DEVICES" not in other
    alone = barrier.variables_of(job, members[:1], 0)
    assert alone["HOROVOD_RENDEZVOUS"] == "127.0.0.1:1"


def test_devices_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_SPARK_DEVICES", "2,0")
    assert get_available_devices() == ["2", "0"]
    monkeypatch.setenv("HOROVOD_SPARK_DEVICES", "")
    assert get_available_devices() == []


def test_ranks_get_settings_but_no_place_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
        monkeypatch.delenv(name)
    for name in ("RANK", "SECRET", "RENDEZVOUS", "SLOT", "HOST_ID", "CYCLE_TIME"):
        monkeypatch.setenv(f"HOROVOD_{name}", "5")
    assert jobs.variables({"A": 1}, 600.0) == {  # type: ignore[dict-item]
        "HOROVOD_START_TIMEOUT": "600",
        "HOROVOD_CYCLE_TIME": "5",
        "A": "1",
    }
    assert jobs.start_seconds(None) == 600 and jobs.start_seconds(3) == 3
    monkeypatch.setenv("HOROVOD_SPARK_START_TIMEOUT", "20")
    assert jobs.start_seconds(None) == 20


# -- slots ---------------------------------------------------------------------------------------------------


def test_too_few_slots_are_an_error_at_once_if_they_can_not_change() -> None:
    with pytest.raises(ValueError, match="4 ranks need 4 slots of Spark at the same time, and it has 2"):
        spark_slots.wait_for_slots(lambda: 2, 4, 600.0, is_fixed=True)


def test_slots_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_slots, "POLL_SECONDS", 0)
    monkeypatch.setattr(spark_slots, "PATIENCE_SECONDS", 0)
    found, said = iter([1, 1, 4]), []  # type: ignore[var-annotated]
    spark_slots.wait_for_slots(lambda: next(found), 4, DEADLINE, is_fixed=False, say=said.append)
    assert len(said) == 1 and f"it has 1; waiting up to {DEADLINE:g} s" in said[0]
    with pytest.raises(JobFailedError, match=r"it has 1, after 0 s: ask for fewer ranks"):
        spark_slots.wait_for_slots(lambda: 1, 4, 0.0, is_fixed=False)


# -- failures ------------------------------------------------------------------------------------------------


def test_a_failure_passes_through_a_text_of_spark() -> None:
    error = pickle.dumps(KeyError("x"))
    report = Report(0, 1, 2, 77, None, error, "Traceback\n  ...", "KeyError: 'x'")
    found = failure.of_process(1, "b", 77, 1, report, "")
    assert found
    spark = (
        f"Job aborted: Could not recover\nRankFailedError: {found.text()}\n{found.record()}\n\tat org.apache"
    )
    assert failure.find(spark * 2) == found
    raised = found.job_failed()
    assert isinstance(raised.__cause__, KeyError) and raised.exit_code == 1
    assert "rank 1 (process 77 on b): KeyError: 'x'" in str(raised)
    assert raised.fault and (raised.fault.rank, raised.fault.cause, raised.fault.host) == (
        1,
        "exception",
        "b",
    )


def test_a_cut_or_foreign_record_is_not_read() -> None:
    found = failure.of_process(0, "a", 7, -9, None, "")
    assert found and failure.find(found.record()[:-5] + "=]") is None
    assert failure.find("[horovod-rank-failure 4 AAAA]") is None
    assert failure.find("[horovod-rank-failure 4 e30=]") is None  # {}
    assert failure.find("no record") is None


def test_a_killed_rank_has_no_exception() -> None:
    found = failure.of_process(3, "c", 9, -signal.SIGKILL, None, "last words")
    assert found
    raised = found.job_failed()
    assert "rank 3 (process 9 on c) was killed by SIGKILL" in str(raised) and "last words" in str(raised)
    assert raised.__cause__ is None and raised.exit_code == 137
    assert raised.fault and raised.fault.cause == "signal"


def test_a_failure_at_exit_counts_and_a_large_exception_is_only_text() -> None:
    done = Report(0, 0, 1, 7, result=b"r")
    assert failure.of_process(0, "a", 7, 0, done, "") is None
    assert failure.of_process(0, "a", 7, 3, done, "")
    large = Report(0, 0, 1, 7, error=b"x" * (failure.ERROR_BYTES + 1), traceback="T", summary="E: 1")
    found = failure.of_process(0, "a", 7, 1, large, "")
    assert found and found.error == ""


def test_an_error_of_spark_itself_is_the_cause() -> None:
    error = RuntimeError("ExecutorLostFailure")
    raised = jobs.spark_failed(error, 2)
    assert raised.__cause__ is error and "its 2 tasks" in str(raised) and "ExecutorLost" in str(raised)
    missing = jobs.spark_failed(RuntimeError("ModuleNotFoundError: No module named 'horovod'"), 2)
    assert "horovod is not installed on the executors" in str(missing)


# -- output --------------------------------------------------------------------------------------------------


def encoded(decoder: lines.Decoder, *messages: tuple[int, int, bytes], first: int = 0) -> bytes:
    """What a Sender with this decoder's nonce writes."""

    class Sink:
        data = b""

        def sendall(self, data: bytes) -> None:
            self.data += data

    sender, sink = lines.Sender.__new__(lines.Sender), Sink()
    vars(sender).update(_secret=SECRET, _nonce=decoder.nonce, _number=first, _socket=sink)
    for stream, rank, data in messages:
        sender._rank = rank
        sender.send(stream, data)
    return sink.data


@pytest.mark.parametrize("piece", [1, 7, 10**9])
def test_messages_arrive_in_pieces(piece: int) -> None:
    decoder = lines.Decoder(SECRET)
    sent = [(0, 3, b"one\n"), (1, 0, b""), (1, 70000, b"x" * lines.DATA_BYTES)]
    data = encoded(decoder, *sent)
    parts = [data[at : at + piece] for at in range(0, len(data), piece)][:20000]
    found = [message for part in parts for message in decoder.feed(part)]
    assert found == sent[: len(found)] and len(found) == (2 if piece == 1 else 3)


@pytest.mark.parametrize("place", range(0, 45, 4))
def test_a_changed_message_is_refused(place: int) -> None:
    decoder = lines.Decoder(SECRET)
    data = bytearray(encoded(decoder, (0, 1, b"abcd")))
    data[place] ^= 1
    try:
        assert [*decoder.feed(bytes(data))] == []  # it waits for the rest of a longer one
        assert place < lines.LENGTH.size
    except ValueError:
        pass


def test_no_message_is_repeated_moved_or_of_another_connection() -> None:
    decoder, other = lines.Decoder(SECRET), lines.Decoder(SECRET)
    data = encoded(decoder, (0, 1, b"a"))
    with pytest.raises(ValueError, match="wrong MAC"):
        [*decoder.feed(data * 2)]
    with pytest.raises(ValueError, match="wrong MAC"):
        [*other.feed(data)]
    with pytest.raises(ValueError, match="wrong MAC"):
        [*other.feed(encoded(other, (0, 1, b"a"), first=1))]


@pytest.mark.parametrize("length", [0, lines.SHORTEST - 1, lines.LONGEST + 1, (1 << 32) - 1])
def test_impossible_lengths_are_refused_before_anything_is_kept(length: int) -> None:
    with pytest.raises(ValueError, match="a message of"):
        [*lines.Decoder(SECRET).feed(lines.LENGTH.pack(length))]


def test_output_reaches_the_listener() -> None:
    shown: list[tuple[int, int, bytes]] = []
    listener = lines.Listener("127.0.0.1", 1, lambda *message: shown.append(message))
    forged = lines.Sender("127.0.0.1", listener.port, b"guessed", 0)
    sender = lines.Sender("127.0.0.1", listener.port, listener.secret, 1)
    forged.send(0, b"forged\n")
    sender.send(0, b"a" * (lines.DATA_BYTES + 1))
    sender.send(1, b"")
    sender.close()
    forged.close()
    listener.close()
    assert shown == [(0, 1, b"a" * lines.DATA_BYTES), (0, 1, b"a"), (1, 1, b"")]


def test_output_that_is_shown_slowly_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """To show it takes longer than the wait for more; it is read in parts."""
    monkeypatch.setattr(lines, "LAST_SECONDS", 0.05)
    monkeypatch.setattr(lines, "READ_BYTES", 1000)
    shown, closing = [], threading.Event()

    def show(stream: int, rank: int, data: bytes) -> None:
        assert closing.wait(DEADLINE)
        time.sleep(0.02)
        shown.append(data[:1])

    listener = lines.Listener("127.0.0.1", 1, show)
    sender = lines.Sender("127.0.0.1", listener.port, listener.secret, 1)
    sent = [b"%c" % (ord("a") + number) for number in range(12)]

    for each in sent:  # all fits into the buffers of the connection
        sender.send(0, each * 1000)
    sender.close()
    ended = threading.Thread(target=listener.close)
    ended.start()
    while listener._closing.fileno() >= 0:
        time.sleep(0.001)
    closing.set()
    ended.join(DEADLINE)
    assert shown == sent


def test_a_connection_that_sends_nothing_does_not_block_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LAST_SECONDS", 0.2)
    listener = lines.Listener("127.0.0.1", 1, lambda *message: None)
    others = [socket.create_connection(("127.0.0.1", listener.port), DEADLINE) for _ in range(40)]
    closed = 0
    for each in others:
        each.settimeout(DEADLINE)
        closed += each.recv(lines.NONCE_BYTES) == b""
    assert closed == 40 - 1 - lines.UNAUTHENTICATED
    ended = threading.Thread(target=listener.close)
    ended.start()
    ended.join(DEADLINE)
    assert not ended.is_alive()
    for each in others:
        each.close()


def test_lines_have_the_rank_in_front() -> None:
    out, err = io.StringIO(), io.StringIO()
    show = jobs.Show(out, err, with_time=False)
    for message in [(0, 1, b"on"), (0, 0, b"zero\n"), (0, 1, b"e\ntwo"), (1, 1, b"bad\n"), (0, 1, b"")]:
        show(*message)
    assert out.getvalue() == "[0]<stdout>: zero\n[1]<stdout>: one\n[1]<stdout>: two"
    assert err.getvalue() == "[1]<stderr>: bad\n"


def test_output_that_can_not_be_sent_is_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert barrier.connected(f"127.0.0.1:{port} 00", 2) is None
    pipe = barrier.Pipe(0, 2, None)
    pipe.receive(b"hello\n")
    pipe.receive(b"")
    text = capsys.readouterr().out
    assert f"127.0.0.1:{port} can't be reached" in text and text.endswith("[2]<stdout>: hello\n")


# -- elastic jobs --------------------------------------------------------------------------------------------


def test_a_task_is_a_host_until_its_rank_has_failed() -> None:
    tasks = elastic.Tasks()
    server = links.Links("127.0.0.1", "secret", tasks.serve)
    with pytest.raises(multiprocessing.AuthenticationError):
        links.connect("127.0.0.1", server.port, "guessed")
    first, second = (links.connect("127.0.0.1", server.port, "secret") for _ in range(2))
    first.send(name="0-0")
    second.send(name="1-0")

    def wait_for(names: list[str]) -> None:
        with tasks.changed:
            there = lambda: sorted(tasks.find_available_hosts_and_slots()) == names  # noqa: E731
            assert tasks.changed.wait_for(there, DEADLINE)

    wait_for(["0-0", "1-0"])
    second.close()
    wait_for(["0-0"])
    codes: list[int] = []
    runs = threading.Thread(target=lambda: codes.append(tasks.run("0-0", {"A": "1"}, [])))
    runs.start()
    assert first.receive() == {"variables": {"A": "1"}}
    first.send(code=7, text="rank 0: KeyError")
    runs.join(DEADLINE)
    assert codes == [7] and tasks.failures == ["rank 0: KeyError"] and tasks.run("1-0", {}, []) == 1
    wait_for([])
    tasks.over()
    late = links.connect("127.0.0.1", server.port, "secret")
    late.send(name="0-1")
    assert first.receive() == {"over": True} == late.receive()
    first.close()
    late.close()
    server.close()


def test_only_the_reader_closes_the_descriptor_of_a_link() -> None:
    """Another thread that closed it, too, could close that of another connection which has got its number."""
    ended = threading.Event()

    def serve(link: links.Link) -> None:
        assert link.receive() is None
        ended.set()

    server = links.Links("127.0.0.1", "secret", serve)
    link = links.connect("127.0.0.1", server.port, "secret")
    number = link._connection.fileno()
    link.end()
    assert link.receive() is None and link._connection.fileno() == number and ended.wait(DEADLINE)
    link.close()
    link.end()
    server.close()


def test_what_is_no_dict_ends_a_link() -> None:
    received: list[object] = []
    done = threading.Event()

    def serve(link: links.Link) -> None:
        received.append(link.receive())
        done.set()

    server = links.Links("127.0.0.1", "secret", serve)
    link = links.connect("127.0.0.1", server.port, "secret")
    link._connection.send_bytes(b"[1]")
    assert done.wait(DEADLINE) and received == [None]
    link.close()
    server.close()


# -- processes -----------------------------------------------------------------------------------------------


class Kept:
    def __init__(self) -> None:
        self.data = b""

    def receive(self, data: bytes) -> None:
        self.data += data


def has_ended(pid: int) -> bool:
    """Returns true if the process ends before the deadline."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ended = bool(select.select([watched], [], [], DEADLINE)[0])
    os.close(watched)
    return ended


def run_child(function: Callable[..., Any], *args: Any) -> tuple[int, Report | None, str]:
    pipes = [Kept(), Kept()]
    own = {name: value for name, value in os.environ.items() if name not in barrier.PLACE}
    _, code, report = child.run_rank(pickled(function, args, {}), own, None, pipes)
    return code, report, pipes[0].data.decode()


@pytest.mark.own_process
def test_a_rank_is_a_process_with_a_result() -> None:
    def function(name: str) -> list[str]:
        print("printed", sys.stdin.read(), flush=True)
        return [name]

    code, report, text = run_child(function, "a")
    assert code == 0 and report and report.result and pickle.loads(report.result) == ["a"]
    assert text == "printed \n"


@pytest.mark.own_process
def test_a_rank_leaves_no_process_and_a_killed_one_no_report() -> None:
    def function() -> None:
        other = subprocess.Popen(["sleep", "1000"])
        print(other.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    code, report, text = run_child(function)
    assert (code, report) == (-signal.SIGKILL, None)
    assert has_ended(int(text))


@pytest.mark.own_process
def test_a_rank_ends_with_its_task() -> None:
    task = (
        "import os, sys, time\n"
        "from horovod.runner.functions import pickled\n"
        "from horovod.spark import child\n"
        "class Pass:\n"
        "    def receive(self, data): os.write(1, data)\n"
        "def wait():\n"
        "    import os, time\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(1000)\n"
        "child.run_rank(pickled(wait, (), {}), dict(os.environ), None, [Pass(), Pass()])\n"
    )
    with subprocess.Popen([sys.executable, "-c", task], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        rank = int(process.stdout.readline())
        process.kill()
    assert has_ended(rank), "the rank outlives its task"


def test_without_spark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ImportError, match=r"pip install 'horovod\[spark\]'"):
        jobs.run(print)


def test_settings_of_spark_are_pairs() -> None:
    assert conf.SPARK_CONF_BLACKLIST_ENABLED == ("spark.excludeOnFailure.enabled", "true")
    pairs = [value for name, value in vars(conf).items() if name.startswith("SPARK_CONF_")]
    assert len(pairs) == 15 and all(key.startswith("spark.") and value for key, value in pairs)
