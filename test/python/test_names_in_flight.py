"""A name that is in flight on a rank: the call that submits it again raises there, and harms nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import horovod as basics

FORMS = (
    *("allreduce_async", "allreduce_async_", "grouped_allreduce_async", "grouped_allreduce_async_"),
    *("allgather_async", "grouped_allgather_async", "broadcast_async", "broadcast_async_"),
    *("reducescatter_async", "grouped_reducescatter_async", "alltoall_async"),
)


@pytest.fixture(autouse=True)
def _several_ranks(size: int) -> None:
    if size == 1:
        pytest.skip("one rank alone is done before the second submission")


def start(kind: Any, form: str, name: str, size: int) -> Any:
    array = kind.array(np.ones(size))
    root = {"root_rank": 0} if "broadcast" in form else {}
    op = {"op": basics.Sum} if "reduce" in form else {}
    return getattr(kind.hvd, form)([array] if "grouped" in form else array, name=name, **root, **op)


def total(kind: Any, form: str, handle: Any) -> float:
    result = kind.hvd.synchronize(handle)
    return float(kind.numpy(result[0] if "grouped" in form else result).sum())


def expected(form: str, rank: int, size: int) -> float:
    if "broadcast" in form or "alltoall" in form or "reducescatter" in form:
        return size
    return size * size


@pytest.mark.parametrize("form", FORMS)
def test_the_second_call_raises(kind: Any, form: str, rank: int, size: int) -> None:
    """On one rank after the other, before the others submit it; they do not notice."""
    for alone in range(size):
        if rank == alone:
            handle = start(kind, form, "again", size)
            for _ in range(2):
                with pytest.raises(ValueError, match=rf"again.* is in flight on rank {rank}"):
                    start(kind, form, "again", size)
            assert not kind.hvd.poll(handle)
        basics.barrier()
        if rank != alone:
            handle = start(kind, form, "again", size)
        assert total(kind, form, handle) == expected(form, rank, size)
        assert total(kind, form, start(kind, form, "again", size)) == expected(form, rank, size), "free again"


def test_a_blocking_call_raises_too(kind: Any, rank: int, size: int) -> None:
    if rank == size - 1:
        handle = start(kind, "allreduce_async", "then blocking", size)
        with pytest.raises(ValueError, match="is in flight"):
            kind.hvd.allreduce(kind.array(np.ones(size)), name="then blocking", op=basics.Sum)
    basics.barrier()
    if rank != size - 1:
        handle = start(kind, "allreduce_async", "then blocking", size)
    assert total(kind, "allreduce_async", handle) == size * size


def test_other_operations_and_names_may(kind: Any, rank: int, size: int) -> None:
    """A name belongs to an operation, grouped or not; unnamed requests never meet."""
    if rank == 0:
        handles = [start(kind, form, "same", size) for form in ("allreduce_async", "grouped_allreduce_async")]
        handles += [start(kind, form, "same", size) for form in ("broadcast_async", "allgather_async")]
        handles += [kind.hvd.allreduce_async(kind.array([1.0]), op=basics.Sum) for _ in range(3)]
    basics.barrier()
    if rank != 0:
        handles = [start(kind, form, "same", size) for form in ("allreduce_async", "grouped_allreduce_async")]
        handles += [start(kind, form, "same", size) for form in ("broadcast_async", "allgather_async")]
        handles += [kind.hvd.allreduce_async(kind.array([1.0]), op=basics.Sum) for _ in range(3)]
    forms = ["allreduce_async", "grouped_allreduce_async", "broadcast_async", "allgather_async"]
    for form, handle in zip(forms, handles, strict=False):
        assert total(kind, form, handle) == expected(form, rank, size)
    assert all(total(kind, "allreduce_async", handle) == size for handle in handles[4:])


def test_a_failed_one_frees_its_name(kind: Any, rank: int, size: int) -> None:
    for _ in range(2):
        with pytest.raises(basics.HorovodInternalError, match="shape"):
            kind.hvd.allreduce(kind.array(np.ones(rank + 1)), name="fails")
    assert total(kind, "allreduce_async", start(kind, "allreduce_async", "fails", size)) == size * size
