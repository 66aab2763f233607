"""Reads the variables of Horovod's RendezvousServer, for ranks that another launcher has started."""

from __future__ import annotations

import os

SECRETS = ("HOROVOD_SECRET", "HOROVOD_SECRET_FILE")


def adopt_variables() -> None:
    """Sets the engine's own variables from those of Horovod, except where they are set already."""
    address = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    port = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT")
    if not address or not port or "HOROVOD_RENDEZVOUS" in os.environ:
        return
    if os.environ.get("HOROVOD_SIZE", "1") != "1" and not any(map(os.environ.get, SECRETS)):
        raise ValueError(
            f"HOROVOD_GLOO_RENDEZVOUS_ADDR={address} is the address of a RendezvousServer, but rank "
            f"{os.environ.get('HOROVOD_RANK', '?')} has no HOROVOD_SECRET, which that server demands. The "
            "launcher must give every rank the HOROVOD_SECRET of its own os.environ, which "
            "horovod.runner.gloo_run.create_run_env_vars also returns; or set HOROVOD_SECRET_FILE for the "
            "launcher and all ranks"
        )
    from horovod.common import addresses  # imports socket, which few ranks need

    os.environ["HOROVOD_RENDEZVOUS"] = addresses.join(address, port)
    os.environ.setdefault("HOROVOD_JOB", f"rendezvous-{port}")  # rank 0 would serve an unnamed job
    if interface := os.environ.get("HOROVOD_GLOO_IFACE"):
        os.environ.setdefault("HOROVOD_NETWORK_INTERFACE", interface)
