"""The hosts that an elastic job may use, and which of them it does."""

from __future__ import annotations

import io
import threading
from collections.abc import Collection, Mapping, Sequence

from horovod.runner.common.util import safe_shell_exec
from horovod.runner.common.util.hosts import HOST_LINE
from horovod.runner.elastic.machine import Machine
from horovod.runner.elastic.worker import HostUpdateResult

SCRIPT_SECONDS = 30.0  # of a run of a script
SHORTEST_COOLDOWN, LONGEST_COOLDOWN = 1, 3600  # seconds


class HostDiscovery:
    """Finds hosts; a subclass says how."""

    def find_available_hosts_and_slots(self) -> Mapping[str, int]:
        """Returns the slots of each host, by the host's name.

        Raises:
            RuntimeError: that is not possible now. The first time it ends the job, later it is tried again.
        """
        raise NotImplementedError


class HostDiscoveryScript(HostDiscovery):
    """Hosts that a command prints, a line ``host:slots`` or ``host`` for each.

    Args:
        discovery_script: a command for ``/bin/sh``.
        slots: those of hosts for which the command prints none; None: it prints them for all.
    """

    def __init__(self, discovery_script: str, slots: int | None) -> None:
        self.discovery_script = discovery_script
        self.default_slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Runs the command; RuntimeError if it fails, takes too long or prints something else."""
        lines = [line.strip() for line in self._execute_discovery_script().splitlines()]
        return dict(self._read(line) for line in lines if line)

    def _read(self, line: str) -> tuple[str, int]:
        found = HOST_LINE.fullmatch(line)
        if not found:
            raise RuntimeError(f"{self.discovery_script}: '{line}' is no host, e.g. localhost:4")
        number = found[2] or found[3]
        slots = int(number) if number else self.default_slots
        if slots is None:
            raise RuntimeError(
                f"{self.discovery_script}: '{line}' says no slots; print host:slots, or give slots"
            )
        return found[1], slots

    def _execute_discovery_script(self) -> str:
        output, too_long = io.StringIO(), threading.Event()
        limit = threading.Timer(SCRIPT_SECONDS, too_long.set)
        limit.daemon = True
        limit.start()
        try:
            code = safe_shell_exec.execute(self.discovery_script, stdout=output, events=[too_long])
        finally:
            limit.cancel()
        if too_long.is_set():
            raise RuntimeError(f"{self.discovery_script} did not end within {SCRIPT_SECONDS:g} s")
        if code:
            raise RuntimeError(f"{self.discovery_script} ended with exit code {code}")
        return output.getvalue()


class FixedHosts(HostDiscovery):
    """Hosts that the program names, and may change by ``set``."""

    def __init__(self, host_slots: Mapping[str, int]) -> None:
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self) -> Mapping[str, int]:
        """Returns what was set last."""
        return self._host_slots

    def set(self, host_slots: Mapping[str, int]) -> None:
        """Sets the hosts and their slots."""
        self._host_slots = host_slots


class DiscoveredHosts:
    """Hosts at one moment. It does not change.

    Attributes:
        host_slots: the slots of all hosts that were found, by name.
        host_assignment_order: those that are not left out, the oldest first.
    """

    def __init__(self, host_slots: Mapping[str, int], host_assignment_order: Sequence[str]) -> None:
        self.host_slots = host_slots
        self.host_assignment_order = host_assignment_order

    @property
    def available_hosts(self) -> set[str]:
        """The hosts that are not left out."""
        return set(self.host_assignment_order)

    def get_slots(self, host: str) -> int:
        """Returns the slots of a host, 0 if it was not found."""
        return self.host_slots.get(host, 0)

    def count_available_slots(self) -> int:
        """Returns the slots of all hosts that are not left out."""
        return sum(map(self.get_slots, self.host_assignment_order))


def check_cooldown(cooldown_range: Sequence[int] | None) -> tuple[int, int] | None:
    """Returns the range; ValueError if its ends are outside of 1 to 3600 seconds or in the wrong order."""
    if not cooldown_range:
        return None
    shortest, longest = cooldown_range
    if not SHORTEST_COOLDOWN <= shortest <= longest <= LONGEST_COOLDOWN:
        raise ValueError(
            f"cooldown_range={tuple(cooldown_range)} must be two numbers of seconds from {SHORTEST_COOLDOWN} "
            f"to {LONGEST_COOLDOWN}, the smaller one first"
        )
    return shortest, longest


class HostManager:
    """Remembers the hosts that were found last. One thread updates it; any thread asks.

    Args:
        discovery: finds the hosts.
        cooldown_range: the shortest and the longest time in seconds for which a host is left out; None:
            forever.
    """

    def __init__(self, discovery: HostDiscovery, cooldown_range: Sequence[int] | None = None) -> None:
        self._discovery = discovery
        self._machine = Machine(cooldown=check_cooldown(cooldown_range))
        self._host_slots: dict[str, int] = {}
        self._order: list[str] = []
        self._left_out: set[str] = set()  # at the last update

    def decide_by(self, machine: Machine) -> None:
        """From now on this machine gets the hosts, and knows which are left out."""
        self._machine = machine
        machine.put("discovered", [*self._host_slots.items()])

    def update_available_hosts(self) -> HostUpdateResult:
        """Asks for the hosts; returns how they differ from those of the last time."""
        found = dict(self._discovery.find_available_hosts_and_slots())
        before, self._host_slots = self._host_slots, found
        self._order = self.order_available_hosts(found, self._order)
        self._machine.put("discovered", [*found.items()])
        result = HostUpdateResult.no_update
        if any(slots > found.get(host, 0) for host, slots in before.items()):
            result |= HostUpdateResult.removed
        left_out = {*filter(self.is_blacklisted, found)}
        if any(slots > before.get(host, 0) for host, slots in found.items()) or (
            self._left_out - left_out
        ).intersection(found):
            result |= HostUpdateResult.added
        self._left_out = left_out
        return result

    @property
    def current_hosts(self) -> DiscoveredHosts:
        """The hosts that were found last, without those that are left out now."""
        order = [host for host in self._order if not self.is_blacklisted(host)]
        return DiscoveredHosts(dict(self._host_slots), order)

    def blacklist(self, host: str) -> None:
        """Leaves a host out, as after the failure of a process on it."""
        self._machine.leave_out(host)

    def is_blacklisted(self, host: str) -> bool:
        """Returns true if the host is left out."""
        return self._machine.is_out(host)

    @staticmethod
    def order_available_hosts(
        available_hosts: Collection[str], prev_host_assignment_order: Sequence[str]
    ) -> list[str]:
        """Returns hosts in their previous order; new ones follow."""
        known = [host for host in prev_host_assignment_order if host in available_hosts]
        return known + [host for host in available_hosts if host not in known]
