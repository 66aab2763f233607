"""Serves the rendezvous for ranks that another launcher starts, under the names of Horovod.

It is the engine's own store with authenticated connections, and no HTTP server.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from horovod import _core
from horovod.runner.absent import names_of
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.elastic.rendezvous import ElasticRendezvous

__getattr__ = names_of(__name__)


def shared_secret() -> str:
    """Returns the ranks' secret. If there is none, makes one that processes started from now on inherit."""
    secret, path = (os.environ.get(f"HOROVOD_SECRET{suffix}") for suffix in ("", "_FILE"))
    if not secret and path:
        return re.split("[\r\n]", Path(path).read_text(), maxsplit=1)[0]  # the ranks read its first line, too
    secret = secret or secrets.token_hex(32)
    os.environ["HOROVOD_SECRET"] = secret
    return secret


@dataclass(frozen=True)
class ElasticSlotInfo(SlotInfo):
    """The place of one rank in an epoch of an elastic job, and the name of its process for life."""

    slot: int
    epoch: int  # -1: of no epoch yet

    def plain(self) -> SlotInfo:
        """Returns the place alone."""
        values = asdict(self)
        return SlotInfo(**{each.name: values[each.name] for each in fields(SlotInfo)})

    def at_seat(self, seat: int) -> ElasticSlotInfo:
        """Returns the place with this local rank, which no other process of the host has."""
        return replace(self, local_rank=seat)


class RendezvousServer:
    """The server at which the ranks of a job find each other.

    Start every rank with ``HOROVOD_GLOO_RENDEZVOUS_ADDR`` and ``HOROVOD_GLOO_RENDEZVOUS_PORT``, with
    ``HOROVOD_RANK`` and ``HOROVOD_SIZE`` (``horovod.runner.gloo_run`` makes these variables), and with
    ``HOROVOD_SECRET``, which processes inherit from this one. The ranks of one server are one job at a time.
    """

    def __init__(self, verbose: int = 0) -> None:
        self._verbose = verbose
        self._rendezvous: _core.Rendezvous | None = None

    def start(self, handler_cls: Any = None) -> int:
        """Listens on all interfaces and returns the port.

        Args:
            handler_cls: for an elastic job what ``create_rendezvous_handler`` of
                ``horovod.runner.elastic.rendezvous`` returns.

        Raises:
            ValueError: ``handler_cls`` is something else, as there is no HTTP here; or it was started
                already.
            HorovodInternalError: no port is free.
        """
        if handler_cls is not None and not isinstance(handler_cls, ElasticRendezvous):
            raise ValueError("RendezvousServer.start: there is no HTTP here, so it takes no handler_cls")
        if self._rendezvous:
            raise ValueError("RendezvousServer.start: it has been started already")
        self._rendezvous = _core.Rendezvous(None, shared_secret())
        port = self._rendezvous.port
        assert port
        if self._verbose:
            print(f"horovod: the rendezvous is at port {port}")
        return port

    def init(self, host_alloc_plan: Sequence[SlotInfo]) -> None:
        """Checks the plan of a job (``get_host_assignments``); the ranks report their places themselves.

        Raises:
            ValueError: the plan contradicts itself.
        """
        ranks = sorted(slot.rank for slot in host_alloc_plan)
        if ranks != list(range(len(ranks))) or any(slot.size != len(ranks) for slot in host_alloc_plan):
            raise ValueError(f"RendezvousServer.init: a plan of {len(ranks)} slots has the ranks {ranks}")
        places = [slot for slot in host_alloc_plan if isinstance(slot, ElasticSlotInfo)]
        if self._rendezvous and places:
            assigned = [(str(place.slot), place.rank, self.host_of(place)) for place in places]
            self._rendezvous.assign(self._job(), places[0].epoch, assigned)
            for place in places:
                self.send_news(place.slot, "epoch", place.epoch, place.rank, place.size)

    def host_of(self, place: SlotInfo) -> str | None:
        """Returns the host of a rank, as HOROVOD_HOST_ID; None: the rank finds it out."""
        return place.hostname

    def _job(self) -> str:
        """Returns the name that ranks derive from the port (``horovod.common.starter``)."""
        return f"rendezvous-{self._started().port}"

    def _started(self) -> _core.Rendezvous:
        if not self._rendezvous:
            raise ValueError("RendezvousServer: it has not been started, or was stopped")
        return self._rendezvous

    def send_news(self, slot: int, *news: Any) -> None:
        """Sends news to a process of an elastic job, see ``_core.Rendezvous.send_news``."""
        self._started().send_news(self._job(), str(slot), *news)

    def watch_slots(self) -> _core.Watch:
        """Returns a watch for what the processes of an elastic job report; close it before ``stop``."""
        return self._started().watch_slots(self._job())

    def stop(self) -> None:
        """Closes all connections: ranks that have not met yet fail."""
        if self._rendezvous:
            self._rendezvous.close()
        self._rendezvous = None
