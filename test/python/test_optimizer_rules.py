"""The rules of DistributedOptimizer that are not about weights: options, errors, process sets, Adasum."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from training import (  # noqa: E402
    OPTIMIZERS,
    check_equal,
    data,
    distributed,
    make_model,
    own_batch,
    part,
    reference,
    train,
)

import horovod.torch as hvd  # noqa: E402

SGD = OPTIMIZERS["sgd"]


class Negated:
    """A compressor of the user's own; the sum of negated gradients is the negated sum."""

    calls = 0

    @staticmethod
    def compress(tensor: Any) -> Any:
        Negated.calls += 1
        return -tensor.double(), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return -tensor.to(ctx)


def test_kind_of_object() -> None:
    model, optimizer = distributed(OPTIMIZERS["adam"])
    assert isinstance(optimizer, torch.optim.Adam) and type(optimizer).__name__ == "Adam"
    other = OPTIMIZERS["adam"](make_model().parameters())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    optimizer.load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)
    del model


def test_parameter_names_for_other_libraries() -> None:
    model, optimizer = distributed(OPTIMIZERS["sgd"])
    assert optimizer._parameter_names == {p: name for name, p in model.named_parameters()}
    groups = [{"params": model.first.parameters()}, {"params": model.second.parameters()}]
    unnamed = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1))._parameter_names
    assert list(unnamed.values()) == ["noname.0.0", "noname.0.1", "noname.1.0", "noname.1.1"]
    assert unnamed[model.second.bias] == "noname.1.1"
    everywhere = hvd.allgather_object(list(unnamed.values()))
    assert all(names == everywhere[0] for names in everywhere)


def test_bad_arguments() -> None:
    model = make_model()
    sgd = OPTIMIZERS["sgd"](model.parameters())
    named = list(model.named_parameters())
    with pytest.raises(ValueError, match="tuples"):
        hvd.DistributedOptimizer(sgd, model.parameters())
    with pytest.raises(ValueError, match=r"unique.*first\.weight"):
        hvd.DistributedOptimizer(sgd, [*named, ("first.weight", torch.nn.Parameter(torch.ones(1)))])
    with pytest.raises(ValueError, match=str(id(model.third.bias))):
        hvd.DistributedOptimizer(sgd, named[:-1])
    with pytest.raises(ValueError, match="Average"):
        hvd.DistributedOptimizer(sgd, named, op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedOptimizer(sgd, named, groups=[[model.first.weight], [model.first.weight]])
    with pytest.raises(ValueError, match="parameters"):
        hvd.DistributedOptimizer(sgd, named, groups=[["first.weight"]])


@pytest.mark.parametrize("groups", [None, 2])
def test_compressor_of_ones_own(groups: Any, rank: int, size: int) -> None:
    Negated.calls = 0
    model, optimizer = distributed(SGD, compression=Negated, groups=groups)
    train(model, optimizer, 3, own_batch(rank, size))
    check_equal(model, reference(SGD, size, 3))
    assert Negated.calls == 3 * 6


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        (-1, "positive"),
        (0, "positive"),
        ([3], "lists of parameters"),
        ("ab", "parameters"),
        ([["first.weight"]], "parameters"),
    ],
)
def test_odd_groups(groups: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        distributed(SGD, groups=groups)


def test_odd_numbers() -> None:
    for passes in (0, -1, 1.5):
        with pytest.raises(ValueError, match="backward_passes_per_step"):
            distributed(SGD, backward_passes_per_step=passes)
    with pytest.raises(ValueError, match="positive"):
        distributed(SGD, gradient_predivide_factor=0.0)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        distributed(SGD, num_groups=1)
    _, optimizer = distributed(SGD)
    with pytest.raises(ValueError, match="backward_passes_per_step"):
        optimizer.set_backward_passes_per_step(0)


def test_passes_are_counted_for_each_parameter(rank: int, size: int) -> None:
    model, optimizer = distributed(SGD, backward_passes_per_step=2)
    x, y = own_batch(rank, size)(0)
    for _ in range(2):
        F.mse_loss(model(x), y).backward()
    with pytest.raises(AssertionError, match=r"third\.\w+' was computed 3 times"):
        F.mse_loss(model(x), y).backward()
    optimizer.synchronize()


def test_load_state_dict_begins_anew(rank: int, size: int) -> None:
    model, optimizer = distributed(SGD)
    x, y = own_batch(rank, size)(0)
    F.mse_loss(model(x), y).backward()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    train(model, optimizer, 5, own_batch(rank, size))
    check_equal(model, reference(SGD, size))


@pytest.mark.parametrize(("named", "name"), [(True, "weight"), (False, "noname.0.0")])
def test_names_on_the_wire(named: bool, name: str, rank: int, size: int) -> None:
    """Errors say what a gradient is called; so do timelines and stall reports."""
    if size == 1:
        pytest.skip("needs several ranks")
    layer = torch.nn.Linear(3 if rank == size - 1 else 2, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), 0.1), layer.named_parameters() if named else None
    )
    with pytest.raises(hvd.HorovodInternalError, match=f'^allreduce "{name}": the ranks disagree'):
        layer(torch.ones(1, layer.in_features)).sum().backward()
    optimizer.zero_grad()


def test_signature() -> None:
    parameters = inspect.signature(hvd.DistributedOptimizer).parameters
    assert list(parameters) == [
        *("optimizer", "named_parameters", "compression", "backward_passes_per_step", "op"),
        *("gradient_predivide_factor", "num_groups", "groups", "sparse_as_dense", "process_set"),
        "shared_gradients",
    ]


# -- process sets ----------------------------------------------------------------------------------


def test_process_set(rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members train together; a rank outside steps by itself, and nothing waits for it."""
    if size == 1:
        pytest.skip("needs several ranks")
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    members = hvd.add_process_set(list(range(1, size)))
    model, optimizer = distributed(SGD, process_set=members)
    number = members.rank() if members.included() else 0
    count = len(members.ranks) if members.included() else 1
    for step in range(4):
        x, y = data(step, count)
        optimizer.zero_grad()
        F.mse_loss(model(part(x, number)), part(y, number)).backward()
        if not members.included():
            F.mse_loss(model(part(x, number)), part(y, number)).backward()  # nobody counts its passes
            model.zero_grad()
            F.mse_loss(model(part(x, number)), part(y, number)).backward()
        optimizer.step()
    expected = reference(SGD, count, 4)
    for value, other in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.allclose(value, other, atol=1e-6)
    hvd.barrier()
    hvd.remove_process_set(members)


def test_process_set_that_is_not_registered() -> None:
    with pytest.raises(ValueError, match="not registered"):
        distributed(SGD, process_set=hvd.ProcessSet([0]))


# -- Adasum ----------------------------------------------------------------------------------------


def adasum(a: Any, b: Any) -> Any:
    dot, first, second = (a * b).sum(), a.square().sum(), b.square().sum()
    return a * (1 - dot / (2 * first)) + b * (1 - dot / (2 * second))


def test_adasum_combines_the_steps(rank: int, size: int) -> None:
    """Two ranks by the formula; more only have to agree."""
    model, optimizer = distributed(SGD, op=hvd.Adasum, backward_passes_per_step=2)
    replicas = [make_model() for _ in range(size)]
    optimizers = [SGD(replica.parameters()) for replica in replicas]
    for step in range(3):
        x, y = data(step, size)
        optimizer.zero_grad()
        for _ in range(2):
            F.mse_loss(model(part(x, rank)), part(y, rank)).backward()
        optimizer.step()
        before = [p.detach().clone() for p in replicas[0].parameters()]
        for r, (replica, own) in enumerate(zip(replicas, optimizers, strict=True)):
            own.zero_grad()
            (2 * F.mse_loss(replica(part(x, r)), part(y, r))).backward()
            own.step()
        if size > 2:
            continue
        for i, start in enumerate(before):
            deltas = [list(replica.parameters())[i].detach() - start for replica in replicas]
            combined = start + (adasum(*deltas) if size == 2 else deltas[0])
            for replica in replicas:
                list(replica.parameters())[i].data.copy_(combined)
    check_equal(model, replicas[0] if size <= 2 else model, 1e-5)


def test_adasum_rules(rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = distributed(SGD, op=hvd.Adasum)
    with pytest.raises(AssertionError, match="skip_synchronize"), optimizer.skip_synchronize():
        pass
    F.mse_loss(model(torch.ones(2, 6)), torch.ones(2, 1)).backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        F.mse_loss(model(torch.ones(2, 6)), torch.ones(2, 1)).backward()
    optimizer.synchronize()
    optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(ValueError, match="Average"):
        distributed(SGD, op=hvd.Adasum, gradient_predivide_factor=2.0)
    with pytest.raises(NotImplementedError, match="process set"):
        distributed(SGD, op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
