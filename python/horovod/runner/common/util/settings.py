"""The settings of a job, for programs that start ranks."""

from __future__ import annotations

from dataclasses import dataclass

from horovod.runner.common.util.timeout import Timeout


@dataclass(kw_only=True)
class BaseSettings:
    """The settings of any job; None: not given. Some have no meaning here and are kept for the program."""

    num_proc: int | None = None
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: bytes | None = None
    start_timeout: Timeout | None = None
    output_filename: str | None = None
    run_func_mode: bool | None = None
    nics: set[str] | None = None
    elastic: bool = False
    prefix_output_with_timestamp: bool = False


@dataclass(kw_only=True)
class Settings(BaseSettings):
    """The settings of a job on known hosts: ``hosts`` is ``host:slots,…``."""

    hosts: str | None = None
