"""Starts ranks by mpirun, as ``horovodrun --mpi`` does, under Horovod's name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence

from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.controllers import run_with_settings


def mpi_available(env: Mapping[str, str] | None = None) -> bool:
    """Returns true if there is an mpirun on the PATH."""
    return shutil.which("mpirun", path=(os.environ if env is None else env).get("PATH")) is not None


def mpi_run(
    settings: BaseSettings,
    nics: Iterable[str] | None,
    env: Mapping[str, str] | None,
    command: Sequence[str] | str,
) -> None:
    """Runs a command on the ranks of a job and waits for it.

    Args:
        settings: the hosts, the number of ranks and the options of the job.
        nics: the network interfaces that the ranks use; None: any.
        env: the environment of the ranks; None: that of this process.
        command: a list of words, or a text that is split as a shell does.

    Raises:
        ValueError: the settings need a feature that this version lacks.
        RuntimeError: a rank failed.
    """
    run_with_settings("use_mpi", settings, nics, env, command)
