"""Every rank: the basic operations, once. Prints one line on rank 0."""

import platform
import time

begin = time.monotonic()

import numpy as np  # noqa: E402

import horovod as hvd  # noqa: E402

hvd.init()
rank, size = hvd.rank(), hvd.size()
for dtype in (np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8):
    total = hvd.allreduce(np.arange(1000).astype(dtype) % 7 * (rank + 1), op=hvd.Sum)
    assert (total == np.arange(1000).astype(dtype) % 7 * (size * (size + 1) // 2)).all(), dtype
assert hvd.allgather(np.full((rank + 1, 2), rank)).shape == (size * (size + 1) // 2, 2)
assert (hvd.broadcast(np.full(5, rank), root_rank=size - 1) == size - 1).all()
assert hvd.allreduce(np.ones(1 << 20, np.float32), op=hvd.Average)[-1] == 1
hvd.barrier()
if rank == 0:
    print(f"smoke: {size} ranks of {platform.machine()}, CPython {platform.python_version()}, "
          f"{' '.join(platform.libc_ver())}: passed in {time.monotonic() - begin:.1f} s")  # fmt: skip
hvd.shutdown()
