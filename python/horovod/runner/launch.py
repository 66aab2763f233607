"""horovodrun from Python: ``python -m horovod.runner.launch -np 4 python train.py``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from horovod.common.util import env as environment
from horovod.runner.arguments import _HorovodArgs, options_of
from horovod.runner.command_line import parse_args as parse_args
from horovod.runner.common.util.hosts import parse_hosts
from horovod.runner.controllers import run_command
from horovod.runner.elastic import driver
from horovod.runner.functions import FAILED, launch, pickled, run_pickled
from horovod.runner.program import horovodrun


def run_commandline(arguments: Sequence[str] | None = None) -> NoReturn:
    """Replaces this process by horovodrun, with this program's arguments unless others are given."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    os.execv(horovodrun(), ["horovodrun", *words])


def check_build(verbose: bool = False) -> None:
    """Prints the features of this build."""
    text = subprocess.run([horovodrun(), "--check-build"], stdout=subprocess.PIPE, text=True, check=True)
    print(text.stdout, end="")


def _run(args: _HorovodArgs | argparse.Namespace) -> list[Any] | None:
    """Runs a job and waits; returns the results of ``run_func`` in rank order, or None for a command.

    Raises:
        ValueError: there is neither a command nor a function, or arguments exclude each other.
        RuntimeError: the command, or the function on a rank, failed.
    """
    given = dict(vars(args))
    if given.pop("check_build", False):
        check_build()
        return None
    command, function, executable = (given.pop(name) for name in ("command", "run_func", "executable"))
    options = options_of(given)
    if function:
        return run_pickled(pickled(function, (), {}), executable, options)
    if not command:
        raise ValueError("nothing to run: set command to a list of words, or run_func to a function")
    run_command(options, command, env=None)
    return None


def _run_elastic(args: _HorovodArgs | argparse.Namespace) -> list[Any] | None:
    """Runs an elastic job as ``_run``, by the rules of Horovod where those of horovodrun differ.

    All slots of the hosts are used. The host of a failed rank is left out also if it is the last one, and the
    ranks are asked to wait as soon as a process is added. The default timeout is
    ``horovod.runner.elastic.driver.ELASTIC_TIMEOUT_SECS``.

    Raises:
        ValueError: as ``_run``.
        RuntimeError: the job failed; the text has the last lines of horovodrun.
    """
    given = dict(vars(args))
    command, function, executable = (given.pop(name) for name in ("command", "run_func", "executable"))
    given["failed_slot"] = given.get("failed_slot") or "drop-host"
    if not given.get("elastic_timeout") and "HOROVOD_ELASTIC_TIMEOUT" not in os.environ:
        given["elastic_timeout"] = driver.ELASTIC_TIMEOUT_SECS
    if not given.get("max_num_proc") and given["hosts"]:
        given["max_num_proc"] = sum(host.slots for host in parse_hosts(given["hosts"]))
    given.pop("check_build", None)
    options = options_of(given)
    with environment(HOROVOD_ELASTIC_GROW="now"):
        if function:
            return run_pickled(pickled(function, (), {}), executable, options)
        code, outputs = launch([*options, "--", *command])
    if code:
        lines = "".join(outputs[1].last)
        raise RuntimeError(f"{FAILED}: horovodrun ended with exit code {code}; its last lines:\n{lines}")
    return None


def run_controller(
    use_gloo: bool,
    gloo_run: Callable[[], object],
    use_mpi: bool,
    mpi_run: Callable[[], object] | None,
    use_jsrun: bool,
    js_run: Callable[[], object] | None,
    verbosity: int | None,
) -> None:
    """Calls the function of the chosen controller; ``gloo_run`` if none is chosen.

    Raises:
        ValueError: the function of the chosen controller is None.
    """
    chosen = {"mpi_run": mpi_run, "js_run": js_run, "gloo_run": gloo_run}
    name = "gloo_run" if use_gloo else "mpi_run" if use_mpi else "js_run" if use_jsrun else "gloo_run"
    run = chosen[name]
    if run is None:
        raise ValueError(f"run_controller: {name} is chosen, but None")
    run()


if __name__ == "__main__":
    run_commandline()
