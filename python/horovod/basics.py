"""Joining and leaving a job, and this process's place in it. The same for all frameworks."""

from __future__ import annotations

import atexit

from horovod import _core

__all__ = [
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
]

# Values of hvd_reduction in horovod.h.
Average = 0
Sum = 1
Min = 3
Max = 4
Product = 5

atexit.register(_core.shutdown)


def init(comm: None = None, process_sets: None = None) -> None:
    """Joins the job that the launcher has started; without a launcher it is a job of size 1.

    Blocks until all ranks have called it. A second call without ``shutdown`` in between does nothing.

    Raises:
        ValueError: a variable of the environment makes no sense, or a parameter asks for what this
            version can't do.
        HorovodInternalError: the other ranks did not come, or refused this one.
    """
    if comm is not None:
        raise ValueError("init(comm=…) is not supported by this version: all ranks of the job take part")
    if process_sets is not None:
        raise ValueError("init(process_sets=…) is not supported by this version")
    _core.init({})


def shutdown() -> None:
    """Leaves the job. What other ranks submit from now on fails. ``init`` may be called again."""
    _core.shutdown()


def is_initialized() -> bool:
    """Whether ``init`` was called, and ``shutdown`` was not."""
    return _core.is_initialized()


def rank() -> int:
    """This process's number in the job, 0 … size() - 1."""
    return _core.placement()[0]


def size() -> int:
    """Number of processes in the job."""
    return _core.placement()[1]


def local_rank() -> int:
    """This process's number among those of its host: the device to use, for instance."""
    return _core.placement()[2]


def local_size() -> int:
    """Number of the job's processes on this host."""
    return _core.placement()[3]


def cross_rank() -> int:
    """This host's number among the hosts that have this local rank."""
    return _core.placement()[4]


def cross_size() -> int:
    """Number of hosts that have this local rank."""
    return _core.placement()[5]


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks."""
    return local_size() * cross_size() == size()


def mpi_threads_supported() -> bool:
    """Raises ValueError: this version does not use MPI."""
    raise ValueError("MPI is not enabled: this version moves data through shared memory and TCP")


def mpi_enabled() -> bool:
    """False: data move through shared memory and TCP."""
    return False


def mpi_built() -> bool:
    """False: MPI is not needed."""
    return False


def gloo_enabled() -> bool:
    """Whether scripts may take the engine for what Gloo was: collectives that need no MPI. Always."""
    return True


def gloo_built() -> bool:
    """As ``gloo_enabled``."""
    return True


def nccl_built() -> int:
    """NCCL's version code; 0: this version has no GPU operations."""
    return 0


def ddl_built() -> bool:
    """False: IBM's DDL is not supported."""
    return False


def ccl_built() -> bool:
    """False: oneCCL is not needed."""
    return False


def cuda_built() -> bool:
    """False: this version has no GPU operations."""
    return False


def rocm_built() -> bool:
    """False: this version has no GPU operations."""
    return False
