"""Addresses and free ports of this host."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

SIOCGIFADDR = 0x8915  # of netdevice(7): the IPv4 address of an interface


def _address_of(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        try:
            answer = fcntl.ioctl(own, SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:  # the interface has no address
            return None
    return socket.inet_ntoa(answer[20:24])


def _addresses() -> dict[str, str]:
    found = {name: _address_of(name) for _, name in socket.if_nameindex()}
    return {name: address for name, address in found.items() if address}


def get_local_host_addresses() -> list[str]:
    """Returns the IPv4 addresses of this host."""
    return [*_addresses().values()]


def get_local_intfs(nic: str | None = None) -> set[str]:
    """Returns the network interfaces that have an IPv4 address; with a name, only that one."""
    return {name for name in _addresses() if nic in (None, name)}


def resolve_host_address(host_name: str) -> str | None:
    """Returns the IPv4 address of a host, None if the name is unknown."""
    try:
        return socket.gethostbyname(host_name)
    except OSError:
        return None


def filter_local_addresses(all_host_names: Iterable[str]) -> list[str]:
    """Returns the names that are not this host's; an unknown name counts as another host."""
    own = set(get_local_host_addresses())
    return [name for name in all_host_names if resolve_host_address(name) not in own]


def get_driver_ip(nics: Iterable[str]) -> str:
    """Returns the IPv4 address of the first of these interfaces that has one.

    Raises:
        RuntimeError: none has.
    """
    addresses = _addresses()
    for name in nics:
        if name in addresses:
            return addresses[name]
    raise RuntimeError(f"no interface of {', '.join(nics)} has an IPv4 address; there are {addresses}")


def find_port(server_factory: Callable[[tuple[str, int]], T]) -> tuple[T, int]:
    """Makes a server at a free port of all interfaces; returns it with the port.

    Args:
        server_factory: makes a server for an address, as the classes of ``socketserver`` do.
    """
    server = server_factory(("", 0))
    return server, server.socket.getsockname()[1]  # type: ignore[attr-defined]
