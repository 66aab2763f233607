"""Names that scripts written for Horovod import."""

from __future__ import annotations

import inspect
import os
from typing import Any

import pytest

import horovod
from horovod.common import exceptions, util

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


def test_util(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_TEST_A", "1")
    with util.env(HVD_TEST_A=None, HVD_TEST_B="2"):
        assert "HVD_TEST_A" not in os.environ and os.environ["HVD_TEST_B"] == "2"
    assert os.environ["HVD_TEST_A"] == "1" and "HVD_TEST_B" not in os.environ
    assert util.split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert [n for n in range(10) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert util.is_version_greater_equal_than("2.13.0+cpu", "2.4.1")
    assert not util.is_version_greater_equal_than("1.9", "1.10.0")
    with pytest.raises(ValueError, match="three numbers"):
        util.is_version_greater_equal_than("1.9", "1.10")
    assert util.is_iterable([]) and not util.is_iterable(3)
    assert os.path.exists(util.get_extension_full_path(__file__)) and util.get_ext_suffix().endswith(".so")
    assert not util.extension_available("no_such_framework")
    with pytest.raises(ImportError, match="no_such_framework"):
        util.check_extension("horovod.no_such_framework")
    op_of = util.get_average_backwards_compatibility_fun(horovod)
    assert op_of(None, None) == horovod.Average and op_of(horovod.Max, None) == horovod.Max
    with pytest.warns(DeprecationWarning):
        assert op_of(None, False) == horovod.Sum
