"""ElasticDriver: elastic jobs whose processes a Python program starts. Here most of them are threads."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE

from horovod import _core
from horovod.runner import gloo_run, launch
from horovod.runner.common.util import safe_shell_exec
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.elastic import driver as driver_module
from horovod.runner.elastic.constants import RESET_LIMIT_EXCEEDED_MESSAGE
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript, HostManager
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.machine import (
    CHECK_SECONDS,
    REJOIN_SECONDS,
    STANDSTILL_SECONDS,
    Action,
    Machine,
)
from horovod.runner.elastic.registration import FAILURE, READY, SUCCESS
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager
from horovod.runner.http.http_server import RendezvousServer

Events = Sequence[threading.Event]
Started = list[ElasticDriver]


class NoServer:
    """Takes the place of a RendezvousServer: the processes are threads that meet nowhere."""

    def __init__(self) -> None:
        self.plans: list[Any] = []

    def init(self, plan: Any) -> None:
        self.plans.append(plan)

    def stop(self) -> None: ...


class Failing(HostDiscovery):
    """Fails until it has been asked often enough; then it names one host."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("no answer")
        return {"a": 1}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)


@pytest.fixture
def make() -> Iterator[Callable[..., ElasticDriver]]:
    """Makes drivers that are stopped at the end."""
    made: Started = []

    def one(hosts: dict[str, int] | HostDiscovery, least: int = 1, **more: Any) -> ElasticDriver:
        discovery = FixedHosts(hosts) if isinstance(hosts, dict) else hosts
        server: Any = NoServer()
        made.append(ElasticDriver(server, discovery, least, more.pop("most", None), **more))
        return made[-1]

    yield one
    for driver in made:
        driver.stop()


def wait_for_end(events: Events) -> None:
    end = time.monotonic() + DEADLINE
    while not any(event.is_set() for event in events):
        assert time.monotonic() < end
        time.sleep(0.005)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def results(driver: ElasticDriver) -> dict[str, int]:
    """The exit codes of the last epoch, once the job has ended."""
    assert driver._shutdown.wait(DEADLINE)
    return {name: code for name, (code, _) in driver.get_results().worker_results.items()}


def test_the_machine_in_python() -> None:
    machine = _core.Membership(2, 1, 3, 0, 0.5, 30, 5, 10, 600, 3, pause=(1, 1))
    machine.discovered(10.0, [("a", 2), ("b", 1)])
    seen = []
    while action := machine.next():
        seen.append(action["kind"])
        assert action["host"] == len(seen) - 1
    assert seen == ["prepare", "prepare"]
    machine.host_prepared(10.0, 0)
    machine.host_prepared(10.0, 1, False)
    assert [machine.next()["kind"] for _ in range(3)] == ["epoch", "start", "start"]  # type: ignore[index]
    assert machine.next() is None
    assert (machine.epoch, machine.ranks(), machine.hosts) == (0, [(0, 0, 0), (1, 0, 1)], ["a", "b"])
    machine.host_lost(11.0, 0)
    assert machine.is_out(11.9, 0)
    assert not machine.is_out(12.1, 0)
    with pytest.raises(IndexError):
        machine.is_out(12.0, 7)
    with pytest.raises(ValueError, match="'soon' is no step"):
        machine.stop(12.0, 1, "soon")
    with pytest.raises(TypeError):
        machine.discovered(12.0, ["a"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", {}),
        ("far\nnear:3\n", {"far": 7, "near": 3}),
        ("\n b : 2 \n\na slots=1\n[::1]:4\n", {"b": 2, "a": 1, "[::1]": 4}),
    ],
)
def test_hosts_that_a_script_prints(tmp_path: Path, text: str, hosts: dict[str, int]) -> None:
    (tmp_path / "hosts").write_text(text)
    found = HostDiscoveryScript(f"cat {tmp_path}/hosts", 7).find_available_hosts_and_slots()
    assert list(found.items()) == list(hosts.items())  # in the order of the lines


@pytest.mark.parametrize(
    ("command", "words"),
    [("exit 3", "exit code 3"), ("echo a:b:c", "'a:b:c' is no host"), ("echo a", "'a' says no slots")],
)
def test_scripts_that_fail(command: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        HostDiscoveryScript(command, None).find_available_hosts_and_slots()


def test_a_script_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horovod.runner.elastic.discovery.SCRIPT_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match=r"did not end within 0\.1 s"):
        HostDiscoveryScript("sleep 1000", None).find_available_hosts_and_slots()


def test_changes_of_hosts() -> None:
    hosts = FixedHosts({"a": 1})
    manager = HostManager(hosts)
    before = manager.current_hosts
    steps = [
        ({"a": 1}, HostUpdateResult.added, ["a"]),
        ({"b": 2, "a": 1}, HostUpdateResult.added, ["a", "b"]),  # the oldest first
        ({"b": 1, "a": 2}, HostUpdateResult.mixed, ["a", "b"]),
        ({"b": 1, "a": 2}, HostUpdateResult.no_update, ["a", "b"]),
        ({"b": 1}, HostUpdateResult.removed, ["b"]),
    ]
    for found, update, order in steps:
        hosts.set(found)
        assert manager.update_available_hosts() == update
        assert manager.current_hosts.host_assignment_order == order
        assert manager.current_hosts.count_available_slots() == sum(found.values())
    assert before.available_hosts == set()


def test_a_host_is_left_out_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    manager = HostManager(FixedHosts({"a": 1, "b": 2}), (10, 15))
    manager.update_available_hosts()
    before = manager.current_hosts
    manager.blacklist("b")
    assert manager.is_blacklisted("b")
    assert manager.update_available_hosts() == HostUpdateResult.no_update
    assert manager.current_hosts.available_hosts == {"a"}
    assert before.available_hosts == {"a", "b"}
    clock[0] += 16
    assert not manager.is_blacklisted("b")
    assert manager.update_available_hosts() == HostUpdateResult.added
    assert manager.current_hosts.count_available_slots() == 3


@pytest.mark.parametrize("cooldown", [(0, 5), (5, 4), (1, 3601)])
def test_wrong_cooldowns(cooldown: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="from 1 to 3600"):
        HostManager(FixedHosts({}), cooldown)


def test_a_job_without_events(make: Callable[..., ElasticDriver]) -> None:
    driver = make({"a": 2, "b": 1}, 2)
    places: dict[int, SlotInfo] = {}
    reached = threading.Barrier(3)

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        driver.record_ready(place.hostname, place.local_rank)
        places[place.rank] = driver.get_slot_info(place.hostname, place.local_rank)
        assert driver.has_rank_assignment(place.hostname, place.local_rank)
        reached.wait(DEADLINE)
        return 0, 1.5

    driver.start(2, work)
    assert results(driver) == {"a[0]": 0, "a[1]": 0, "b[0]": 0}
    assert driver.get_results().worker_results["b[0]"] == (0, 1.5)
    assert driver.get_results().error_message is None
    assert [places[rank].to_response_string() for rank in range(3)] == [
        "0,3,0,2,0,2",
        "1,3,1,2,0,1",
        "2,3,0,1,1,2",
    ]
    assert (driver.world_size(), driver.local_size("a")) == (3, 2)
    assert driver.get_coordinator_info() == places[0]
    assert driver.get_slot_info("c", 0).rank == -1
    with pytest.raises(ValueError, match="called before"):
        driver.start(2, work)


def test_a_failed_process_takes_its_host_along(make: Callable[..., ElasticDriver]) -> None:
    driver = make({"a": 2, "b": 2}, 2)
    places: list[SlotInfo] = []

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        if (place.hostname, place.local_rank) == ("a", 1):
            return -9, 0.0
        driver.record_ready(place.hostname, place.local_rank)
        if place.hostname == "a":
            wait_for_end(events)
            return 1, 0.0
        places.append(driver.get_slot_info(place.hostname, place.local_rank))
        return 0, 0.0

    driver.start(4, work)
    assert results(driver) == {"b[0]": 0, "b[1]": 0}
    assert sorted((place.rank, place.size, place.cross_size) for place in places) == [(0, 2, 1), (1, 2, 1)]
    assert driver._host_manager.is_blacklisted("a")


def test_a_spare_takes_a_lost_place_at_once(make: Callable[..., ElasticDriver]) -> None:
    driver = make({"a": 1, "b": 2}, 2, most=2, spares=1)
    planned: list[SlotInfo] = []
    sizes: list[int] = []

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        if place.local_rank == 1:
            planned.append(place)
        driver.record_ready(place.hostname, place.local_rank)
        if place.hostname == "a":
            until(lambda: len(driver._processes) == 3 and driver._processes[2].asks)
            return 1, 0.0
        if place.local_rank == 0:
            driver.record_ready(place.hostname, place.local_rank)
        sizes.append(driver.get_slot_info("b", place.local_rank).size)
        until(lambda: len(sizes) == 2)
        return 0, 0.0

    driver.start(2, work)
    assert results(driver) == {"b[0]": 0, "b[1]": 0}
    assert [(place.rank, place.size, place.hostname) for place in planned] == [(1, 2, "b")]
    assert sizes == [2, 2]
    with pytest.raises(ValueError, match=r"spares=1 with max_num_proc=None"):
        make({"a": 1}, spares=1)
    with pytest.raises(ValueError, match="too many"):
        _core.Membership(2, 1, 3, 0, 0.5, 30, 5, 10, 600, 3, spares=2**31 - 1)


def test_a_host_is_added(make: Callable[..., ElasticDriver]) -> None:
    hosts = FixedHosts({"a": 1})
    driver = make(hosts)
    sizes: dict[str, list[int]] = {"a": [], "b": []}

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        size = 0
        while size != 2:
            driver.record_ready(place.hostname, place.local_rank)
            size = driver.get_slot_info(place.hostname, place.local_rank).size
            sizes[place.hostname].append(size)
            if size == 1:
                hosts.set({"a": 1, "b": 1})
                driver.wait_for_available_slots(2)
        until(lambda: all(each and each[-1] == 2 for each in sizes.values()))
        return 0, 0.0

    driver.start(1, work)
    assert results(driver) == {"a[0]": 0, "b[0]": 0}
    assert sizes == {"a": [1, 2], "b": [2]}


def test_rank_0_is_notified_of_hosts(make: Callable[..., ElasticDriver]) -> None:
    hosts = FixedHosts({"a": 2})
    driver = make(hosts)
    seen: dict[int, list[int]] = {0: [], 1: []}

    class Listener:
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def on_hosts_updated(self, timestamp: float, update: int) -> None:
            assert abs(time.time() - timestamp) < DEADLINE
            seen[self.rank].append(update)

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        manager = WorkerNotificationManager()
        manager.init(hostname=place.hostname, local_rank=place.local_rank)
        if place.hostname == "a":
            manager.register_listener(Listener(place.rank))  # type: ignore[arg-type]
        driver.record_ready(place.hostname, place.local_rank)
        if place.rank == 0:
            hosts.set({"a": 2, "b": 1})
            until(lambda: seen[0] == [HostUpdateResult.added])
            hosts.set({"b": 2})
            until(lambda: seen[0] == [HostUpdateResult.added, HostUpdateResult.mixed])
        else:
            until(lambda: len(seen[0]) == 2)
        return 0, 0.0

    driver.start(2, work)
    assert results(driver) == {"a[0]": 0, "a[1]": 0}
    assert seen[1] == []


def test_states_of_processes(make: Callable[..., ElasticDriver]) -> None:
    driver = make({"a": 3}, 1)
    registry, go = driver._worker_registry, threading.Event()

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        if place.rank == 0:
            driver.record_ready(place.hostname, 0)
            return 1, 0.0
        if place.rank == 1:
            return 0, 0.0
        assert go.wait(DEADLINE)
        return 1, 0.0

    driver.start(3, work)
    until(lambda: registry.count(READY) == registry.count(SUCCESS) == 1)
    assert registry.get_recorded_slots() == {("a", 0), ("a", 1)}
    assert registry.size() == 3
    go.set()
    results(driver)
    assert registry.count(FAILURE) == 2


def test_a_success_ends_those_that_ask_for_another_epoch(make: Callable[..., ElasticDriver]) -> None:
    driver = make({"a": 2, "b": 1}, 2)

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        if place.rank == 0:
            return 0, 0.0
        driver.record_ready(place.hostname, place.local_rank)
        wait_for_end(events)
        return 5, 0.0

    driver.start(3, work)
    assert results(driver) == {"a[0]": 0, "a[1]": 5, "b[0]": 5}


def test_all_processes_fail(make: Callable[..., ElasticDriver]) -> None:
    driver = make({"a": 1, "b": 1})
    reached = threading.Barrier(2)

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        driver.record_ready(place.hostname, place.local_rank)
        reached.wait(DEADLINE)
        raise OSError("it can't be started")

    driver.start(2, work)
    assert results(driver) == {"a[0]": 1, "b[0]": 1}
    assert "no rank is left" in str(driver.get_results().error_message)


def test_the_reset_limit(make: Callable[..., ElasticDriver]) -> None:
    driver = make({"a": 1, "b": 1}, reset_limit=0)

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        driver.record_ready(place.hostname, place.local_rank)
        if place.rank == 1:
            return 1, 0.0
        driver.record_ready(place.hostname, place.local_rank)
        wait_for_end(events)
        return 1, 0.0

    driver.start(2, work)
    results(driver)
    assert driver.get_results().error_message == RESET_LIMIT_EXCEEDED_MESSAGE.format(0)


def test_too_few_slots(make: Callable[..., ElasticDriver]) -> None:
    with pytest.raises(TimeoutException, match="at least 3 Horovod processes"):
        make({"a": 2}, timeout=0.1).wait_for_available_slots(3)
    with pytest.raises(TimeoutException, match="minimum number of slots"):
        make({"a": 2}, timeout=0.1).wait_for_available_slots(1, min_hosts=2)


def test_a_discovery_that_fails(make: Callable[..., ElasticDriver], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda each: seen.append(each.exc_value))
    driver = make(Failing(1))
    with pytest.raises(RuntimeError, match="the job has ended"):
        driver.wait_for_available_slots(1)
    assert driver.finished()
    until(lambda: bool(seen))
    assert str(seen[0]) == "no answer"


def test_a_discovery_that_fails_later(make: Callable[..., ElasticDriver]) -> None:
    hosts = Failing(-1)
    driver = make(hosts)
    driver.wait_for_available_slots(1)
    hosts.failures = 3
    until(lambda: hosts.failures < 0)
    assert driver.wait_for_available_slots(1).host_slots == {"a": 1}
    assert not driver.finished()


TRAINING = """
import os, signal
import numpy as np, horovod as hvd

hvd.init()

@hvd.elastic.run
def train(state):
    while state.step < 5 or hvd.size() != 2:
        hvd.allreduce(np.ones(1), name="step")
        if state.step == 3 and os.environ["HOROVOD_SLOT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        state.step += 1
        state.commit()

train(hvd.elastic.ObjectState(step=0))
print("rank", hvd.rank(), "of", hvd.size(), "was process", os.environ["HOROVOD_SLOT"], flush=True)
"""


def settings(hosts: HostDiscovery, **more: Any) -> ElasticSettings:
    given = {"min_num_proc": 1, "max_num_proc": None, "elastic_timeout": DEADLINE, "reset_limit": None}
    return ElasticSettings(discovery=hosts, num_proc=3, **given | more)


def test_real_processes(capfd: pytest.CaptureFixture[str]) -> None:
    hosts = FixedHosts({"localhost": 2, "127.0.0.1": 1})

    def execute(command: str, slot: SlotInfo, events: list[threading.Event]) -> int:
        if slot.rank == 0:
            hosts.set({"localhost": 2, "127.0.0.1": 1, "another": 1})
        return safe_shell_exec.execute(command, events=events)

    gloo_run.launch_gloo_elastic(
        [sys.executable, "-c", TRAINING],
        execute,
        settings(hosts),
        None,
        lambda driver: ["lo"],
        RendezvousServer(),
    )
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("rank")]
    assert sorted(lines) == ["rank 0 of 2 was process 2", "rank 1 of 2 was process 3"]


def test_reports_that_make_no_sense(caplog: pytest.LogCaptureFixture) -> None:
    server, go = RendezvousServer(), threading.Event()
    driver = ElasticDriver(server, FixedHosts({"a": 1}), 1, 1)
    reports = [("0", f"waits {after} 1 -1".encode()) for after in ("x", 1 << 40)]
    reports += [("0", b"\xff \xff"), ("0", b""), ("7", b"done"), ("x", b"done"), ("0", b"waits 1")]

    class Watch:
        def next(self, seconds: float) -> tuple[str, bytes] | None:
            if reports:
                return reports.pop(0)
            go.set()
            time.sleep(0.01)
            return None

        def close(self) -> None: ...

        def __enter__(self) -> Watch:
            return self

        def __exit__(self, *error: object) -> None: ...

    server.start(create_rendezvous_handler(driver))
    server.watch_slots = Watch  # type: ignore[assignment,method-assign]
    driver.start(1, lambda place, events: (0 if go.wait(DEADLINE) else 1, 0.0))
    assert results(driver) == {"a[0]": 0}
    driver.stop()
    assert len([each for each in caplog.messages if "can't be understood" in each]) == 2


@pytest.mark.parametrize("comes", [True, False])
def test_a_driver_that_stood_still(monkeypatch: pytest.MonkeyPatch, comes: bool) -> None:
    """A rank that did not come back meanwhile has the rest of the time for that."""
    clock, ended = [1000.0], []

    def act(action: Action) -> None:
        if action["kind"] == "end":
            ended.append(action["slot"])

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    machine = Machine(act, start=2)
    machine.put("discovered", [("a", 1), ("b", 1)])
    for slot in range(2):
        machine.put("waits", slot, -1, False)
    clock[0] += 3600
    assert machine.seconds_left() == math.inf
    clock[0] += 3600  # no rank is awaited
    machine.put("waits", 0, 0, True)
    for _ in range(3):
        left = machine.seconds_left()
        assert REJOIN_SECONDS / 2 - 3 * STANDSTILL_SECONDS < left <= REJOIN_SECONDS / 2
        clock[0] += 3600
        machine.put("tick")
        assert (ended, machine.seconds_left()) == ([], pytest.approx(left - STANDSTILL_SECONDS))
    if comes:
        machine.put("waits", 1, 0, True)
    else:
        for _ in range(int(REJOIN_SECONDS / CHECK_SECONDS)):
            machine.seconds_left()
            clock[0] += CHECK_SECONDS
        machine.put("tick")
    assert (machine.epoch(), ended) == ((1, []) if comes else (0, [1]))


def test_a_driver_ends_while_it_checks_that(make: Callable[..., ElasticDriver]) -> None:
    """The thread that keeps the time must not sleep after it has missed the end."""
    driver = make({"a": 1})
    finished = driver.finished
    checks, ends, goes_on = (threading.Event() for _ in range(3))

    def checked() -> bool:
        found = finished()
        if driver._threads and threading.current_thread() is driver._threads[-1] and not found:
            checks.set()
            assert goes_on.wait(DEADLINE)
        return found

    def work(place: SlotInfo, events: Events) -> tuple[int, float]:
        assert ends.wait(DEADLINE)
        return 0, 0.0

    driver.finished = checked  # type: ignore[method-assign]
    driver.start(1, work)
    assert checks.wait(DEADLINE)
    ends.set()
    driver._shutdown.wait(0.2)  # or the end waits for the lock
    goes_on.set()
    assert driver._shutdown.wait(DEADLINE)
    stop = threading.Thread(target=driver.stop, daemon=True)
    stop.start()
    stop.join(DEADLINE)
    assert not stop.is_alive()


def test_real_processes_that_fail() -> None:
    def execute(command: str, slot: SlotInfo, events: list[threading.Event]) -> tuple[int, float]:
        return safe_shell_exec.execute(command, events=events), time.time()

    with pytest.raises(RuntimeError, match="exited with non-zero status: no rank is left"):
        gloo_run.launch_gloo_elastic(
            "exit 3", execute, settings(FixedHosts({"localhost": 3})), None, lambda driver: ["lo"],
            RendezvousServer(),
        )  # fmt: skip


@pytest.mark.parametrize("of_script", [False, True])
def test_horovodrun_with_elastic_settings(of_script: bool, tmp_path: Path) -> None:
    hosts = HostDiscoveryScript("echo localhost", 3) if of_script else FixedHosts({"localhost": 3})
    gloo_run.gloo_run_elastic(settings(hosts), None, ["sh", "-c", f"touch {tmp_path}/$HOROVOD_RANK"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    with pytest.raises(ValueError, match="use a HostDiscoveryScript or FixedHosts"):
        gloo_run.gloo_run_elastic(settings(Failing(0)), None, ["true"])


def test_a_command_line_with_horovods_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ["-np", "1", "--min-np", "1", "-H", "localhost:2", "sh", "-c"]
    monkeypatch.setattr(driver_module, "ELASTIC_TIMEOUT_SECS", 60)
    launch._run_elastic(launch.parse_args([*words, f"touch {tmp_path}/$HOROVOD_RANK"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]  # all slots
    with pytest.raises(RuntimeError, match=r"exited with non-zero status(.|\n)*exit code 4"):
        launch._run_elastic(launch.parse_args([*words, "[ $HOROVOD_RANK = 0 ] || exit 4; sleep 1000"]))


def test_what_the_server_takes() -> None:
    with pytest.raises(ValueError, match="has not been started"):
        RendezvousServer().watch_slots()
    server = RendezvousServer()
    driver = ElasticDriver(server, FixedHosts({"a": 1}), 1, 1)
    assert server.start(create_rendezvous_handler(driver)) > 0
    driver.stop()
