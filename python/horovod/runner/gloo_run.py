"""Starts ranks without MPI: by horovodrun, or by a function of the caller."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event

from horovod.runner.absent import names_of
from horovod.runner.common.util.env import is_exportable
from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.common.util.settings import BaseSettings, Settings
from horovod.runner.controllers import run_with_settings
from horovod.runner.functions import FAILED
from horovod.runner.http.http_server import RendezvousServer, shared_secret
from horovod.runner.private import private_folder

__getattr__ = names_of(__name__)


def create_slot_env_vars(slot_info: SlotInfo) -> dict[str, str]:
    """Returns the variables that tell a rank its place."""
    names = ("hostname", "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    return {f"HOROVOD_{name.upper()}": str(getattr(slot_info, name)) for name in names}


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
        elastic: must be false in this version.
    """
    if elastic:
        raise ValueError("create_run_env_vars: elastic jobs come with a later version")
    variables = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": server_ip,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_SECRET": shared_secret(),
    }
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
        given = {name: value for name, value in (os.environ if env is None else env).items() if _passes(name)}
        with _private_script(given | create_run_env_vars(server_ip, nics or [], port)) as script:
            own = {slot: " ".join(_assignments(create_slot_env_vars(slot))) for slot in plan}
            before = f". {shlex.quote(str(script))} && export"
            _run_slots({slot: f"{before} {own[slot]} && {{ {text}\n}}" for slot in plan}, exec_command)
    finally:
        server.stop()


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
