"""Values that ranks send to the program while they train; see ``callbacks`` of ``RayExecutor.run``."""

from __future__ import annotations

import os
import warnings
from typing import Any

from horovod import _core

_queue: Any = None
_has_warned = False


def configure(queue: Any) -> None:
    """Sets the queue of this process."""
    global _queue
    _queue = queue


def log(info_dict: Any, chief_only: bool = True) -> None:
    """Sends a value, such as a dict of metrics, to the program, which gives it to its callbacks.

    Args:
        info_dict: what Ray can send.
        chief_only: only rank 0 sends; the others do nothing.
    """
    global _has_warned
    rank = _core.placement()[0] if _core.is_initialized() else int(os.environ.get("HOROVOD_RANK", "0"))
    if chief_only and rank != 0:
        return
    if _queue is not None:
        _queue.put(info_dict)
    elif not _has_warned:
        _has_warned = True
        warnings.warn(
            "ray_logger.log: nobody gets the value; give callbacks to the executor's run or execute",
            stacklevel=2,
        )
