"""Parses the command line of horovodrun into attributes of a Python object."""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
from collections.abc import Sequence
from typing import Any

from horovod.runner.arguments import FLAGS, OLD_NAMES
from horovod.runner.program import horovodrun

# A line of horovodrun --help: "  -np, --num-proc N   Number of ranks".
OPTION = re.compile(r"^  (?:--?(\S+), )?--(\[no-\])?([\w-]+)((?: \[?[A-Z:]+\]?)*)(?:  +\S|$)", re.MULTILINE)
TYPES = {"N": int, "PORT": int, "PID": int, "X": float, "NOISE": float, "SECONDS": float}
INFORMATION = {"help", "version"}


class _Choice(argparse.Action):
    """--autotune sets ``autotune``, --no-autotune ``no_autotune``; each sets the other one to false."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        chosen = not (option_string or "").lstrip("-").startswith("no-")
        setattr(namespace, self.dest, chosen)
        setattr(namespace, f"no_{self.dest}", not chosen)


class _Parser(argparse.ArgumentParser):
    """Takes no abbreviations, also for options with one dash: ``-c`` in a command is none of ours."""

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        return []


def _add_option(parser: argparse.ArgumentParser, shorter: str, choice: str, name: str, argument: str) -> None:
    names = {flag.lstrip("-"): parameter for parameter, flag in FLAGS.items()}
    dest = names.get(name) or names.get(shorter) or name.replace("-", "_")
    words = [word for word in (shorter, name, f"no-{name}" if choice else "") if word]
    flags = [dashes + word for word in words for dashes in ("-", "--")]
    metavars = argument.strip("[]").split()
    if choice:
        parser.add_argument(*flags, dest=dest, action=_Choice, nargs=0)
        parser.set_defaults(**{f"no_{dest}": None})
    elif not metavars:
        parser.add_argument(*flags, dest=dest, action="store_true")
    else:
        options: dict[str, Any] = {"nargs": 2} if len(metavars) == 2 else {}
        if argument.startswith("["):  # the value may be left out
            options = {"nargs": "?", "const": True}
        kind = int if len(metavars) == 2 else TYPES.get(metavars[0], str)
        parser.add_argument(*flags, dest=dest, type=kind, metavar=tuple(metavars), **options)


@functools.cache
def _parser() -> argparse.ArgumentParser:
    """Returns a parser with the options that this version's `horovodrun --help` lists."""
    text = subprocess.run([horovodrun(), "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    parser = _Parser("horovodrun", allow_abbrev=False, epilog="See horovodrun --help.")
    for shorter, choice, name, argument in OPTION.findall(text):
        if name not in INFORMATION:
            _add_option(parser, shorter, choice, name, argument.strip())
    parser.add_argument("-v", "--version", action="version", version=_version())
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _version() -> str:
    from horovod import _core

    return _core.version()


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the options of horovodrun and the command as attributes, for ``horovod.runner.launch._run``.

    An attribute has the name of the parameter of ``horovod.run``, or otherwise of the option, with _ instead
    of -. Options that are not given are None, switches False. A --config-file is read only when the job
    starts. An unknown option ends the program, as in argparse.

    Args:
        arguments: the words after ``horovodrun``; None: this program's.
    """
    args = _parser().parse_args(arguments)
    if args.command[:1] == ["--"]:
        args.command = args.command[1:]
    if args.network_interfaces:
        args.network_interfaces = args.network_interfaces.split(",")
    for old, new in OLD_NAMES.items():
        setattr(args, old, getattr(args, new))
    args.run_func = args.executable = None
    return args
