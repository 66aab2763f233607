"""Paths that other libraries import from and derive from. Each name is one object, whatever its path."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import horovod.torch as hvd  # noqa: E402

OPERATIONS = """allreduce allreduce_ allreduce_async allreduce_async_ grouped_allreduce grouped_allreduce_
    grouped_allreduce_async grouped_allreduce_async_ sparse_allreduce_async allgather allgather_async
    grouped_allgather grouped_allgather_async broadcast broadcast_ broadcast_async broadcast_async_ alltoall
    alltoall_async reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async
    join barrier poll synchronize"""
PLACES = """init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous
    start_timeline stop_timeline mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built
    nccl_built ddl_built ccl_built cuda_built rocm_built Average Sum Adasum Min Max Product"""
SETS = "ProcessSet global_process_set add_process_set remove_process_set"
PATHS = {
    "horovod.torch.mpi_ops": f"{OPERATIONS} {PLACES} {SETS} HorovodInternalError",
    "horovod.torch.functions": """broadcast_parameters broadcast_optimizer_state broadcast_object
        allgather_object""",
    "horovod.torch.compression": "Compression",
    "horovod.torch.sync_batch_norm": "SyncBatchNorm",
    "horovod.torch.optimizer": "DistributedOptimizer",
    "horovod.common.basics": PLACES,
    "horovod.common.process_sets": SETS,
    "horovod.common.exceptions": "HorovodInternalError",
}


@pytest.mark.parametrize("path", PATHS)
def test_the_same_objects_as_in_hvd(path: str) -> None:
    module = importlib.import_module(path)
    for name in PATHS[path].split():
        assert getattr(module, name) is getattr(hvd, name), f"{path}.{name}"


def test_operations_by_the_path(rank: int, size: int) -> None:
    """As PyTorch Ignite and others write it."""
    assert hvd.mpi_ops is importlib.import_module("horovod.torch.mpi_ops")
    ops = {"SUM": hvd.mpi_ops.Sum, "AVERAGE": hvd.mpi_ops.Average, "ADASUM": hvd.mpi_ops.Adasum}
    handle = hvd.mpi_ops.allreduce_async(torch.tensor(rank), op=ops["SUM"], name="by path")
    assert hvd.mpi_ops.synchronize(handle) == size * (size - 1) // 2
    assert (hvd.mpi_ops.rank(), hvd.mpi_ops.size()) == (rank, size)


def test_compressors_to_derive_from() -> None:
    compression = importlib.import_module("horovod.torch.compression")

    class Own(compression.Compressor):  # type: ignore[name-defined,misc]
        @staticmethod
        def compress(tensor: Any) -> Any:
            return tensor, None

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return tensor

    assert hvd.allreduce(torch.ones(2), compression=Own).sum() == 2
    assert compression.Compression.none is compression.NoneCompressor
    assert compression.Compression.fp16 is compression.FP16Compressor


def test_basics_as_methods(rank: int, size: int) -> None:
    basics = importlib.import_module("horovod.common.basics").HorovodBasics(__file__, "mpi_lib")
    assert (basics.rank(), basics.size(), basics.nccl_built()) == (rank, size, hvd.nccl_built())
    with pytest.raises(AttributeError, match="no_such_name"):
        basics.no_such_name  # noqa: B018
