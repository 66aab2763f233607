"""Ranks without MPI: started by horovodrun, or by a launcher that sets the variables by which they meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.controllers import run_with_settings
from horovod.runner.http.http_server import shared_secret


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
