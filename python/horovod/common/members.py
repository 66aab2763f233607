"""The parameter ``comm`` of ``init``: which ranks form the job."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import Any


def is_communicator(comm: Any) -> bool:
    """Returns true for a communicator of mpi4py, which the program must have imported to make one."""
    return "mpi4py.MPI" in sys.modules and isinstance(comm, sys.modules["mpi4py.MPI"].Comm)


def address_of(comm: Any) -> int:
    """Returns the address of a communicator's MPI_Comm for ``_core.init``; 0 for any other value."""
    if not is_communicator(comm):
        return 0
    mpi = sys.modules["mpi4py.MPI"]
    if comm == mpi.COMM_NULL:
        raise ValueError("init(comm=…) got MPI.COMM_NULL: this process is no member of the communicator")
    return int(mpi._addressof(comm))


def settings_of(comm: Sequence[int] | Any | None) -> dict[str, str]:
    """Returns the settings of ``_core.init`` for the job of the ranks in ``comm``; None means all ranks."""
    if comm is None or is_communicator(comm):
        return {}
    try:
        ranks = [operator.index(rank) for rank in comm]
    except TypeError:
        raise ValueError(
            f"init(comm={comm!r}): expected a list of ranks, e.g. [0, 2], a communicator of mpi4py, or None"
        ) from None
    return {"ranks": ",".join(map(str, ranks))}
