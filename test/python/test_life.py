"""Joining, leaving, and errors."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import horovod as hvd
from horovod import _core
from horovod.common.exceptions import HorovodInternalError
from horovod.framework.requests import ALLREDUCE


def test_placement(rank: int, size: int) -> None:
    assert 0 <= rank < size == int(os.environ.get("HOROVOD_SIZE", "1"))
    assert (hvd.local_rank(), hvd.local_size()) == (rank, size)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.is_homogeneous() and hvd.is_initialized()
    assert hvd.failure() is None


def test_init_again_without_shutdown(size: int) -> None:
    hvd.init()
    assert hvd.size() == size


def holdings() -> tuple[int, int, int]:
    """Open descriptors, threads, and KiB of memory in use."""
    status = Path("/proc/self/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), resident


def live(times: int, size: int) -> None:
    for _ in range(times):
        hvd.shutdown()
        assert not hvd.is_initialized()
        with pytest.raises(ValueError, match="not been initialized"):
            hvd.failure()
        hvd.init()
        np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Sum), size)


def test_many_lives(size: int) -> None:
    """Without barriers in between, and leaving nothing behind; `make soak` asks for 1,000."""
    gc.collect()  # what the tests before have left may go at any time
    live(5, size)
    grown = []
    for _ in range(3):  # what lives leave behind, they leave each time; other memory may grow once
        descriptors, threads, resident = holdings()
        live(int(os.environ.get("HOROVOD_TEST_LIVES", "20")), size)
        deadline = time.monotonic() + 60
        while (after := holdings())[0] > descriptors or after[1] > threads:
            assert time.monotonic() < deadline, f"{after} descriptors and threads, not {descriptors, threads}"
            time.sleep(0.01)  # a thread that was joined is listed until the system has removed it
        grown.append(int(hvd.allreduce(np.array([after[2] - resident]), op=hvd.Max)[0]))
        if grown[-1] < 8192:
            break
    assert grown[-1] < 8192, f"KiB of the rank that grew most, each time: {grown}"


@pytest.mark.own_process
def test_before_init() -> None:
    """Programs search for this text."""
    code = "import horovod as hvd\nhvd.rank()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last == "ValueError: Horovod has not been initialized; use hvd.init()."


@pytest.mark.own_process
def test_long_settings() -> None:
    code = """
import os, horovod
from horovod import _core
horovod.init()
assert _core.setting("mpi_library") == os.environ["HOROVOD_MPI_LIBRARY"]
assert _core.setting("size") == "1"
_core.setting("no_such_one")
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    environment["HOROVOD_MPI_LIBRARY"] = "/très-long" * 1000
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=environment
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "ValueError: there is no setting 'no_such_one'"


@pytest.mark.own_process
def test_without_a_launcher() -> None:
    code = "import horovod as hvd, numpy\nhvd.init()\nprint(hvd.size(), hvd.allreduce(numpy.ones(1)))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=environment
    )
    assert result.stdout == "1 [1.]\n", result.stderr


@pytest.mark.own_process
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("HOROVOD_CYCLE_TIME", "fast", "HOROVOD_CYCLE_TIME=fast"),
        ("HOROVOD_FUSION_THRESHOLD", "-1", ">= 0"),
        ("HOROVOD_LOG_LEVEL", "LOUD", "LOUD"),
        ("HOROVOD_ALLREDUCE_ALGORITHM", "magic", "magic"),
        ("HOROVOD_RANK", "7", "HOROVOD_SIZE"),
    ],
)
def test_odd_environment(variable: str, value: str, says: str) -> None:
    code = "import horovod as hvd\nhvd.init()"
    environment = {name: text for name, text in os.environ.items() if not name.startswith("HOROVOD_")}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment | {variable: value},
    )
    assert result.returncode == 1
    assert says in result.stderr.splitlines()[-1], result.stderr


def lonely(code: str, seconds: float = 100, **more: str) -> subprocess.Popen[str]:
    """Rank 0 of a job whose other rank never comes; it says when init begins."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("HOROVOD_")}
    environment |= {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_START_TIMEOUT": str(seconds)}
    environment |= {"HOROVOD_SECRET": "secret", "HOROVOD_JOB": uuid.uuid4().hex}
    environment["HOROVOD_RENDEZVOUS"] = os.environ.get("HOROVOD_RENDEZVOUS", "127.0.0.1:1")
    environment["HOROVOD_SECRET"] = os.environ.get("HOROVOD_SECRET", "secret")
    process = subprocess.Popen(
        [sys.executable, "-c", f"import horovod as hvd\nprint('begin', flush=True)\n{code}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment | more,
    )
    begin = b""
    while not begin.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):  # type: ignore[union-attr]
        begin += byte  # readline() might take more, which communicate() would not return
    assert begin == b"begin\n"
    return process


@pytest.mark.own_process
def test_ctrl_c_ends_init() -> None:
    """Long before the start timeout; with a rendezvous (under horovodrun) and without one."""
    process = lonely("hvd.init()")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert errors.splitlines()[-1] == "KeyboardInterrupt", errors


@pytest.mark.own_process
def test_init_after_an_interrupted_one() -> None:
    process = lonely(
        "import os, threading\n"
        "def ring():\n"
        "    os.kill(os.getpid(), 2)\n"
        "try:\n"
        "    threading.Timer(0.2, ring).start()\n"
        "    hvd.init()\n"
        "except KeyboardInterrupt:\n"
        "    os.environ['HOROVOD_SIZE'] = '1'\n"
        "    hvd.init()\n"
        "    print(hvd.size(), hvd.is_initialized())"
    )
    out, errors = process.communicate(timeout=100)
    assert out == "1 True\n", errors


# `listener.accept()` returns once init waits for this rendezvous, which never answers.
SILENT_RENDEZVOUS = """
import os, socket, threading
listener = socket.create_server(("127.0.0.1", 0))
os.environ["HOROVOD_RENDEZVOUS"] = "127.0.0.1:%d" % listener.getsockname()[1]
"""


@pytest.mark.own_process
def test_init_in_two_threads() -> None:
    process = lonely(
        f"{SILENT_RENDEZVOUS}"
        "def second():\n"
        "    listener.accept()\n"
        "    try:\n"
        "        hvd.init()\n"
        "    except ValueError as error:\n"
        "        print(error, flush=True)\n"
        "threading.Thread(target=second).start()\n"
        "hvd.init()"
    )
    assert process.stdout and "another thread" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)


@pytest.mark.own_process
@pytest.mark.parametrize("name", ["de_DE", "tr_TR"])
def test_locales(name: str, tmp_path: Path) -> None:
    """A decimal comma, and letters whose capitals are others: settings and files stay what they are."""
    words = ["localedef", "-i", name, "-f", "UTF-8", str(tmp_path / f"{name}.UTF-8")]
    if not shutil.which("localedef") or subprocess.run(words, capture_output=True).returncode:
        pytest.skip(f"this machine has no locale {name}")
    process = lonely(
        "import locale\n"
        "import numpy as np\n"
        "locale.setlocale(locale.LC_ALL, '')\n"
        "hvd.init()\n"
        "hvd.barrier()\n"
        "for i in range(50):\n"
        "    hvd.allreduce(np.ones(9), name='x')\n"
        "hvd.shutdown()\n"
        "print(f'{0.5:n}')",
        LOCPATH=str(tmp_path),
        LC_ALL=f"{name}.UTF-8",
        HOROVOD_SIZE="1",
        HOROVOD_CYCLE_TIME="0.5",
        HOROVOD_LOG_LEVEL="warning",
        HOROVOD_TIMELINE=str(tmp_path / "timeline"),
        HOROVOD_AUTOTUNE="1",
        HOROVOD_AUTOTUNE_LOG=str(tmp_path / "log"),
        HOROVOD_AUTOTUNE_WARMUP_SAMPLES="0",
        HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE="1",
    )
    out, errors = process.communicate(timeout=100)
    assert out == "0,5\n", errors
    rows = (tmp_path / "log").read_text().splitlines()
    assert len(rows) > 2 and {row.count(",") for row in rows} == {rows[0].count(",")}
    assert '"NEGOTIATE_BARRIER"' in (tmp_path / "timeline").read_text()


@pytest.mark.own_process
def test_the_end_of_a_tensor_waits_for_its_operation() -> None:
    """It runs while the tensors are released, and waiting releases them."""
    process = lonely(
        "import numpy as np\n"
        "from horovod import _core\n"
        "hvd.init()\n"
        "class Odd(np.ndarray):\n"
        "    def __del__(self):\n"
        "        handle.wait()\n"
        "class Wrapped:\n"
        "    def __init__(self):\n"
        "        self.inside = np.ones(3).view(Odd)\n"
        "    def __dlpack__(self, **options):\n"
        "        return self.inside.__dlpack__()\n"
        "tensors = [Wrapped() for _ in range(40)]\n"
        "request = _core.describe(_core.operations['allreduce'], grouped=True)\n"
        "handle = _core.submit(request, 'odd', tensors)\n"
        "del tensors\n"
        "handle.wait()\n"
        "print('over')",
        HOROVOD_SIZE="1",
        MALLOC_PERTURB_="165",  # what is freed is not what it was
    )
    out, errors = process.communicate(timeout=100)
    assert out == "over\n", errors


def test_mismatch_ends_one_round_only(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    for attempt in range(3):
        shape = 4 if rank == size - 1 else 3
        with pytest.raises(HorovodInternalError, match=rf"(?s)shape.*rank {size - 1} has \[4\]"):
            hvd.allreduce(np.ones(shape, np.float32), name="torn", op=hvd.Sum)
        result = hvd.allreduce(np.ones(3, np.float32), name="torn", op=hvd.Sum)
        np.testing.assert_allclose(result, size, err_msg=f"attempt {attempt}")


@pytest.mark.parametrize("respect", ["type", "operation", "reduction", "factor", "root"])
def test_mismatch_says_what(respect: str, rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    odd = rank == size - 1
    tensor = np.ones(3, np.float64 if odd and respect == "type" else np.float32)
    with pytest.raises(HorovodInternalError, match=rf"(?s){respect}.*rank {size - 1}"):
        if respect == "root":
            hvd.broadcast(tensor, 1 if odd else 0, name="torn")
        elif respect == "operation":
            pytest.skip("operations have names of their own: they never meet")
        else:
            op = hvd.Max if odd and respect == "reduction" else hvd.Sum
            factor = 2.0 if odd and respect == "factor" else 1.0
            hvd.allreduce(tensor, name="torn", op=op, prescale_factor=factor)
    np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Sum), size)


def test_name_in_flight_twice(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("one rank alone is done before the second submission")
    if rank == 0:
        first = hvd.allreduce_async(np.ones(2), name="twice", op=hvd.Sum)
        with pytest.raises(ValueError, match=r"allreduce\.twice is in flight on rank 0"):
            hvd.allreduce_async(np.ones(2), name="twice", op=hvd.Sum)
    hvd.barrier()
    if rank != 0:
        first = hvd.allreduce_async(np.ones(2), name="twice", op=hvd.Sum)
    np.testing.assert_allclose(hvd.synchronize(first), size)


def test_own_mistakes(size: int) -> None:
    with pytest.raises(ValueError, match="root"):
        hvd.broadcast(np.ones(2), size)
    with pytest.raises(ValueError, match="dimension"):
        hvd.allgather(np.float32(3))
    with pytest.raises(ValueError, match="tensor"):
        hvd.allreduce_(object())
    np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Sum), size)


def test_several_threads(size: int) -> None:
    def work(number: int) -> None:
        for step in range(20):
            results[number] += float(hvd.allreduce(np.ones(1), name=f"{number}.{step}", op=hvd.Sum)[0])

    results = [0.0] * 4
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [20.0 * size] * 4


def test_ctrl_c_while_waiting(rank: int, size: int) -> None:
    """The others come only after rank 0 was interrupted; then the operation ends well."""
    if size == 1:
        pytest.skip("one rank alone never waits")
    if rank == 0:
        handle = hvd.allreduce_async(np.ones(2), name="interrupted", op=hvd.Sum)
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            hvd.synchronize(handle)
    hvd.barrier()
    if rank == 0:
        np.testing.assert_allclose(hvd.synchronize(handle), size)
    if rank != 0:
        np.testing.assert_allclose(hvd.allreduce(np.ones(2), name="interrupted", op=hvd.Sum), size)


def start(name: str, tensor: Any) -> Any:
    return _core.submit(_core.describe(ALLREDUCE), name, (tensor,))


def test_wait_for_many(size: int) -> None:
    _core.wait([])
    tensors = [np.full(2, i, np.float32) for i in range(40)]
    operations = [start(f"many.{i}", tensor) for i, tensor in enumerate(tensors)]
    _core.wait(tuple(operations))
    np.testing.assert_allclose(tensors, np.arange(40)[:, None] * np.full((1, 2), size))
    _core.wait(operations)  # again: nothing left to do


def test_wait_for_many_lets_the_tensors_go() -> None:
    tensor = np.ones(2)
    before = sys.getrefcount(tensor)
    _core.wait([start(f"kept.{i}", tensor) for i in range(4)])
    assert sys.getrefcount(tensor) == before


def test_wait_for_what_is_no_operation(size: int) -> None:
    for wrong in (3, None, [None]):
        with pytest.raises(TypeError):
            _core.wait(wrong)  # type: ignore[arg-type]
    operation = start("beside a wrong one", np.ones(2))
    with pytest.raises(TypeError, match="Handle"):
        _core.wait([operation, object()])  # type: ignore[list-item]
    operation.wait()


def test_collector() -> None:
    """Hooks are made of it: it adds an item to a list, and calls a function when the thread changes."""
    places: list[int] = []
    firsts: list[int] = []
    last = bytearray(8)
    streams: dict[int, int] = {}
    collect = [
        _core.collector(places, i, lambda: firsts.append(len(places)), last, streams) for i in range(2)
    ]
    for call in (collect[1], collect[0], collect[1]):
        call("whatever")
    assert places == [1, 0, 1] and firsts == [0]
    for call in (collect[0], collect[1]):
        other = threading.Thread(target=call, args=("whatever",))
        other.start()
        other.join(60)
        collect[0]("whatever")
    assert places == [1, 0, 1, 0, 0, 1, 0] and firsts == [0, 3, 4, 5, 6]
    assert streams == {}  # these parameters are on no device
    places.clear()
    with pytest.raises(ZeroDivisionError):
        _core.collector(places, 2, lambda: 1 / 0, last, streams)("")  # type: ignore[arg-type,return-value]
    assert places == []
    with pytest.raises(TypeError):
        _core.collector((), 0, firsts.clear, last, streams)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="last must have 8 bytes"):
        _core.collector(places, 0, firsts.clear, bytearray(7), streams)


def test_first_failure_of_many(rank: int, size: int) -> None:
    """It is raised when all are over, those after it too."""
    if size == 1:
        pytest.skip("needs several ranks")
    odd = rank == size - 1
    operations = [start(f"one of many.{i}", np.ones(2 + int(odd and i in (1, 3)))) for i in range(5)]
    with pytest.raises(HorovodInternalError, match=r"one of many\.1"):
        _core.wait(operations)
    assert all(operation.done() for operation in operations)
    operations[4].wait()


def test_ctrl_c_while_waiting_for_many(rank: int, size: int) -> None:
    """As with one; what was not waited for goes on."""
    if size == 1:
        pytest.skip("one rank alone never waits")
    names = [f"interrupted.{i}" for i in range(3)]
    if rank == 0:
        operations = [start(name, np.ones(2)) for name in names]
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            _core.wait(operations)
    hvd.barrier()
    _core.wait(operations if rank == 0 else [start(name, np.ones(2)) for name in names])


def test_shutdown_beside_a_waiting_thread(rank: int, size: int) -> None:
    """The waiting thread gets an error; nothing is used after it was freed."""
    if size == 1:
        pytest.skip("one rank alone never waits")
    errors: list[str] = []
    handle = hvd.allreduce_async(np.ones(2), name=f"only rank {rank} asks for this")

    def wait() -> None:
        try:
            hvd.synchronize(handle)
        except HorovodInternalError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    hvd.barrier()
    hvd.shutdown()
    thread.join(60)
    assert len(errors) == 1
    hvd.init()
    np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Sum), size)


def test_dropped_handles(rank: int, size: int) -> None:
    for i in range(50):
        hvd.allreduce_async(np.ones(1000), name=f"dropped.{i}", op=hvd.Sum)
    np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Sum), size)


def test_fork(size: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            hvd.allreduce(np.ones(1))
        except HorovodInternalError as error:
            os._exit(0 if "parent" in str(error) else 2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Sum), size)


def test_forked_child_may_start_anew(rank: int, size: int) -> None:
    """Its parent's rank is still known; init makes it a job of its own."""
    child = os.fork()
    if child == 0:
        for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
            del os.environ[name]
        right = not hvd.is_initialized() and (hvd.rank(), hvd.size()) == (rank, size)
        hvd.init()
        right = right and hvd.is_initialized() and hvd.size() == 1 and hvd.allreduce(np.ones(1))[0] == 1
        hvd.shutdown()
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Sum), size)


def test_forked_beside_a_waiting_thread(size: int) -> None:
    """The child has no such thread: a job of its own must not wait for it."""
    if size == 1:
        pytest.skip("one rank alone never waits")

    def start() -> Any:
        return hvd.allreduce_async(np.ones(2), name="waited for in a thread", op=hvd.Sum)

    if hvd.rank() == 0:
        thread = threading.Thread(target=hvd.synchronize, args=(start(),))
        thread.start()
        time.sleep(0.05)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
                del os.environ[name]
            hvd.init()
            hvd.shutdown()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    hvd.barrier()
    if hvd.rank() == 0:
        thread.join(60)
        assert not thread.is_alive()
    else:
        hvd.synchronize(start())


def test_forked_child_that_exits_normally(size: int) -> None:
    """Its atexit handlers run: the parent's connections must not notice."""
    child = os.fork()
    if child == 0:
        import atexit

        atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Sum), size)


# ---- shutdown beside calls that wait -----------------------------------------------------------------


def wait_for_a_shutdown() -> None:
    with pytest.raises(HorovodInternalError, match="rank 0 has left"):
        hvd.allreduce(np.ones(3), name="until rank 0 leaves")


def join_again() -> None:
    hvd.shutdown()
    hvd.init()
    np.testing.assert_allclose(hvd.allreduce(np.ones(3), op=hvd.Sum), hvd.size())


def submitted(operation: str) -> float:
    with contextlib.suppress(ValueError):  # before init
        return float(hvd.metrics().get(0, {}).get(operation, {}).get("submitted", 0))
    return 0.0


def wait_for_another(operation: str, before: float) -> None:
    while submitted(operation) == before:  # within the time limit of the test
        time.sleep(0.001)


def test_shutdown_beside_a_thread_that_adds_a_set(rank: int, size: int) -> None:
    """The others never add it: the call ends by the shutdown."""
    if size == 1:
        pytest.skip("one rank alone never waits")
    caught: list[BaseException] = []

    def add() -> None:
        try:
            _core.process_set_add([0])
        except HorovodInternalError as error:
            caught.append(error)

    if rank == 0:
        before = submitted("add_process_set")
        thread = threading.Thread(target=add, daemon=True)
        thread.start()
        wait_for_another("add_process_set", before)
        hvd.shutdown()
        thread.join(60)
        assert "shutdown() was called meanwhile" in str(caught[0])
    else:
        wait_for_a_shutdown()
    join_again()


class Terminated(BaseException):
    """As SystemExit, which would end pytest."""


@pytest.mark.parametrize("raises", [True, False], ids=["raises", "returns"])
@pytest.mark.parametrize("call", ["add", "remove", "init"])
def test_shutdown_in_a_signal_handler(call: str, raises: bool, rank: int, size: int) -> None:
    """While the interrupted function waits for others, which never come."""
    if size == 1:
        pytest.skip("one rank alone never waits")

    def handle(*_: Any) -> None:
        hvd.shutdown()
        assert not hvd.is_initialized()
        if raises:
            raise Terminated

    def wait() -> None:
        if call == "add":
            _core.process_set_add([0])
        elif call == "remove":
            _core.process_set_remove(number)
        else:
            hvd.init(process_sets=[[0]])

    number = _core.process_set_add(range(size)) if call == "remove" else 0
    if call == "init":
        hvd.shutdown()
    if rank == 0:
        operation = "remove_process_set" if call == "remove" else "add_process_set"
        before = submitted(operation)

        def terminate() -> None:
            wait_for_another(operation, before)
            os.kill(os.getpid(), signal.SIGTERM)

        handler = signal.signal(signal.SIGTERM, handle)
        threading.Thread(target=terminate, daemon=True).start()
        with pytest.raises(Terminated if raises else HorovodInternalError):
            wait()
        signal.signal(signal.SIGTERM, handler)
        assert not hvd.is_initialized()
    else:
        hvd.init()
        wait_for_a_shutdown()
    join_again()


@pytest.mark.own_process
def test_shutdown_beside_a_thread_in_init() -> None:
    process = lonely(
        f"{SILENT_RENDEZVOUS}"
        "def join():\n"
        "    try:\n"
        "        hvd.init()\n"
        "    except hvd.HorovodInternalError as error:\n"
        "        print(error)\n"
        "thread = threading.Thread(target=join)\n"
        "thread.start()\n"
        "listener.accept()\n"
        "hvd.shutdown()\n"
        "thread.join()\n"
        "print(hvd.is_initialized())"
    )
    out, errors = process.communicate(timeout=100)
    assert out.endswith("False\n") and "shutdown() was called meanwhile" in out, (
        process.returncode,
        out,
        errors,
    )


HOSTILE = """
import threading
import numpy as np
from horovod import _core

class Truth:
    def __bool__(self):
        leave()
        return True

class Tensor:
    def __dlpack__(self, **options):
        leave()
        return np.ones(3).__dlpack__()

def here():
    hvd.shutdown()

def elsewhere():
    thread = threading.Thread(target=hvd.shutdown)
    thread.start()
    thread.join()

def attempt(call):
    hvd.init()
    try:
        call()
    except ValueError as error:
        assert "init" in str(error), error
    else:
        raise AssertionError("it used a context that is gone")
    assert not hvd.is_initialized()

class Numbers:
    def __len__(self):
        return 1
    def __getitem__(self, i):
        leave()
        return 1

reduce = _core.describe(_core.operations["allreduce"])
exchange = _core.describe(_core.operations["alltoall"])
for leave in here, elsewhere:
    attempt(lambda: _core.submit(reduce, "x", (Tensor(),)))
    attempt(lambda: _core.run(reduce, "x", (Tensor(),)))
    attempt(lambda: _core.submit(exchange, "x", (np.ones(1),), splits=Numbers()))
    attempt(lambda: _core.process_set_add(Numbers()))
    attempt(lambda: _core.timeline_start("x", Truth()))
print("over")
"""


@pytest.mark.own_process
def test_shutdown_while_arguments_are_read() -> None:
    """Reading them runs Python, which may shut down, there or in another thread."""
    process = lonely(HOSTILE, HOROVOD_SIZE="1", MALLOC_PERTURB_="165")
    out, errors = process.communicate(timeout=100)
    assert out == "over\n", (process.returncode, errors)


@pytest.mark.own_process
def test_end_of_a_subinterpreter() -> None:
    """It imported the module, and its exit handlers run; the main interpreter's job goes on."""
    process = lonely(
        "try:\n"
        "    import _interpreters as interpreters\n"
        "except ImportError:\n"
        "    import _xxsubinterpreters as interpreters\n"
        "hvd.init()\n"
        "other = interpreters.create()\n"
        "interpreters.run_string(other, 'import horovod.common.basics as basics; basics.shutdown()')\n"
        "interpreters.destroy(other)\n"
        "print(hvd.size())",
        HOROVOD_SIZE="1",
    )
    out, errors = process.communicate(timeout=100)
    assert out == "1\n", errors
