"""Translates the parameters of ``horovod.run`` to options of horovodrun."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# The option of horovodrun for each parameter of ``run``.
FLAGS = {
    "num_proc": "-np",
    "min_num_proc": "--min-np",
    "max_num_proc": "--max-np",
    "slots": "--slots-per-host",
    "reset_limit": "--reset-limit",
    "cooldown_range": "--blacklist-cooldown-range",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "host_discovery_script": "--host-discovery-script",
    "start_timeout": "--start-timeout",
    "ssh_port": "--ssh-port",
    "ssh_identity_file": "--ssh-identity-file",
    "disable_cache": "--disable-cache",
    "output_filename": "--output-filename",
    "verbose": "--verbose",
    "use_gloo": "--gloo",
    "use_mpi": "--mpi",
    "use_jsrun": "--jsrun",
    "tcp_flag": "--tcp",
    "mpi_args": "--mpi-args",
    "network_interfaces": "--network-interface",
}
SWITCHES = {"--disable-cache", "--verbose", "--gloo", "--mpi", "--jsrun", "--tcp"}
EXCLUSIVE = [("hosts", "hostfile"), ("use_gloo", "use_mpi")]
OLD_NAMES = {
    "np": "num_proc",
    "min_np": "min_num_proc",
    "max_np": "max_num_proc",
    "network_interface": "network_interfaces",
    "nics": "network_interfaces",
}


class _HorovodArgs:
    """A job for ``horovod.runner.launch._run``, described by attributes; None means not given.

    Either ``command`` is a list of words, or ``run_func`` is a function and ``executable`` the Python that
    runs it. All other attributes have the names of ``horovod.run``'s parameters, or of an option of
    horovodrun with _ instead of -.
    """

    def __init__(self) -> None:
        self.__dict__.update(dict.fromkeys([*FLAGS, *OLD_NAMES, "command", "run_func", "executable"]))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _words(flag: str, value: object) -> list[str]:
    """Returns an option of horovodrun and its value as words of a command line."""
    if value is None or value is False:
        return []
    if value is True or flag in SWITCHES:
        return [flag] if value else []
    if flag == "--network-interface" and not isinstance(value, str):
        value = ",".join(map(str, value))  # type: ignore[call-overload]
    return [flag, *map(str, value)] if isinstance(value, (list, tuple)) else [flag, str(value)]


def options_of(parameters: Mapping[str, Any]) -> list[str]:
    """Returns the options of horovodrun; raises ValueError if two parameters contradict each other."""
    given = {name: None if value in ([], set()) else value for name, value in parameters.items()}
    for first, second in EXCLUSIVE:
        if given[first] and given[second]:
            raise ValueError(f"{first} and {second} exclude each other")
    for old, new in OLD_NAMES.items():
        value = given.pop(old, None)
        if None not in (value, given[new]) and value != given[new]:
            raise ValueError(
                f"{new}={given[new]} and {old}={value} say different things; {old} is the old name"
            )
        given[new] = value if given[new] is None else given[new]
    if given["num_proc"] is None and not any(map(given.get, ("hosts", "hostfile", "host_discovery_script"))):
        given["num_proc"] = given["min_num_proc"] or 1
    known: Iterable[str] = [*FLAGS, *(name for name in given if name not in FLAGS)]
    return [word for name in known for word in _words(_flag(name), given.get(name))]


def _flag(name: str) -> str:
    return FLAGS.get(name) or f"--{name.replace('_', '-')}"
