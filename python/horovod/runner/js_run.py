"""Starts ranks by LSF's jsrun, under Horovod's name."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from horovod.runner.absent import names_of
from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.functions import FAILED

__getattr__ = names_of(__name__)


def is_jsrun_installed() -> bool:
    """Returns true if there is a jsrun on the PATH."""
    return shutil.which("jsrun") is not None


def js_run(
    settings: BaseSettings,
    nics: Iterable[str] | None,
    env: Mapping[str, str] | None,
    command: Sequence[str] | str,
    stdout: Any = None,
    stderr: Any = None,
) -> None:
    """Runs a command on the ranks of a job and waits for it.

    jsrun places the ranks and gives them their environment; ``settings.binding_args`` are further options.

    Args:
        settings: the number of ranks of the job.
        nics: the network interfaces that the ranks use; None: any.
        env: the environment of the ranks; None: that of this process.
        command: a list of words, or a text that is split as a shell does.
        stdout: a file for what jsrun prints; None: that of this process.
        stderr: the same for errors.

    Raises:
        ValueError: the settings have no number of ranks.
        RuntimeError: there is no jsrun, or a rank failed.
    """
    variables = dict(os.environ if env is None else env)
    if not (jsrun := shutil.which("jsrun", path=variables.get("PATH"))):
        raise RuntimeError("there is no jsrun on the PATH: it comes with LSF; horovodrun starts ranks by ssh")
    if not settings.num_proc:
        raise ValueError("js_run: settings.num_proc must be the number of ranks")
    if names := ",".join(nics or settings.nics or []):
        variables["HOROVOD_NETWORK_INTERFACE"] = names
    options = ["--np", str(settings.num_proc), *shlex.split(settings.binding_args or "")]
    words = shlex.split(command) if isinstance(command, str) else command
    run = subprocess.run([jsrun, *options, *words], env=variables, stdout=stdout, stderr=stderr, check=False)
    if run.returncode:
        raise RuntimeError(f"{FAILED}: jsrun ended with exit code {run.returncode}")
