"""Ranks that run out of data."""

from __future__ import annotations

import numpy as np
import pytest

import horovod as hvd


def test_uneven_numbers_of_batches(rank: int, size: int) -> None:
    for step in range(rank + 1):
        total = hvd.allreduce(np.ones(3), name="batch", op=hvd.Sum)
        np.testing.assert_allclose(total, size - step)
    assert hvd.join() == size - 1
    np.testing.assert_allclose(hvd.allreduce(np.ones(2), op=hvd.Sum), size)


def test_the_last_one_is_the_same_everywhere(size: int) -> None:
    answers = hvd.allgather_object(hvd.join())
    assert answers == [answers[0]] * size and answers[0] in range(size)


def test_training_goes_on_for_the_others(rank: int, size: int) -> None:
    """A joined rank contributes zero gradients, like one that only calls step()."""
    torch = pytest.importorskip("torch")
    from training import make_model

    import horovod.torch

    steps = 2 + (rank == size - 1)
    model, expected = make_model(), make_model()
    optimizer = horovod.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), model.named_parameters()
    )
    expected_optimizer = torch.optim.SGD(expected.parameters(), 0.1)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.full((2, 6), step + 1.0)).sum().backward()
        optimizer.step()
    last = horovod.torch.join()
    horovod.torch.broadcast_parameters(model.state_dict(), root_rank=last)
    for step in range(3):
        expected_optimizer.zero_grad()
        share = 1 if step < 2 else 1 / size
        (share * expected(torch.full((2, 6), step + 1.0)).sum()).backward()
        expected_optimizer.step()
    assert last == size - 1
    for value, other in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.allclose(value, other, atol=1e-6)
