"""A rank that reduces for ever and says when and how that ended. Arguments: kind of ending, victim."""

import os
import signal
import sys
import time

import numpy as np

import horovod as hvd
from horovod.common.exceptions import HorovodInternalError


def end_as(kind: str) -> None:
    print(f"VICTIM {time.monotonic():.6f}", flush=True)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        sys.exit(3)
    if kind == "abort":
        os._exit(4)
    raise ValueError("the victim throws")


def main() -> None:
    kind, victim, workers = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["workers"]
    hvd.init()
    if workers and hvd.rank() == victim and os.fork() == 0:  # like a worker of a DataLoader
        time.sleep(60)
        os._exit(0)
    data = np.ones(1000, np.float32)
    try:
        for step in range(1_000_000):
            hvd.allreduce(data, name="gradient", op=hvd.Sum)
            if step == 200 and hvd.rank() == victim:
                end_as(kind)
    except HorovodInternalError as error:
        print(f"RAISED {time.monotonic():.6f} {error}", flush=True)
        try:
            hvd.allreduce(data, name="later")
        except HorovodInternalError:
            print("REFUSED", flush=True)


if __name__ == "__main__":
    main()
