"""Names that scripts written for Horovod import."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import horovod
from horovod.common import exceptions

COMMON = """init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous
    mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built ddl_built ccl_built cuda_built
    rocm_built nccl_built ProcessSet global_process_set add_process_set remove_process_set Average Sum Adasum
    Min Max Product Compression HorovodInternalError join barrier poll synchronize
    broadcast_object allgather_object"""
REDUCE = "tensor average name op prescale_factor postscale_factor process_set"
SCATTER = "tensor name op process_set prescale_factor postscale_factor"
SIGNATURES = {
    "allreduce": REDUCE.replace("name", "name compression", 1),
    "allreduce_async": REDUCE,
    "allreduce_": REDUCE,
    "allreduce_async_": REDUCE,
    "allgather": "tensor name process_set",
    "allgather_async": "tensor name process_set",
    "broadcast": "tensor root_rank name process_set",
    "broadcast_async": "tensor root_rank name process_set",
    "broadcast_": "tensor root_rank name process_set",
    "broadcast_async_": "tensor root_rank name process_set",
    "alltoall": "tensor splits name process_set",
    "alltoall_async": "tensor splits name process_set",
    "reducescatter": SCATTER.replace("name", "name compression", 1),
    "reducescatter_async": SCATTER,
}
GROUPED = ("allreduce", "allgather", "reducescatter")
TORCH = {
    "sparse_allreduce_async": "tensor name op process_set",
    "broadcast_parameters": "params root_rank",
    "broadcast_optimizer_state": "optimizer root_rank model",
    "broadcast_object": "obj root_rank name process_set",
    "allgather_object": "obj name process_set",
    "join": "device",
    "barrier": "process_set",
    "SyncBatchNorm": "num_features eps momentum affine track_running_stats process_set",
}


@pytest.fixture(params=["horovod", "horovod.torch"])
def module(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip("torch")
    return __import__(request.param, fromlist=["init"])


def test_common_names(module: Any) -> None:
    assert [name for name in COMMON.split() if not hasattr(module, name)] == []


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(module: Any, name: str) -> None:
    """Parameters by their names and in their order, also of the grouped forms; a docstring; real names."""
    names = [name, *([f"grouped_{name}"] if name.split("_")[0] in GROUPED else [])]
    for each in names:
        function = getattr(module, each)
        signature = inspect.signature(function)
        wanted = SIGNATURES[name].replace("tensor", "tensor" + "s" * each.startswith("grouped_"), 1)
        assert list(signature.parameters) == wanted.split()
        assert signature.parameters["process_set"].default is horovod.global_process_set
        assert function.__name__ == each and function.__doc__
        assert ("Handle" in str(signature.return_annotation)) == ("_async" in each)


@pytest.mark.parametrize("name", TORCH)
def test_signatures_of_torch(name: str) -> None:
    pytest.importorskip("torch")
    import horovod.torch

    assert list(inspect.signature(getattr(horovod.torch, name)).parameters) == TORCH[name].split()


def test_exceptions() -> None:
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert exceptions.HostsUpdatedInterrupt(skip_sync=True).skip_sync
    assert issubclass(exceptions.HorovodVersionMismatchError, ImportError)
