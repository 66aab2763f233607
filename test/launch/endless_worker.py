"""A rank of a job whose network is interrupted in the midst of 16 MiB. Ends when there is a file `over`.

RANK.step has the number of allreduces that it has done, RANK.error the text of its error.
"""

import os
from pathlib import Path

import numpy as np

import horovod as hvd


def main() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    mine = np.full(4 << 20, rank + 1, np.int32)
    steps, error = Path(f"{rank}.step"), Path(f"{rank}.error")
    step, done = 0, False
    try:
        while not done:
            total = hvd.allreduce(mine + step, op=hvd.Sum, name="x")
            assert (total == size * (size + 1) // 2 + size * step).all(), step
            over = np.array([os.path.exists("over")], np.int32)
            done = hvd.allreduce(over, op=hvd.Min, name="over")[0] == 1
            step += 1
            steps.write_text(str(step))
    except hvd.HorovodInternalError as fault:
        error.write_text(str(fault))
        raise
    hvd.shutdown()


if __name__ == "__main__":
    main()
