"""Starts the processes of an elastic job by a function of the caller, on hosts that come and go."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod.runner.common.util.hosts import HostInfo, SlotInfo, get_host_assignments
from horovod.runner.common.util.timeout import Timeout
from horovod.runner.elastic.discovery import DiscoveredHosts, HostDiscovery, HostManager, check_cooldown
from horovod.runner.elastic.machine import CHECK_SECONDS, UNLIMITED, Action, Machine
from horovod.runner.elastic.registration import FAILURE, READY, SUCCESS, WorkerStateRegistry
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager, manager_at
from horovod.runner.http.http_server import ElasticSlotInfo, RendezvousServer

DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
ELASTIC_TIMEOUT_SECS = 600
REPORT_SECONDS = 0.2  # of a wait for reports, after which the end of the job is noticed
LOST = 4  # a bit of a notice

# Gets the place of the process and events, one of which is set when it is to end; returns its exit code and
# when it ended.
CreateWorker = Callable[[SlotInfo, Sequence[threading.Event]], tuple[int, float]]
NO_PLACE = SlotInfo("", -1, -1, -1, -1, -1, -1)


@dataclass
class Results:
    """How the processes of the last epoch have ended.

    Attributes:
        error_message: why the job has failed; None: there is no reason besides what its processes say.
        worker_results: exit code and time of each process, by ``host[seat]``.
    """

    error_message: str | None
    worker_results: dict[str, tuple[int, float]]


@dataclass
class _Process:
    slot: int
    host: str
    seat: int
    stop: threading.Event = field(default_factory=threading.Event)
    answered: int = -1  # the last epoch whose news it was sent
    asks: bool = False  # `record_ready` waits for it
    is_out: bool = False  # it is to end
    result: tuple[int, float] | None = None

    def has_succeeded(self) -> bool:
        return self.result is not None and self.result[0] == 0


class ElasticDriver:
    """Runs one elastic job: finds hosts, starts processes on them, and decides which are the ranks.

    Args:
        rendezvous: the server at which the ranks meet.
        discovery: finds the hosts.
        min_num_proc: the least number of ranks.
        max_num_proc: the largest number; None: one for every slot.
        timeout: how many seconds to wait for slots; None: HOROVOD_ELASTIC_TIMEOUT, or 600.
        reset_limit: how often the ranks may change; None: any number.
        cooldown_range: the shortest and longest time in seconds for which a host with a failed process is
            left out; None: forever.
        verbose: as in ``BaseSettings``.
        spares: how many processes more than ``max_num_proc`` to keep ready, if there are slots for them: they
            take the places of failed ones at once.

    Raises:
        ValueError: ``spares`` without ``max_num_proc``, or another wrong value.
    """

    def __init__(
        self,
        rendezvous: RendezvousServer,
        discovery: HostDiscovery,
        min_num_proc: int,
        max_num_proc: int | None,
        timeout: float | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        verbose: int = 0,
        spares: int = 0,
    ) -> None:
        if spares < 0 or (spares and not max_num_proc):
            raise ValueError(
                f"ElasticDriver: spares={spares} with max_num_proc={max_num_proc}: spares are beyond "
                "the ranks of max_num_proc, 0 or more"
            )
        self._rendezvous = rendezvous
        self._host_manager = HostManager(discovery, cooldown_range)
        self._min_num_proc, self._max_num_proc = min_num_proc, max_num_proc
        self._timeout = timeout or float(os.environ.get("HOROVOD_ELASTIC_TIMEOUT", ELASTIC_TIMEOUT_SECS))
        self._reset_limit, self._cooldown = reset_limit, check_cooldown(cooldown_range)
        self._spares, self._verbose = spares, verbose
        self._changed = threading.Condition(threading.RLock())  # guards what follows
        self._shutdown = threading.Event()
        self._machine: Machine | None = None  # None: `start` was not called
        self._create_worker: CreateWorker | None = None
        self._error_message: str | None = None
        self._processes: dict[int, _Process] = {}
        self._threads: list[threading.Thread] = []
        self._host_assignments: dict[str, list[SlotInfo]] = {}
        self._members: dict[int, SlotInfo] = {}  # of the running epoch, by slot
        self._open = self._lost = -1  # the last epoch that all members have joined, and that lost a member
        self._worker_registry = WorkerStateRegistry(self)
        self._watch: Any = None
        self._discovery_thread = threading.Thread(target=self._discover_hosts, daemon=True)
        self._discovery_thread.start()

    # -- what the program calls --------------------------------------------------------------------------

    def start(
        self, num_proc: int | None = None, create_worker_fn: CreateWorker | None = None, np: int | None = None
    ) -> None:
        """Waits for slots and starts the job.

        Args:
            num_proc: how many slots to wait for; more that there are then are used, too.
            create_worker_fn: runs a process; it is called in a thread for each of them.
            np: the old name of ``num_proc``.

        Raises:
            ValueError: a parameter is missing, or the job was started already.
            TimeoutException: there were too few slots for too long.
        """
        wanted = np if num_proc is None else num_proc
        if not wanted or not create_worker_fn or self._machine:
            raise ValueError(
                "ElasticDriver.start: it was called before"
                if self._machine
                else "ElasticDriver.start needs num_proc and create_worker_fn"
            )
        self.wait_for_available_slots(wanted)
        with self._changed:
            self._create_worker = create_worker_fn
            self._machine = Machine(
                self._act,
                self._changed,
                start=wanted,
                minimum=self._min_num_proc,
                maximum=self._max_num_proc or UNLIMITED,
                timeout=self._timeout,
                cooldown=self._cooldown,
                reset_limit=self._reset_limit,
                spares=self._spares,
            )
            if isinstance(self._rendezvous, RendezvousServer):
                self._watch = self._rendezvous.watch_slots()
                self._in_thread(self._take_reports)
            self._host_manager.decide_by(self._machine)
        self._in_thread(self._keep_time)

    def _in_thread(self, function: Callable[[], None]) -> None:
        thread = threading.Thread(target=function, daemon=True)
        self._threads.append(thread)
        thread.start()

    def resume(self) -> None:
        """Looks at once for what follows from the state of hosts and processes; that happens by itself."""
        if self._machine:
            self._machine.put("tick")

    def stop(self, error_message: str | None = None) -> None:
        """Ends the job and its server."""
        with self._changed:
            self._error_message = error_message or self._error_message
            if self._machine and not self.finished():
                self._machine.put("stop", 1 if error_message else 0, "term")
        self._shut_down()
        for thread in [*self._threads, self._discovery_thread]:
            if thread is not threading.current_thread() and thread not in self._worker_threads():
                thread.join()
        if self._watch:
            self._watch.close()
            self._watch = None
        self._rendezvous.stop()

    def _worker_threads(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread.name.startswith("process ")]

    def finished(self) -> bool:
        """Returns true when the job has ended or is to end."""
        return self._shutdown.is_set()

    def get_results(self) -> Results:
        """Waits for the end of the job and of all its processes."""
        self._shutdown.wait()
        for thread in self._worker_threads():
            thread.join()
        with self._changed:
            ended = [(slot, process) for slot, process in self._processes.items() if slot in self._members]
            return Results(
                self._error_message,
                {f"{each.host}[{each.seat}]": each.result for _, each in ended if each.result},
            )

    def wait_for_available_slots(self, min_num_proc: int, min_hosts: int = 1) -> DiscoveredHosts:
        """Waits until there are that many slots and hosts, and returns the hosts.

        Raises:
            TimeoutException: there were too few for too long.
            RuntimeError: the job has ended.
        """
        timeout = Timeout(
            self._timeout,
            "Timed out waiting for {activity}. Please check that you have enough resources to run at least "
            f"{min_num_proc} Horovod processes.",
        )
        with self._changed:
            while True:
                hosts = self._host_manager.current_hosts
                if hosts.count_available_slots() >= min_num_proc and len(hosts.available_hosts) >= min_hosts:
                    return hosts
                if self.finished():
                    raise RuntimeError("the job has ended, while slots were awaited; its log says why")
                self._changed.wait(timeout.remaining())
                timeout.check_time_out_for("minimum number of slots to become available")

    def record_ready(self, host: str, slot: int) -> None:
        """Waits for the next epoch of a process that does not report through the rendezvous.

        At first that is the epoch for which it was started. Returns when all others of that epoch have asked
        for it as well, when the process is to end, and when the job has ended.
        """
        with self._changed:
            process = self._at(host, slot)
            if not process or not self._machine or self.finished():
                return
            process.asks, asked = True, -2
            while not self._has_place(process) and not process.is_out and not self.finished():
                if asked != self._lost:  # also once more after each loss
                    asked = self._lost
                    self._machine.put("waits", process.slot, process.answered, process.answered >= 0)
                    self._end_after_success()
                else:
                    self._changed.wait()
            process.asks, process.answered = False, self._machine.epoch()

    def world_size(self) -> int:
        """Returns the number of ranks."""
        return len(self._members)

    def local_size(self, host: str) -> int:
        """Returns the number of ranks on a host."""
        return len(self._host_assignments[host])

    def get_slot_info(self, host: str, slot: int) -> SlotInfo:
        """Returns the place of a process in the running epoch; all numbers are -1 if it is in none."""
        with self._changed:
            process = self._at(host, slot)
            return self._members.get(process.slot, NO_PLACE) if process else NO_PLACE

    def has_rank_assignment(self, host: str, slot: int) -> bool:
        """Returns true if the process is in the running epoch, and its host is not left out."""
        return not self._host_manager.is_blacklisted(host) and self.get_slot_info(host, slot) != NO_PLACE

    def get_coordinator_info(self) -> SlotInfo | None:
        """Returns the place of rank 0; None before the first epoch."""
        return next(iter(self._members.values()), None)

    @property
    def host_assignments(self) -> dict[str, list[SlotInfo]]:
        """The places of the running epoch, by host."""
        return self._host_assignments

    def states(self) -> Mapping[tuple[str, int], str]:
        """Returns the states of the processes of the running epoch, see registration.py."""
        states = {}
        with self._changed:
            for process in filter(None, map(self._processes.get, self._members)):
                if process.result:
                    states[process.host, process.seat] = FAILURE if process.result[0] else SUCCESS
                elif process.asks:
                    states[process.host, process.seat] = READY
        return states

    # -- epochs ------------------------------------------------------------------------------------------

    def _at(self, host: str, seat: int) -> _Process | None:
        """Returns the newest process at a seat."""
        found = [each for each in self._processes.values() if (each.host, each.seat) == (host, seat)]
        return found[-1] if found else None

    def _has_place(self, process: _Process) -> bool:
        """Returns true if it is in a new epoch, for which all other members have asked, too."""
        assert self._machine
        epoch = self._machine.epoch()
        members = map(self._processes.get, self._members)
        if self._lost < epoch and all(each and (each.asks or each.answered == epoch) for each in members):
            self._open = epoch
        return epoch > process.answered and process.slot in self._members and self._open == epoch

    def _end_after_success(self) -> None:
        """Ends the job if the function of a rank has returned, and all others ask for another epoch."""
        assert self._machine
        members = [each for each in map(self._processes.get, self._members) if each]
        waiting = [each for each in members if each.asks and not self._has_place(each)]
        succeeded = any(each.has_succeeded() for each in self._processes.values())
        if succeeded and waiting and all(each.result or each in waiting for each in members):
            self._machine.put("stop", 0, "own")

    def _places(self, ranks: Sequence[tuple[int, int, int]], epoch: int) -> list[ElasticSlotInfo]:
        """Returns the places of these ranks: slot, number of the host, and seat of each."""
        assert self._machine
        names = [self._machine.hosts()[host] for _, host, _ in ranks]
        local_ranks = [names[:rank].count(name) for rank, name in enumerate(names)]
        return [
            ElasticSlotInfo(
                name,
                rank,
                local_ranks[rank],
                [
                    each for each, local in zip(names, local_ranks, strict=True) if local == local_ranks[rank]
                ].index(name),
                len(names),
                names.count(name),
                local_ranks.count(local_ranks[rank]),
                slot=ranks[rank][0],
                epoch=epoch,
            )
            for rank, name in enumerate(names)
        ]

    def _begin_epoch(self) -> None:
        assert self._machine
        places = self._places(self._machine.ranks(), self._machine.epoch())
        self._members = {place.slot: place.plain() for place in places}
        self._host_assignments = {}
        for place in self._members.values():
            self._host_assignments.setdefault(place.hostname, []).append(place)
        self._rendezvous.init(places)

    # -- actions of the machine --------------------------------------------------------------------------

    def _act(self, action: Action) -> None:
        kind = action["kind"]
        if kind == "epoch":
            self._begin_epoch()
        elif kind == "start":
            self._start_process(action)
        elif kind == "end":
            self._end_process(action)
        elif kind == "notice":
            self._give_notice(action)
        elif kind == "say":
            logging.warning("%s", action["text"])
        elif kind == "finish":
            self._finish(action)

    def _finish(self, action: Action) -> None:
        if action["text"]:
            logging.error("%s", action["text"])
            self._error_message = self._error_message or action["text"]
        reason = action["text"] or ("it has failed" if action["exit_code"] else "its work is complete")
        for process in self._processes.values():
            if not process.result:
                self._send_news(process.slot, "over", 0, -1, 0, 0, reason)
        self._shut_down()

    def _start_process(self, action: Action) -> None:
        assert self._machine
        slot, epoch = action["slot"], self._machine.epoch()
        first = slot in self._members
        ranks = self._machine.ranks() if first else self._machine.planned()
        if action["rank"] >= len(ranks):  # a spare, which may become the last rank
            ranks[-1] = (slot, action["host"], action["seat"])
        rank = min(action["rank"], len(ranks) - 1)
        place = self._places(ranks, epoch + (not first))[rank].at_seat(action["seat"])
        process = _Process(slot, place.hostname, action["seat"])
        self._processes[slot] = process
        thread = threading.Thread(
            target=self._run_process, args=(process, place), daemon=True, name=f"process {slot}"
        )
        self._threads.append(thread)
        thread.start()

    def _end_process(self, action: Action) -> None:
        for slot in [action["slot"]] if action["slot"] >= 0 else [*self._processes]:
            process = self._processes[slot]
            process.is_out = True
            process.stop.set()
            self._send_news(slot, "out", 0, -1, 0, 0, action["text"])

    def _give_notice(self, action: Action) -> None:
        if action["change"] & LOST:
            self._lost = action["epoch"]
        for slot, place in self._members.items():
            self._send_news(slot, "epoch", action["epoch"], place.rank, place.size, action["change"])

    def _send_news(self, slot: int, *news: Any) -> None:
        if isinstance(self._rendezvous, RendezvousServer):
            self._rendezvous.send_news(slot, *news)

    def _shut_down(self) -> None:
        with self._changed:
            self._shutdown.set()
            self._changed.notify_all()

    # -- inputs of the machine ---------------------------------------------------------------------------

    def _run_process(self, process: _Process, place: SlotInfo) -> None:
        assert self._machine
        assert self._create_worker
        try:
            exit_code, when = self._create_worker(place, [self._shutdown, process.stop])
        except Exception:
            logging.exception("process %d on %s could not be run", process.slot, process.host)
            exit_code, when = 1, time.time()
        with self._changed:
            process.result = exit_code, when
            if not exit_code and self._last_report(process.slot) in (None, "done"):
                self._machine.put("done", process.slot)
            # Of a shell command the negative number of a signal.
            self._machine.put(
                "ended", process.slot, abs(exit_code) + 128 * (exit_code < 0), max(0, -exit_code)
            )
            self._end_after_success()

    def _last_report(self, slot: int) -> str | None:
        """Returns the first word of it, which may not have been taken yet; None: it reports nothing."""
        if self.finished() or not isinstance(self._rendezvous, RendezvousServer):
            return None
        with self._rendezvous.watch_slots() as watch:
            while entry := watch.next(0):
                if entry[0] == str(slot):
                    return entry[1].decode(errors="replace").partition(" ")[0]
        return None

    def _take_reports(self) -> None:
        while not self.finished():
            entry = self._watch.next(REPORT_SECONDS)
            if entry and entry[0].isdecimal():
                try:
                    self._take_report(int(entry[0]), entry[1].decode(errors="replace").split())
                except (ValueError, OverflowError):
                    logging.warning("process %s reports what can't be understood: %r", *entry)

    def _take_report(self, slot: int, words: list[str]) -> None:
        with self._changed:
            process = self._processes.get(slot)
            if not process or not words or not self._machine:
                return
            if words[-1] == "leaves":
                words.pop()
                self._machine.put("leaves", slot)
            if words[:1] == ["ready"] or (words[:1] == ["entered"] and slot in self._members):
                self._machine.put("waits", slot, -1, False)
            elif words[:1] == ["waits"] and len(words) == 4:
                self._machine.put("waits", slot, int(words[1]), words[2] == "1", int(words[3]))
            elif words[:1] == ["done"]:
                self._machine.put("done", slot)

    def _keep_time(self) -> None:
        assert self._machine
        with self._changed:
            while not self.finished():
                left = self._machine.seconds_left()
                if left <= 0:
                    self._machine.put("tick")
                else:
                    self._changed.wait(min(left, CHECK_SECONDS) if left < math.inf else None)

    def _discover_hosts(self) -> None:
        first = True
        while not self.finished():
            try:
                update = self._host_manager.update_available_hosts()
            except RuntimeError as error:
                if first:
                    self._shut_down()
                    raise
                logging.warning("%s", error)
            else:
                with self._changed:
                    if update:
                        self._notify_workers_host_changes(self._host_manager.current_hosts, update)
                    self._changed.notify_all()
            first = False
            self._shutdown.wait(DISCOVER_HOSTS_FREQUENCY_SECS)

    # -- notices for threads that take the place of processes ---------------------------------------------

    def get_worker_client(self, slot_info: SlotInfo) -> WorkerNotificationManager | None:
        """Returns what reports changes of hosts to a rank; None: it learns of them from the rendezvous."""
        return manager_at(slot_info.hostname, slot_info.local_rank)

    def _notify_workers_host_changes(self, hosts: DiscoveredHosts, update: HostUpdateResult) -> None:
        following: dict[str, list[SlotInfo]] = {}
        if hosts.count_available_slots() >= self._min_num_proc:
            known = [HostInfo(host, hosts.get_slots(host)) for host in hosts.host_assignment_order]
            for place in get_host_assignments(known, self._min_num_proc, self._max_num_proc):
                following.setdefault(place.hostname, []).append(place)
        coordinator = self.get_coordinator_info() if following != self.host_assignments else None
        client = self.get_worker_client(coordinator) if coordinator else None
        if client:
            client.notify_hosts_updated(int(time.time()), update)
