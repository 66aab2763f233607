"""A rank of a job that something happens to in the midst of 64 MiB. Arguments: the victim, what it does to
itself (SIGKILL, SIGSTOP, _exit, nothing), after how many ms, how a rank ends that gets an error (raise,
_exit), and in which allreduce, if not the third.

RANK.busy appears once it is under way, RANK.fault has the moment, RANK.error that of the error, and its text.
"""

import os
import signal
import sys
import time

import numpy as np

import horovod as hvd


def main() -> None:
    victim, fault, after, ending = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
    fatal = int(sys.argv[5]) if len(sys.argv) > 5 else 2
    hvd.init()
    rank = hvd.rank()
    mine = np.ones(16 << 20, np.float32)
    # A rank that ends at once ends before its peers have read what it sent.
    errors = os.open(f"{rank}.error", os.O_WRONLY | os.O_CREAT)
    try:
        for step in range(1_000_000):
            handle = hvd.allreduce_async(mine, op=hvd.Sum, name="x")
            if step == 1:
                open(f"{rank}.busy", "w").close()
            if step == fatal and rank == victim and fault != "nothing":
                time.sleep(after * 1e-3)
                with open(f"{rank}.fault", "w") as file:
                    file.write(repr(time.monotonic()))
                if fault == "_exit":
                    os._exit(7)
                os.kill(os.getpid(), signal.Signals[fault])
            hvd.synchronize(handle)
    except hvd.HorovodInternalError as error:
        os.write(errors, f"{time.monotonic()!r} {error}".encode())
        if ending == "_exit":
            os._exit(3)
        raise


if __name__ == "__main__":
    main()
