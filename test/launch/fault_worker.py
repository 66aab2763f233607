"""A rank that reduces for ever and says when and how that ended. Arguments: kind of ending, victim, and
whether it has forked workers before, reduces shared memory, or goes on in a smaller job afterwards."""

import os
import resource
import signal
import sys
import time

import numpy as np

import horovod as hvd
from horovod import _core
from horovod.common.exceptions import HorovodInternalError

SIGNALS = {name: getattr(signal, name) for name in ("SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM", "SIGSTOP")}


def end_as(kind: str) -> None:
    print(f"VICTIM {time.monotonic():.6f}", flush=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if kind in SIGNALS:
        os.kill(os.getpid(), SIGNALS[kind])
    if kind.startswith("exit"):
        sys.exit(int(kind[4:]))
    if kind.startswith("_exit"):
        os._exit(int(kind[5:]))
    raise ValueError("the victim throws")


def go_on_without(victim: int) -> None:
    """The survivors form a job of their own, under another name, with new ranks and a new size."""
    rank, size = hvd.rank() - (hvd.rank() > victim), hvd.size() - 1
    hvd.shutdown()
    os.environ["HOROVOD_JOB"] += ".smaller"
    for name in ("HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"):
        os.environ[name] = str(size)
    for name in ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK"):
        os.environ[name] = str(rank)
    hvd.init()
    for step in range(100):
        total = hvd.allreduce(np.full(1000, step, np.float32), name="gradient", op=hvd.Sum)
        assert np.all(total == step * size)
    print(f"WENT ON as {hvd.rank()} of {hvd.size()}", flush=True)
    hvd.shutdown()


def fork_workers(generations: int) -> None:
    """Forks as a data loader does; the grandchild outlives its parents."""
    if os.fork() == 0:
        if generations > 1:
            fork_workers(generations - 1)
        time.sleep(60)
        os._exit(0)


def main() -> None:
    kind, victim, extra = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    hvd.init()
    if "workers" in extra and hvd.rank() == victim:
        fork_workers(2)
    data, last = np.ones(1000, np.float32), 200
    if "shared" in extra:
        data, last = np.frombuffer(_core.shared(8 << 20), np.float32), 10
    try:
        for step in range(1_000_000):
            hvd.allreduce(data, name="gradient", op=hvd.Sum)
            if step == last and hvd.rank() == victim:
                if "shared" in extra:
                    hvd.allreduce_async(data, name="gradient", op=hvd.Sum)
                    time.sleep(0.003)  # ranks read each other's memory
                end_as(kind)
    except HorovodInternalError as error:
        print(f"RAISED {time.monotonic():.6f} {error}", flush=True)
        try:
            hvd.allreduce(data, name="later")
        except HorovodInternalError:
            print("REFUSED", flush=True)
        if "again" in extra:
            go_on_without(victim)


if __name__ == "__main__":
    main()
