"""What a process of an elastic job learns about its hosts."""

from __future__ import annotations

from enum import IntFlag

from horovod.common.elastic import WorkerNotificationManager as WorkerNotificationManager


class HostUpdateResult(IntFlag):
    """How the hosts have changed."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added
