"""Translates settings between a program's arguments, a configuration file and variables.

``horovodrun`` reads options and files by itself; this is for programs that set the environment of ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """The names of one setting, which is a row of src/base/settings.def."""

    attribute: str  # also the option of horovodrun, with - instead of _
    variable: str
    key: str  # in the configuration file
    unit: int = 1  # the value of the variable for a value of 1 of the attribute


SETTINGS = [
    Setting("fusion_threshold_mb", "HOROVOD_FUSION_THRESHOLD", "params.fusion_threshold_mb", 1 << 20),
    Setting("cycle_time_ms", "HOROVOD_CYCLE_TIME", "params.cycle_time_ms"),
    Setting("cache_capacity", "HOROVOD_CACHE_CAPACITY", "params.cache_capacity"),
    Setting("autotune", "HOROVOD_AUTOTUNE", "autotune.enabled"),
    Setting("autotune_log_file", "HOROVOD_AUTOTUNE_LOG", "autotune.log_file"),
    Setting("timeline_filename", "HOROVOD_TIMELINE", "timeline.filename"),
    Setting("timeline_mark_cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "timeline.mark_cycles"),
    Setting(
        "stall_check_warning_time_seconds",
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
        "stall_check.warning_time_seconds",
    ),
    Setting(
        "stall_check_shutdown_time_seconds",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        "stall_check.shutdown_time_seconds",
    ),
    Setting("thread_affinity", "HOROVOD_THREAD_AFFINITY", "library_options.thread_affinity"),
    Setting("log_level", "HOROVOD_LOG_LEVEL", "logging.level"),
]


def set_env_from_args(env: MutableMapping[str, str], args: Any) -> MutableMapping[str, str]:
    """Sets the variables of those settings that ``args`` has as attributes, and returns ``env``."""
    for setting in SETTINGS:
        value = getattr(args, setting.attribute, None)
        if value is not None:
            env[setting.variable] = _as_variable(value, setting.unit)
    return env


def _as_variable(value: Any, unit: int) -> str:
    if isinstance(value, bool) or unit != 1:
        return str(int(float(value) * unit))
    return str(value)


def set_args_from_config(args: Any, config: Mapping[str, Any], override_args: Collection[str]) -> None:
    """Sets the attributes that a configuration file contains, except those in ``override_args``."""
    for setting in SETTINGS:
        section, _, key = setting.key.partition(".")
        value = (config.get(section) or {}).get(key)
        if value is not None and setting.attribute not in override_args:
            setattr(args, setting.attribute, value)
