"""Runs a command on the ranks of a job that a ``BaseSettings`` describes, for gloo_run and mpi_run."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from horovod.runner.arguments import FLAGS, options_of
from horovod.runner.common.util.settings import BaseSettings
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
    if settings.elastic:
        raise ValueError("elastic jobs come with a later version")
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
    run_command(options_of(parameters), command, env)
