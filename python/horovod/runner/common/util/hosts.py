"""Hosts, their slots, and the place of each rank: hosts in the given order, slots one after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# A name, optionally followed by a colon and slots, or by words that include slots=N.
HOST_LINE = re.compile(
    r"([^\s:=\[]+|\[.*?\])(?:\s*:\s*(\d+)|\s(?:.*\s)?slots\s*=\s*(\d+)(?:\s.*)?)?",
)


@dataclass(frozen=True)
class HostInfo:
    """A host and its number of slots."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Parses ``host:slots``; ValueError for any other text."""
        found = re.fullmatch(r"([\w.-]+)\s*:\s*([0-9]+)", host_string.strip())
        if not found:
            raise ValueError(f"'{host_string}' is no host with its slots, e.g. localhost:4")
        return HostInfo(found[1], int(found[2]))


@dataclass(frozen=True)
class SlotInfo:
    """The place of one rank."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """Returns ``rank,size,local_rank,local_size,cross_rank,cross_size``."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(map(str, numbers))


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Parses entries ``host:slots`` separated by commas; ValueError if one has another form."""
    return [HostInfo.from_string(host) for host in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """Returns the names in ``host:slots,…``, and the slots by name."""
    parsed = parse_hosts(hosts)
    return [host.hostname for host in parsed], {host.hostname: host.slots for host in parsed}


def _entry_of_line(line: str) -> str:
    found = HOST_LINE.fullmatch(line)
    if not found:
        raise ValueError(f"'{line}' is no line of a host file, e.g. localhost slots=4")
    return f"{found[1]}:{found[2] or found[3] or 1}"


def parse_host_files(filename: str) -> str:
    """Reads lines ``host slots=N`` or ``host:N`` and returns ``host:slots,…``; # starts a comment.

    Raises:
        ValueError: a line has another form.
    """
    with open(filename, encoding="utf-8-sig") as file:
        lines = [line.partition("#")[0].strip() for line in file]
    return ",".join(_entry_of_line(line) for line in lines if line)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Returns the places of the ranks, in rank order.

    Args:
        hosts: the hosts, in the order in which their slots are filled.
        min_num_proc: the least number of ranks.
        max_num_proc: the largest number of ranks; None: one for every slot.

    Raises:
        ValueError: the hosts have fewer slots than ``min_num_proc``.
    """
    room = [(host.hostname, local) for host in hosts for local in range(host.slots)]
    if len(room) < min_num_proc:
        raise ValueError(f"{min_num_proc} processes need as many slots; the hosts have {len(room)}")
    places = room[:max_num_proc]
    local_sizes = {name: sum(other == name for other, _ in places) for name, _ in places}
    across: dict[int, list[str]] = {}  # the hosts that have a local rank
    for name, local in places:
        across.setdefault(local, []).append(name)
    return [
        SlotInfo(
            name, rank, local, across[local].index(name), len(places), local_sizes[name], len(across[local])
        )
        for rank, (name, local) in enumerate(places)
    ]
