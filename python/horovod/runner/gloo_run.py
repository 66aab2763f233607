"""Starts ranks without MPI: by horovodrun, or by a function of the caller."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from threading import Event

from horovod.runner.common.util.env import is_exportable
from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.common.util.settings import BaseSettings, Settings
from horovod.runner.controllers import run_with_settings
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.functions import FAILED
from horovod.runner.http.http_server import RendezvousServer, shared_secret
from horovod.runner.private import private_folder
from horovod.runner.util.network import get_driver_ip


def create_slot_env_vars(slot_info: SlotInfo) -> dict[str, str]:
    """Returns the variables that give a rank its place, and in an elastic job the number of its process."""
    return {f"HOROVOD_{name.upper()}": str(value) for name, value in asdict(slot_info).items()}


def create_run_env_vars(
    server_ip: str, nics: Iterable[str], port: int, elastic: bool = False
) -> dict[str, str]:
    """Returns the variables by which ranks find the RendezvousServer of this process.

    Its secret is one of them: hand it to the ranks in their environment, never in a command line, which every
    user of a host can read.

    Args:
        server_ip: an address of this host.
        nics: the network interfaces that the ranks use; empty: any.
        port: what ``RendezvousServer.start`` has returned.
        elastic: the ranks are started by an ElasticDriver.
    """
    variables = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": server_ip,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_SECRET": shared_secret(),
    }
    if elastic:
        variables["HOROVOD_ELASTIC"] = "1"
    if names := ",".join(nics):
        variables["HOROVOD_NETWORK_INTERFACE"] = names
    return variables


@contextlib.contextmanager
def _private_script(variables: Mapping[str, str]) -> Iterator[Path]:
    """Makes a file that only this user can read, from which a shell reads these variables.

    It is below the home folder, which other hosts may share.
    """
    parent = Path.home() / ".horovod"
    parent.mkdir(mode=0o700, exist_ok=True)
    with private_folder(parent, "launch-") as folder:
        script = folder / "variables"
        script.write_text("".join(f"export {assignment}\n" for assignment in _assignments(variables)))
        yield script


def _failure(slot: SlotInfo, done: Future[int]) -> RuntimeError | None:
    if error := done.exception():
        how = f"could not be run: {error!r}"
    elif code := done.result():
        how = f"ended with exit code {code}"
    else:
        return None
    failure = RuntimeError(f"{FAILED}: the first was rank {slot.rank} on {slot.hostname}, which {how}")
    failure.__cause__ = error
    return failure


def _run_slots(
    commands: Mapping[SlotInfo, str], execute: Callable[[str, SlotInfo, list[Event]], int]
) -> None:
    """Runs the commands concurrently; when one fails, sets the event on which the others must end."""
    stop, failures = Event(), []
    with ThreadPoolExecutor(len(commands)) as threads:
        running = {threads.submit(execute, text, slot, [stop]): slot for slot, text in commands.items()}
        try:
            for done in as_completed(running):
                if failure := _failure(running[done], done):
                    failures.append(failure)
                    stop.set()
        finally:
            stop.set()
    if failures:
        raise failures[0]


def launch_gloo(
    command: Sequence[str] | str,
    exec_command: Callable[[str, SlotInfo, list[Event]], int],
    settings: Settings,
    nics: Iterable[str] | None,
    env: Mapping[str, str] | None,
    server_ip: str,
) -> None:
    """Starts the ranks of a job by a function of the caller, serves their rendezvous, and waits for them.

    The text that ``exec_command`` gets contains neither the secret nor the environment: the shell reads both
    from a file below ~/.horovod, which only this user can read and which all hosts must share.

    Args:
        command: the command of every rank, a list of words or a text for a shell.
        exec_command: runs a text by a shell on the host of a slot and returns its exit code; it is called in
            a thread for each rank, and should end the process when one of its events is set.
        settings: ``hosts`` and ``num_proc`` of the job.
        nics: the network interfaces that the ranks use; None: any.
        env: the environment of the ranks; None: that of this process.
        server_ip: an address of this host.

    Raises:
        RuntimeError: a rank failed.
    """
    hosts = parse_hosts(settings.hosts or f"localhost:{settings.num_proc or 1}")
    plan = get_host_assignments(hosts, settings.num_proc or sum(host.slots for host in hosts))
    text = command if isinstance(command, str) else shlex.join(command)
    server = RendezvousServer(settings.verbose)
    port = server.start()
    try:
        server.init(plan)
        with _private_script(_given(env) | create_run_env_vars(server_ip, nics or [], port)) as script:
            _run_slots({slot: _in_place(text, slot, script) for slot in plan}, exec_command)
    finally:
        server.stop()


def _given(env: Mapping[str, str] | None) -> dict[str, str]:
    """Returns what ranks get of an environment; None: that of this process."""
    return {name: value for name, value in (os.environ if env is None else env).items() if _passes(name)}


def _in_place(text: str, slot: SlotInfo, script: Path) -> str:
    """Returns the command for a shell on the host of the slot; ``script`` has the variables of all ranks."""
    own = " ".join(_assignments(create_slot_env_vars(slot)))
    return f". {shlex.quote(str(script))} && export {own} && {{ {text}\n}}"


def _get_min_start_hosts(settings: BaseSettings) -> int:
    """Returns how many hosts an elastic job waits for; one is enough, but programs replace this function."""
    return 1


def launch_gloo_elastic(
    command: Sequence[str] | str,
    exec_command: Callable[[str, SlotInfo, list[Event]], int | tuple[int, float]],
    settings: ElasticSettings,
    env: Mapping[str, str] | None,
    get_common_interfaces: Callable[[ElasticDriver], Iterable[str]],
    rendezvous: RendezvousServer,
) -> None:
    """Starts the ranks of an elastic job by a function of the caller, and waits for the end of the job.

    Args:
        command: the command of every rank, a list of words or a text for a shell.
        exec_command: as in ``launch_gloo``; besides the exit code it may return when the process ended.
        settings: with a ``discovery``, and the limits of the job.
        env: the environment of the ranks; None: that of this process.
        get_common_interfaces: returns the network interfaces by which the ranks reach each other.
        rendezvous: the server at which they meet, which was not started.

    Raises:
        RuntimeError: the job failed.
    """
    assert settings.discovery
    wanted = settings.num_proc or settings.min_num_proc or 1
    driver = ElasticDriver(
        rendezvous, settings.discovery, settings.min_num_proc or wanted, settings.max_num_proc,
        settings.elastic_timeout, settings.reset_limit, settings.cooldown_range, settings.verbose,
        settings.spares or 0,
    )  # fmt: skip
    text = command if isinstance(command, str) else shlex.join(command)
    port = rendezvous.start(create_rendezvous_handler(driver))
    try:
        driver.wait_for_available_slots(wanted, _get_min_start_hosts(settings))
        nics = [*get_common_interfaces(driver)]
        variables = create_run_env_vars(get_driver_ip(nics), nics, port, elastic=True)
        with _private_script(_given(env) | variables) as script:

            def run(slot: SlotInfo, events: Sequence[Event]) -> tuple[int, float]:
                ended = exec_command(_in_place(text, slot, script), slot, [*events])
                return ended if isinstance(ended, tuple) else (ended, time.time())

            driver.start(wanted, run)
            driver.get_results()
    finally:
        driver.stop()
        results = driver.get_results()  # after an exception, too: no process is left
    failed = {name: code for name, (code, _) in results.worker_results.items() if code}
    if results.error_message or failed:
        raise RuntimeError(f"{FAILED}: {results.error_message or 'exit codes ' + str(failed)}")


def _passes(name: str) -> bool:
    return name.isidentifier() and name.isascii() and is_exportable(name)


def _assignments(variables: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}={shlex.quote(value)}" for name, value in variables.items())


def gloo_run(
    settings: BaseSettings,
    nics: Iterable[str] | None,
    env: Mapping[str, str] | None,
    server_ip: str | None,
    command: Sequence[str] | str,
) -> None:
    """Runs a command on the ranks of a job and waits for it, as ``horovod.runner.mpi_run.mpi_run`` does.

    ``server_ip`` has no meaning: horovodrun finds the addresses by which the hosts reach each other.
    """
    run_with_settings("use_gloo", settings, nics, env, command)


def gloo_run_elastic(
    settings: ElasticSettings, env: Mapping[str, str] | None, command: Sequence[str] | str
) -> None:
    """Runs a command on the ranks of an elastic job and waits for it.

    ``discovery`` of the settings is a HostDiscoveryScript or FixedHosts, as horovodrun starts the ranks;
    ``launch_gloo_elastic`` takes any other.

    Raises:
        ValueError: it is something else.
        RuntimeError: the job failed.
    """
    run_with_settings("use_gloo", settings, None, env, command)
