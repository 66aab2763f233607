"""horovodrun --status names line and cause of a late rank, whatever keeps it, and the rank goes on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Launcher, wait_until
from test_status import status, status_until

# C code that a Python program calls. `spin` ends when the file at the address says so.
LIBRARY = """
#include <unistd.h>
void spin(volatile char *go) { while (!*go) ; }
void read_once(int file, char *to) { if (read(file, to, 1) < 0) *to = '!'; }
"""

# Rank 1 is late, each time in a function of that name, in a line that ends with "# here", until the test
# writes into the FIFO or the file. All ranks end with a right result.
PROGRAM = """
import ctypes, mmap, os, queue, signal, sys, threading, time
import numpy as np
import horovod as hvd

what, folder = sys.argv[1:]
fifo, go = f"{folder}/fifo", f"{folder}/go"
library = f"{folder}/library.so"

def released():
    with open(fifo) as file:
        return file.read()

def loader():
    import torch.utils.data

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return len(open(fifo).read())  # here

    assert [int(x) for x in torch.utils.data.DataLoader(Images())] == [1]

def c_without_lock():
    file, byte = os.open(fifo, os.O_RDWR), ctypes.create_string_buffer(1)
    ctypes.CDLL(library).read_once(file, byte)  # here
    assert byte.raw == b"g"

def c_reads_with_lock():
    file, byte = os.open(fifo, os.O_RDWR), ctypes.create_string_buffer(1)
    ctypes.PyDLL(library).read_once(file, byte)  # here
    assert byte.raw == b"g", byte.raw

def c_loops_with_lock():
    with open(go, "r+b") as file:
        flag = mmap.mmap(file.fileno(), 1)
    ctypes.PyDLL(library).spin(ctypes.byref(ctypes.c_char.from_buffer(flag)))  # here

def c_sleeps_with_lock():
    ctypes.PyDLL(None).sleep(3600)  # here

def lock():
    held = threading.Lock()
    held.acquire()
    threading.Thread(target=lambda: (released(), held.release())).start()
    held.acquire()  # here

def loop():
    with open(go, "r+b") as file:
        flag = mmap.mmap(file.fileno(), 1)
    while flag[0] == 0: pass  # here

def fifo_open():
    file = open(fifo)  # here
    assert file.read() == "g"

def fifo_read():
    file = os.open(fifo, os.O_RDWR)
    assert os.read(file, 1) == b"g"  # here

def queue_get():
    items = queue.Queue()
    threading.Thread(target=lambda: items.put(released())).start()
    assert items.get() == "g"  # here

hvd.init()
value = np.ones(3, np.float32)
for step in range(20):
    hvd.allreduce(value, name="layer")
if hvd.rank() == 1:
    globals()[what]()
assert hvd.allreduce(value * hvd.rank(), name="loss", op=hvd.Sum).tolist() == [3, 3, 3]
"""
LINES = PROGRAM.split("\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the program finds what keeps it."""
    (tmp_path / "library.c").write_text(LIBRARY)
    subprocess.run(["cc", "-O1", "-shared", "-o", "library.so", "library.c"], cwd=tmp_path, check=True)
    (tmp_path / "go").write_bytes(b"\0")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


READ_NOTHING = ("c_loops_with_lock", "c_sleeps_with_lock", "loop")  # of the FIFO


def let_go(folder: Path, what: str) -> None:
    with (folder / "go").open("r+b") as go:  # not shorter for a moment: a rank has it mapped
        go.write(b"1")

    def written() -> bool:
        with contextlib.suppress(OSError):  # nobody reads yet
            file = os.open(folder / "fifo", os.O_WRONLY | os.O_NONBLOCK)
            os.write(file, b"g")
            os.close(file)
            return True
        return False

    assert what in READ_NOTHING or wait_until(written)


def line_of(function: str) -> int:
    start = LINES.index(f"def {function}():")
    return next(i + 1 for i in range(start, len(LINES)) if LINES[i].endswith("# here"))


@pytest.mark.parametrize(
    ("what", "does", "where"),
    [
        ("loader", "is in the data loader", "__getitem__"),
        ("c_without_lock", r"waits to read \S+/fifo", ""),
        ("c_reads_with_lock", r"waits to read \S+/fifo, in C code that keeps Python's lock", ""),
        ("c_loops_with_lock", "computes, in C code that keeps Python's lock", ""),
        ("c_sleeps_with_lock", "sleeps, in C code that keeps Python's lock", ""),
        ("lock", "waits for a lock", ""),
        ("loop", "computes", ""),
        ("fifo_open", "waits to open a file", ""),
        ("fifo_read", r"waits to read \S+/fifo", ""),
        ("queue_get", "waits for a queue", ""),
    ],
)
def test_what_keeps_a_rank(launcher: Launcher, folder: Path, what: str, does: str, where: str) -> None:
    if what == "loader":
        pytest.importorskip("torch")
    script = launcher.script(PROGRAM)
    job = launcher.start("-np", "3", sys.executable, script, what, str(folder))
    line = line_of(what)
    place = f"{Path(script).name}:{line} in {where or what}: {re.escape(LINES[line - 1].strip()[:80])}"
    verdict = rf"^rank 1 {does}: {place}; ranks 0, 2 wait for it in allreduce\.loss, for \d+ s\n"
    if "C code" in does:
        inside = {"c_reads_with_lock": "read_once +library.so", "c_loops_with_lock": "spin +library.so"}
        verdict += rf"(?s:.*)\n  {inside.get(what, 'sleep +libc')}"
    status_until(launcher, verdict, 3)
    let_go(folder, what)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors
    assert launcher.none_alive()


def test_a_stopped_rank_is_not_asked(launcher: Launcher, folder: Path) -> None:
    job = launcher.start("-np", "3", *launcher.python(PROGRAM), "fifo_read", str(folder))
    text = status_until(launcher, r"^rank 1 waits to read ", 3)
    process = int(re.findall(r"^rank 1, thread (\d+) \(MainThread\), state S", text, re.MULTILINE)[0])
    os.kill(process, signal.SIGSTOP)
    stopped = rf"^rank 1 \(pid {process}\) is stopped(?s:.*)\nrank 2, thread"
    text = status_until(launcher, stopped, 4, "--stacks", "all")
    assert "\nrank 1, thread" not in text
    os.kill(process, signal.SIGCONT)
    let_go(folder, "fifo_read")
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors


def threads_until(launcher: Launcher, ranks: str, *words: str) -> None:
    """Waits until --status shows the stacks of just these ranks: one that is busy may answer too late."""
    last = [""]

    def are_shown() -> bool:
        last[0] = status_until(launcher, r"^rank 1 waits to read ", 3, *words)
        return re.findall(r"^rank (\d), thread", last[0], re.MULTILINE) == [*ranks]

    assert wait_until(are_shown), last


def test_options(launcher: Launcher, folder: Path) -> None:
    launcher.start("-np", "3", *launcher.python(PROGRAM), "fifo_read", str(folder))
    threads_until(launcher, "01")
    threads_until(launcher, "012", "--stacks", "all")
    text = status_until(launcher, r"^rank 1 sleeps in its own program; ", 3, "--stacks", "none")
    assert ", thread " not in text
    result = status(launcher, "--stacks", "some")
    assert result.returncode == 2
    assert "--stacks=some must be late, all or none" in result.stderr


def test_turned_off(launcher: Launcher, folder: Path) -> None:
    words = ["--stack-capture", "none", *launcher.python(PROGRAM), "fifo_read", str(folder)]
    launcher.start("-np", "3", *words)
    text = status_until(launcher, r"^rank 1 sleeps in its own program; ", 3)
    assert ", thread " not in text


def test_never_by_a_signal(launcher: Launcher, folder: Path) -> None:
    words = ["--stack-capture", "python", *launcher.python(PROGRAM), "c_sleeps_with_lock", str(folder)]
    launcher.start("-np", "3", *words)
    status_until(launcher, r"^rank 1 sleeps; ranks 0, 2 wait", 3)


# Ends in every way while it is asked: at exit, in a thread that outlives the interpreter, in a child.
ENDS = """
import os, sys, threading, time
import numpy as np
import horovod as hvd

hvd.init()
hvd.allreduce(np.ones(1, np.float32), name="x")
if sys.argv[1] == "thread":
    threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(int, 1)], daemon=True).start()
if sys.argv[1] == "fork":
    child = os.fork()
    if not child:
        hvd.shutdown()
        hvd.init()
        time.sleep(0.2)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
time.sleep(0.2)
if sys.argv[1] == "again":
    for _ in range(5):
        hvd.shutdown()
        hvd.init()
"""


@pytest.mark.parametrize("how", ["exit", "thread", "fork", "again"])
def test_ends_while_it_is_asked(launcher: Launcher, how: str) -> None:
    script = launcher.script(ENDS)
    for _ in range(3):
        job = launcher.start(script, how, program=sys.executable)
        while job.poll() is None:
            status(launcher, "process-" if how == "fork" else f"process-{job.pid}", "--stacks", "all")
        _, errors = job.communicate()
        assert job.returncode == 0, errors


# A hook that needs more stack than a small thread has.
AUDITED = """
import sys, time
import numpy as np
import horovod as hvd

def deep(levels):
    return levels and max([levels], key=lambda _: deep(levels - 1))

sys.setrecursionlimit(20000)
sys.addaudithook(lambda event, _: event == "sys._current_frames" and deep(2500))
hvd.init()
hvd.allreduce(np.ones(1, np.float32), name="x")
if hvd.rank() == 1:
    time.sleep(3600)
hvd.allreduce(np.ones(1, np.float32), name="y")
"""


def test_an_audit_hook_has_a_whole_stack(launcher: Launcher) -> None:
    job = launcher.start("-np", "2", *launcher.python(AUDITED))
    status_until(launcher, r"^rank 1 sleeps: .* time\.sleep\(3600\); rank 0 waits for it in allreduce\.y", 3)
    assert job.poll() is None
