"""Addresses of hosts as text, and the addresses of this host."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable

from horovod import _core

LOOPBACK = "127.0.0.1"


def join(host: str, port: int | str) -> str:
    """Returns ``host:port``, or ``[::1]:port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(text: str) -> tuple[str, int | None]:
    """Splits a text into host and port, which may be missing; an IPv6 address with a port is in brackets."""
    host, colon, port = text.rpartition(":")
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        colon, port = rest[:1], rest[1:]
    if not colon or (":" in host and not text.startswith("[")):
        return text.strip("[]"), None
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"'{text}' is no address: write host, host:port or [IPv6]:port")
    return host, int(port)


def of_this_host() -> list[str]:
    """Returns the addresses that HOROVOD_NETWORK_INTERFACE allows, the best first; loopback if no other."""
    return _core.addresses(os.environ.get("HOROVOD_NETWORK_INTERFACE", "")).split(",")


def is_loopback(name: str) -> bool:
    """Returns true if a name or an address means the host itself, whichever host reads it."""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def resolved(names: Iterable[str]) -> list[str]:
    """Returns numeric addresses of names; those of this host are last, as other programs may listen there."""
    found: dict[str, None] = {}
    for name in names:
        try:
            found |= {
                str(info[4][0]): None for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            }
        except OSError:
            continue
    own = set(_core.addresses("").split(","))
    return sorted(found, key=lambda address: address in own or is_loopback(address))
