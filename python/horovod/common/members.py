"""The parameter ``comm`` of ``init``: which ranks form the job."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import Any


def is_communicator(comm: Any) -> bool:
    """Whether it is one of mpi4py, which the program has imported then."""
    return "mpi4py.MPI" in sys.modules and isinstance(comm, sys.modules["mpi4py.MPI"].Comm)


def address_of(comm: Any) -> int:
    """Where the MPI_Comm of a communicator lies, as ``_core.init`` takes it; 0 for anything else."""
    if not is_communicator(comm):
        return 0
    mpi = sys.modules["mpi4py.MPI"]
    if comm == mpi.COMM_NULL:
        raise ValueError("init(comm=…) got MPI.COMM_NULL: this process is no member of the communicator")
    return int(mpi._addressof(comm))


def settings_of(comm: Sequence[int] | Any | None) -> dict[str, str]:
    """The settings, as ``_core.init`` takes them, for the job of the ranks in ``comm``; None: all."""
    if comm is None or is_communicator(comm):
        return {}
    try:
        ranks = [operator.index(rank) for rank in comm]
    except TypeError:
        raise ValueError(
            f"init(comm={comm!r}): expected a list of ranks, e.g. [0, 2], a communicator of mpi4py, or None"
        ) from None
    return {"ranks": ",".join(map(str, ranks))}
