"""The parameter ``comm`` of ``init``: which ranks of the launcher's world form a job of their own."""

from __future__ import annotations

import operator
from collections.abc import Sequence


def settings_of(comm: Sequence[int] | None) -> dict[str, str]:
    """The settings, as ``_core.init`` takes them, for the job of the ranks in ``comm``; None: all."""
    if comm is None:
        return {}
    if hasattr(comm, "Get_size"):
        raise ValueError(
            "init(comm=…) got a communicator of mpi4py, which comes with MPI support in a later version; "
            "pass the list of its ranks in the world"
        )
    try:
        ranks = [operator.index(rank) for rank in comm]
    except TypeError:
        raise ValueError(f"init(comm={comm!r}): expected a list of ranks, e.g. [0, 2], or None") from None
    return {"ranks": ",".join(map(str, ranks))}
