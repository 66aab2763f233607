"""The settings of an elastic job, for programs that start ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horovod.runner.common.util.settings import BaseSettings
from horovod.runner.elastic.discovery import HostDiscovery


@dataclass(kw_only=True)
class ElasticSettings(BaseSettings):
    """The settings of a job whose hosts ``discovery`` finds; the others are parameters of ElasticDriver."""

    discovery: HostDiscovery | None
    min_num_proc: int | None
    max_num_proc: int | None
    elastic_timeout: float | None
    reset_limit: int | None
    cooldown_range: tuple[int, int] | None = None
    spares: int | None = None
    elastic: bool = True

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what may not be picklable and is of no use in a rank."""
        return self.__dict__ | {"discovery": None}
