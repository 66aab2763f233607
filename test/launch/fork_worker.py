"""A rank that forks in every way that Python programs do, between and during collectives; ends with OK."""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable

import numpy as np
import torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError


def check_works(name: str) -> None:
    total = hvd.allreduce(torch.ones(1000), name=name, op=hvd.Sum)
    assert torch.equal(total, torch.full((1000,), float(hvd.size()))), name


def data_loader() -> None:
    """Forks new workers in every epoch; gradients are reduced while they run."""
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4)), 8, num_workers=2)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for _ in range(3):
        for (rows,) in loader:
            optimizer.zero_grad()
            model(rows).sum().backward()
            optimizer.step()


def in_child(act: Callable[[], None]) -> None:
    """Calls it in a child that ends by sys.exit, so that exit handlers run."""
    child = os.fork()
    if child == 0:
        act()
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def call_a_collective() -> None:
    try:
        hvd.allreduce(torch.ones(1))
    except HorovodInternalError as error:
        assert "fork" in str(error), error
    else:
        raise AssertionError("a collective in a forked child")


def fork_while_data_move() -> None:
    large = torch.ones(4_000_000)
    for attempt in range(2):
        handle = hvd.allreduce_async_(large, name="large", op=hvd.Average)
        in_child(lambda: None)
        hvd.synchronize(handle)
        assert torch.all(large == 1), attempt


def drop_a_handle_in_the_child() -> None:
    handles = [hvd.allreduce_async(torch.ones(1000), name="dropped", op=hvd.Sum)]
    in_child(handles.clear)
    hvd.synchronize(handles[0])


def pool() -> None:
    with multiprocessing.get_context("fork").Pool(2) as workers:
        check_works("beside a pool")
        assert workers.map(np.square, range(4)) == [0, 1, 4, 9]
        check_works("beside a pool")


def main() -> None:
    hvd.init()
    gc.freeze()  # otherwise every child that ends traverses all objects of the imported modules
    ways = (data_loader, pool, fork_while_data_move, drop_a_handle_in_the_child)
    for way in ways:
        way()
        check_works(way.__name__)
    in_child(call_a_collective)
    in_child(lambda: in_child(call_a_collective))
    in_child(hvd.shutdown)
    check_works("at the end")
    hvd.shutdown()
    print("OK", flush=True)


if __name__ == "__main__":
    main()
