"""The back end "horovod" of torch.distributed.

``import horovod.torch.distributed`` registers it; ``torch.distributed.init_process_group("horovod")`` then
works under horovodrun, under all other starters of ``hvd.init``, and with every store of torch.distributed:
under torchrun the engine's ranks find each other through the store.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlparse

import torch.distributed

if not torch.distributed.is_available():
    raise ImportError(
        "horovod.torch.distributed needs torch.distributed, which this PyTorch was built without"
    )

from torch.distributed import distributed_c10d as _c10d
from torch.nn.parallel import DistributedDataParallel

from horovod import _core
from horovod.common import addresses, basics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import env
from horovod.framework.objects import broadcast_object
from horovod.torch.process_group import DEVICES, Group

dist: Any = torch.distributed  # its type annotations lack newer members
_FIRST_SET = 1 << 20  # HVD_OPENED_SETS of horovod.h


class _Job:
    """The engine's job under torch.distributed."""

    lives = 0  # default groups in this process so far: a store may have keys of earlier ones
    own = False  # started here, so it ends with the default group

    def begin(self, **variables: str) -> None:
        """Joins the job with these variables in the environment; by them rank 0 serves the rendezvous."""
        with env(**variables):
            basics.init()
        self.own = True

    def end(self) -> None:
        if self.own:
            self.own = False
            basics.shutdown()


_job = _Job()

# ---- rendezvous of the ranks -----------------------------------------------------------------------


_MOST_ADDRESSES = 8  # ADDRESSES_LIMIT of net/addresses.h
_PROBE = 10.0  # seconds for an address that may not be a store's


def _addresses() -> list[str]:
    """Returns names and addresses of this host, the best first."""
    advertised = os.environ.get("HOROVOD_ADVERTISED_ADDRESS", "")
    given = [addresses.split(advertised)[0], os.environ.get("MASTER_ADDR", "").strip("[]")]
    own = addresses.of_this_host()
    return list(dict.fromkeys([*filter(None, given), *own]))[:_MOST_ADDRESSES]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _meet_by_store(store: Any, rank: int, size: int) -> None:
    """Joins the engine's job if the ranks know only the store: rank 0 serves the rendezvous."""
    key = f"horovod/{_job.lives}/rendezvous"
    given = os.environ.get("HOROVOD_SECRET") or os.environ.get("HOROVOD_SECRET_FILE")
    if rank == 0:
        port = _free_port()
        one_host = os.environ.get("LOCAL_WORLD_SIZE") == str(size)  # torchrun sets it
        hosts = [addresses.LOOPBACK] if one_host else _addresses()
        where = ",".join(addresses.join(host, port) for host in hosts)
        store.set(key, json.dumps([where, "" if given else secrets.token_hex(32)]))
    where, secret = json.loads(store.get(key))
    secret_variable = {} if given else {"HOROVOD_SECRET": secret}
    _job.begin(HOROVOD_RANK=str(rank), HOROVOD_SIZE=str(size), HOROVOD_RENDEZVOUS=where, **secret_variable)


def _store_at(hosts: list[str], port: int, token: str, timeout: timedelta) -> Any:
    """Connects to the store of rank 0. Only it has the token: other programs may listen at that port."""
    probe = min(timeout, timedelta(seconds=_PROBE))
    for address in addresses.resolved(hosts):
        with contextlib.suppress(OSError, RuntimeError):  # errors of a store are RuntimeErrors
            socket.create_connection((address, port), _PROBE / 2).close()
            store = dist.TCPStore(address, port, None, False, probe)
            if store.check([token]):
                store.set_timeout(timeout)
                return store
    if basics.is_initialized():
        _core.health()  # raises if rank 0 is lost, from which an elastic job recovers
    raise HorovodInternalError(
        f"rank {basics.rank()} can't connect to the store of torch.distributed, which rank 0 serves at port "
        f"{port} of {', '.join(hosts)}; set HOROVOD_ADVERTISED_ADDRESS on its host to an address that "
        "the others can reach",
        code="MISMATCH",
    )


def _store_by_engine(timeout: timedelta) -> Any:
    """Returns the store if the ranks know only the engine's job: rank 0 serves it."""
    place = None
    if basics.rank() == 0:
        store = dist.TCPStore(addresses.LOOPBACK, 0, None, True, timeout, wait_for_workers=False)
        token = f"horovod/{secrets.token_hex(16)}"
        store.set(token, "")
        one_host = basics.local_size() == basics.size()
        place = [addresses.LOOPBACK] if one_host else _addresses(), store.port, token
    hosts, port, token = broadcast_object(place, 0, "torch.distributed.store")
    return store if place else _store_at(hosts, port, token, timeout)


_handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
_handle_env = _handlers["env"]


@functools.wraps(_handle_env)
def _handle(url: str, timeout: timedelta = _c10d.default_pg_timeout, **options: Any) -> Iterator[Any]:
    """Serves `env://` without RANK: the engine's job knows the rank from the starter of the process."""
    if "RANK" in os.environ or "rank=" in urlparse(url).query:
        yield from _handle_env(url, timeout=timeout, **options)
        return
    if not basics.is_initialized():
        _job.begin()
    yield _store_by_engine(timeout), basics.rank(), basics.size()


# ---- groups ----------------------------------------------------------------------------------------


def _join(store: Any, rank: int, size: int) -> None:
    """Joins the job of the default group."""
    _job.lives += 1
    if not basics.is_initialized():
        if os.environ.get("HOROVOD_RANK"):
            _job.begin()
        else:
            _meet_by_store(store, rank, size)
    if (basics.rank(), basics.size()) != (rank, size):
        raise ValueError(
            f"init_process_group: this is rank {rank} of {size}, but for Horovod it is rank {basics.rank()} "
            f"of {basics.size()}; start the job by one launcher, which gives both rank and size"
        )


def _open_set(store: Any, ranks: list[int], rank: int) -> int:
    """Opens the process set of a group; only its members know of it."""
    if not basics.is_initialized():
        raise ValueError(
            'new_group(backend="horovod"): Horovod has not been initialized; call hvd.init() on all ranks '
            'before it, or init_process_group("horovod")'
        )
    key = f"horovod/{_job.lives}/process_set"
    if rank == 0:
        store.set(key, str(_FIRST_SET + _c10d._get_default_store().add("horovod/process_sets", 1)))
    number = int(store.get(key))
    _core.process_set_open(number, sorted(ranks))
    return number


def _close_set(number: int) -> None:
    with contextlib.suppress(HorovodInternalError, ValueError):  # the job has ended already
        _core.process_set_remove(number)


def _create(options: Any, _: Any) -> Any:
    """Makes a group; torch.distributed calls it on the members."""
    store, rank, ranks = options.store, options.group_rank, list(options.global_ranks_in_group)
    try:
        if ranks:
            number = _open_set(store, ranks, rank)
            leave: Callable[[], None] = functools.partial(_close_set, number)
        else:
            _join(store, rank, options.group_size)
            number, ranks, leave = 0, list(range(options.group_size)), _job.end
    except HorovodInternalError as error:
        raise dist.DistBackendError(str(error)) from error
    return Group(options, ranks, number, leave)


_monitored_barrier = dist.monitored_barrier


@functools.wraps(_monitored_barrier)
def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> Any:
    """Replaces the function of torch.distributed, which refuses all back ends except Gloo."""
    asked = group or (dist.group.WORLD if dist.is_initialized() else None)
    if isinstance(asked, Group):
        return asked.monitored_barrier(timeout, wait_all_ranks)
    return _monitored_barrier(group, timeout, wait_all_ranks)


_register_comm_hook = DistributedDataParallel.register_comm_hook


@functools.wraps(_register_comm_hook)
def register_comm_hook(self: Any, state: object, hook: Callable[[Any, Any], Any]) -> None:
    """Replaces the method of DistributedDataParallel: on our groups it names the operations of the hook."""
    group = self.process_group
    _register_comm_hook(self, state, group.naming(hook) if isinstance(group, Group) else hook)


_handlers["env"] = _handle
DistributedDataParallel.register_comm_hook = register_comm_hook  # type: ignore[method-assign]
dist.monitored_barrier = _c10d.monitored_barrier = monitored_barrier
dist.Backend.register_backend("horovod", _create, extended_api=True, devices=DEVICES)
