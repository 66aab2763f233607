"""Ranks that a launcher has started with the variables of Horovod's RendezvousServer."""

from __future__ import annotations

import os


def adopt_variables() -> None:
    """Sets the engine's own variables from those of Horovod, except where they are set already."""
    address = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    port = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT")
    if not address or not port or "HOROVOD_RENDEZVOUS" in os.environ:
        return
    host = f"[{address}]" if ":" in address else address
    os.environ["HOROVOD_RENDEZVOUS"] = f"{host}:{port}"
    os.environ.setdefault("HOROVOD_JOB", f"rendezvous-{port}")  # whoever names the job serves the rendezvous
    if interface := os.environ.get("HOROVOD_GLOO_IFACE"):
        os.environ.setdefault("HOROVOD_NETWORK_INTERFACE", interface)
