"""Tensors of one group, or of several operations in flight, that share memory: as one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import horovod as basics


def test_the_same_tensor_twice(kind: Any, rank: int, size: int) -> None:
    x = kind.array(np.full(5, rank + 1.0))
    kind.hvd.grouped_allreduce_([x, x], op=basics.Sum, name="tied")
    assert kind.numpy(x).tolist() == [size * size * (size + 1) / 2] * 5


@pytest.mark.parametrize("grouped", [True, False])
def test_average_of_tied_weights(grouped: bool, rank: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    hvd = pytest.importorskip("horovod.torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    state = model.state_dict()
    for value in state.values():
        value.fill_(rank)
    if grouped:
        hvd.grouped_allreduce_(list(state.values()), op=hvd.Average, name="state")
    else:
        handles = [hvd.allreduce_async_(value, op=hvd.Average, name=name) for name, value in state.items()]
        for handle in handles:
            hvd.synchronize(handle)
    for name, value in state.items():
        assert torch.equal(value, torch.full_like(value, (size - 1) / 2)), name
