"""What a process of an elastic job learns about its hosts."""

from __future__ import annotations

import weakref
from enum import IntFlag

from horovod.common import elastic


class HostUpdateResult(IntFlag):
    """How the hosts have changed."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class WorkerNotificationManager(elastic.WorkerNotificationManager):
    """Passes on changes of hosts to listeners in a thread that takes the place of a process.

    A driver in the same program reports them to the manager of rank 0. Ranks in processes of their own learn
    of changes from the rendezvous, and need none.
    """

    def init(
        self,
        rendezvous_addr: str | None = None,
        rendezvous_port: int | None = None,
        nic: str | None = None,
        hostname: str | None = None,
        local_rank: int | None = None,
    ) -> None:
        """Lets drivers of this program find it by host and local rank; the address has no meaning."""
        if hostname is not None and local_rank is not None:
            _managers[hostname, local_rank] = self

    def notify_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Reports a change to all listeners. Any thread may call."""
        self.handle_hosts_updated(timestamp, update_res)


_managers: weakref.WeakValueDictionary[tuple[str, int], WorkerNotificationManager] = (
    weakref.WeakValueDictionary()
)


def manager_at(hostname: str, local_rank: int) -> WorkerNotificationManager | None:
    """Returns the manager of a thread of this program, if there is one."""
    return _managers.get((hostname, local_rank))
