"""Sparse gradients: entries are gathered, or made dense."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from training import check_equal  # noqa: E402

import horovod.torch as hvd  # noqa: E402

WORDS = 7


class Bag(torch.nn.Module):
    def __init__(self, sparse: bool, tables: int = 1) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(WORDS, 3, sparse=sparse) for _ in range(tables))
        self.out = torch.nn.Linear(3, 1)

    def forward(self, words: Any, table: int = 0) -> Any:
        return self.out(self.tables[table](words).mean(1))


def words(step: int, rank: int) -> Any:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randint(0, WORDS, (2, 3), generator=generator)


def loss_of(model: Any, step: int, rank: int, table: int = 0) -> Any:
    return (model(words(step, rank), table) - rank).square().mean()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sparse_as_dense": True},
        {"groups": 2},
        {"op": hvd.Sum},
        {"op": hvd.Sum, "sparse_as_dense": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("passes", [1, 2])
def test_same_weights(options: dict[str, Any], passes: int, rank: int, size: int) -> None:
    model, expected = Bag(True), Bag(False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1),
        model.named_parameters(),
        backward_passes_per_step=passes,
        **options,
    )
    expected_optimizer = torch.optim.SGD(expected.parameters(), 0.1)
    share = 1 if "op" in options else size
    for step in range(4):
        optimizer.zero_grad()
        expected_optimizer.zero_grad()
        for part in range(passes):
            loss_of(model, step + 10 * part, rank).backward()
            for r in range(size):
                (loss_of(expected, step + 10 * part, r) / share).backward()
        assert model.tables[0].weight.grad.layout is torch.sparse_coo, "as it was"
        optimizer.step()
        expected_optimizer.step()
    check_equal(model, expected)


def test_tables_that_only_some_ranks_use(rank: int, size: int) -> None:
    """From the first step on: a rank that never saw the gradient of a table must know that it is sparse."""
    model, expected = Bag(True, 3), Bag(False, 3)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    expected_optimizer = torch.optim.SGD(expected.parameters(), 0.1)
    for step in range(5):
        tables = [(step + r) % 2 if step < 4 else 2 for r in range(size)]  # the last table comes late
        optimizer.zero_grad()
        loss_of(model, step, rank, tables[rank]).backward()
        optimizer.step()
        expected_optimizer.zero_grad()
        for r in range(size):
            (loss_of(expected, step, r, tables[r]) / size).backward()
        expected_optimizer.step()
    check_equal(model, expected)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_made_dense_in_two_rounds(op: int, rank: int, size: int) -> None:
    """More comes after the gradients of the step were reduced; they are sparse all the time."""
    model, expected = Bag(True), Bag(False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1),
        model.named_parameters(),
        backward_passes_per_step=2,
        op=op,
        sparse_as_dense=True,
    )
    for step in range(2):
        loss_of(model, step, rank).backward()
        optimizer.synchronize()
        assert model.tables[0].weight.grad.layout is torch.sparse_coo
    share = size if op == hvd.Average else 1
    for step in range(2):
        sum(loss_of(expected, step, r) / share for r in range(size)).backward()
    gradient = model.tables[0].weight.grad
    assert gradient.layout is torch.sparse_coo
    assert torch.allclose(gradient.to_dense(), expected.tables[0].weight.grad, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}, {"groups": 2}], ids=str)
@pytest.mark.parametrize("alone", [False, True])
def test_sparse_adam(options: dict[str, Any], alone: bool, rank: int, size: int) -> None:
    """It takes sparse gradients only, also on ranks that did not use the table (alone: all but the last)."""

    def run(model: Any, wrap: Any, ranks: list[int], share: int) -> None:
        optimizer = wrap(torch.optim.SparseAdam(list(model.tables.parameters()), 0.1))
        for step in range(3):
            optimizer.zero_grad()
            for r in ranks:
                if not alone or r == size - 1:
                    (loss_of(model, step, r) / share).backward()
            optimizer.step()

    model, expected = Bag(True), Bag(True)
    run(model, lambda optimizer: hvd.DistributedOptimizer(optimizer, **options), [rank], 1)
    run(expected, lambda optimizer: optimizer, list(range(size)), size)
    check_equal(model, expected)


@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}], ids=str)
def test_sparse_from_a_later_step_on(options: dict[str, Any], rank: int, size: int) -> None:
    """The agreement of the first step knew of no gradient."""
    model = Bag(True, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), **options)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, step, rank, min(step, 1)).backward()
        assert model.tables[min(step, 1)].weight.grad.layout is torch.sparse_coo
        optimizer.step()


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_sparse_allreduce(op: int, rank: int, size: int) -> None:
    dense = torch.zeros(4, 2)
    dense[: rank + 1] = rank + 1.0
    waits = [hvd.sparse_allreduce_async(dense.to_sparse(d), f"s{d}", op) for d in (1, 2)]
    total = hvd.allreduce(dense, op=op)
    for wait in waits:
        assert torch.allclose(wait().to_dense(), total)


def test_sparse_allreduce_refuses() -> None:
    with pytest.raises(ValueError, match="Average and op=Sum"):
        hvd.sparse_allreduce_async(torch.ones(2).to_sparse(), "s", hvd.Max)
    with pytest.raises(ValueError, match="COO"):
        hvd.sparse_allreduce_async(torch.ones(2), "s", hvd.Sum)
    with pytest.raises(ValueError, match="sparse_allreduce_async"):
        hvd.allreduce(torch.ones(2).to_sparse())
