"""Runs a command on the ranks of a job that a ``BaseSettings`` describes, for gloo_run and mpi_run."""

from __future__ import annotations

import math
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from horovod.runner.arguments import FLAGS, options_of
from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.elastic.discovery import FixedHosts, HostDiscoveryScript
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.functions import FAILED
from horovod.runner.program import horovodrun


def run_command(options: Sequence[str], command: Sequence[str] | str, env: Mapping[str, str] | None) -> None:
    """Runs horovodrun and waits; RuntimeError if it fails. A text is split into words as a shell does."""
    words = shlex.split(command) if isinstance(command, str) else command
    code = subprocess.run([horovodrun(), *options, "--", *words], env=env, check=False).returncode
    if code:
        raise RuntimeError(f"{FAILED}: horovodrun ended with exit code {code}")


def run_with_settings(
    controller: str,
    settings: BaseSettings,
    nics: Iterable[str] | None,
    env: Mapping[str, str] | None,
    command: Sequence[str] | str,
) -> None:
    """Runs a command with these settings; ``controller`` is ``use_gloo`` or ``use_mpi``."""
    if settings.elastic and not isinstance(settings, ElasticSettings):
        raise ValueError("an elastic job is described by horovod.runner.elastic.settings.ElasticSettings")
    same = ("num_proc", "ssh_port", "ssh_identity_file", "output_filename", "verbose")
    parameters = dict.fromkeys(FLAGS) | {name: getattr(settings, name) for name in same}
    parameters |= {
        controller: True,
        "hosts": getattr(settings, "hosts", None),
        "network_interfaces": [*(nics or settings.nics or [])],
        "mpi_args": settings.extra_mpi_args if controller == "use_mpi" else None,
        "start_timeout": settings.start_timeout and int(settings.start_timeout.timeout),
        "prefix_output_with_timestamp": settings.prefix_output_with_timestamp,
    }
    if isinstance(settings, ElasticSettings):
        parameters |= _elastic_parameters(settings)
    run_command(options_of(parameters), command, env)


def _elastic_parameters(settings: ElasticSettings) -> dict[str, Any]:
    same = ("min_num_proc", "max_num_proc", "spares", "reset_limit", "cooldown_range")
    parameters = {name: getattr(settings, name) for name in same}
    parameters["elastic_timeout"] = settings.elastic_timeout and math.ceil(settings.elastic_timeout)
    discovery = settings.discovery
    if isinstance(discovery, HostDiscoveryScript):
        script = {"host_discovery_script": discovery.discovery_script, "slots": discovery.default_slots}
        return parameters | script
    if isinstance(discovery, FixedHosts):
        hosts = discovery.find_available_hosts_and_slots()
        return parameters | {"hosts": ",".join(f"{host}:{slots}" for host, slots in hosts.items())}
    raise ValueError(
        f"horovodrun can't find hosts by {discovery!r}: use a HostDiscoveryScript or FixedHosts, or "
        "launch_gloo_elastic"
    )
