"""One rank that joins its job and then idles, for bench/startup.py: peer_start.py MODULE SECONDS RESULTS.

MODULE: horovod, horovod.torch, or torch.distributed on Gloo. Left in RESULTS: the moments at which it called
for initialization and had returned, in µs of the clock that all processes share; and, of the SECONDS of
idling, the percentage in which all threads together kept a core busy.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any


def join(module: Any, folder: Path) -> int:
    """The rank."""
    if module.__name__ != "torch.distributed":
        module.init()
        return int(module.rank())
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    module.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=size)
    return rank


def main() -> None:
    """Joins, idles, and leaves without the interpreter's end."""
    name, seconds, folder = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    module = importlib.import_module(name)
    called = time.monotonic()
    rank = join(module, folder)
    returned = time.monotonic()
    begin, busy = time.monotonic(), time.process_time()
    time.sleep(seconds)
    share = (time.process_time() - busy) / max(time.monotonic() - begin, 1e-9)
    (folder / str(rank)).write_text(f"called,{1e6 * called}\nreturned,{1e6 * returned}\nidle,{100 * share}\n")
    if name == "torch.distributed":
        module.barrier()
        os._exit(0)
    module.shutdown()


if __name__ == "__main__":
    main()
