"""Paths that other libraries import from and derive from. Each name is one object, whatever its path."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from training import OPTIMIZERS, check_equal, make_model, own_batch, reference, train  # noqa: E402

import horovod.torch as hvd  # noqa: E402
from horovod.torch.optimizer import _DistributedOptimizer  # noqa: E402

OPERATIONS = """allreduce allreduce_ allreduce_async allreduce_async_ grouped_allreduce grouped_allreduce_
    grouped_allreduce_async grouped_allreduce_async_ sparse_allreduce_async allgather allgather_async
    grouped_allgather grouped_allgather_async broadcast broadcast_ broadcast_async broadcast_async_ alltoall
    alltoall_async reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async
    join barrier poll synchronize"""
PLACES = """init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous
    start_timeline stop_timeline mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built
    nccl_built ddl_built ccl_built cuda_built rocm_built failure Average Sum Adasum Min Max Product"""
SETS = "ProcessSet global_process_set add_process_set remove_process_set"
PATHS = {
    "horovod.torch.mpi_ops": f"{OPERATIONS} {PLACES} {SETS} HorovodInternalError",
    "horovod.torch.functions": """broadcast_parameters broadcast_optimizer_state broadcast_object
        allgather_object""",
    "horovod.torch.compression": "Compression",
    "horovod.torch.sync_batch_norm": "SyncBatchNorm",
    "horovod.torch.optimizer": "DistributedOptimizer _DistributedOptimizer",
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


def test_average_or_op() -> None:
    reduction = importlib.import_module("horovod.torch.mpi_ops").handle_average_backwards_compatibility
    assert (reduction(None, None), reduction(hvd.Sum, None)) == (hvd.Average, hvd.Sum)
    with pytest.raises(ValueError, match="not both"):
        reduction(hvd.Sum, True)


# -- the optimizer's class -------------------------------------------------------------------------


def test_instance_of_the_class() -> None:
    plain = torch.optim.SGD(make_model().parameters(), lr=0.1)
    assert not isinstance(plain, _DistributedOptimizer)
    optimizer = hvd.DistributedOptimizer(plain, backward_passes_per_step=3)
    assert isinstance(optimizer, _DistributedOptimizer)
    assert type(optimizer).__module__ == "horovod.torch.optimizer"  # how trainers see it, as in str(class)
    assert optimizer.backward_passes_per_step == 3
    optimizer.set_backward_passes_per_step(2)
    assert optimizer.backward_passes_per_step == 2


def test_reduction_of_one_gradient(rank: int, size: int) -> None:
    layer = torch.nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=0.1),
        layer.named_parameters(),
        hvd.Compression.fp16,
        op=hvd.Sum,
    )
    layer.weight.grad = torch.full((2, 2), rank + 1.0)
    handle, context = optimizer._allreduce_grad_async(layer.weight)
    reduced = hvd.Compression.fp16.decompress(hvd.synchronize(handle), context)
    assert reduced.dtype == torch.float32
    assert (reduced == size * (size + 1) / 2).all()


class ByHorovodsNames(_DistributedOptimizer):
    """As libraries override it: with the options that Horovod keeps in the optimizer."""

    def _allreduce_grad_async(self, p: Any) -> Any:
        gradient, context = self._compression.compress(p.grad)
        before = 1 / self.gradient_predivide_factor if self.op == hvd.Average else 1.0
        after = self.gradient_predivide_factor if self.op == hvd.Average else 1.0
        handle = hvd.allreduce_async_(
            gradient,
            name=self._parameter_names.get(p),
            op=self.op,
            prescale_factor=before,
            postscale_factor=after,
            process_set=self.process_set,
        )
        return handle, context


def test_override_that_reads_the_options(rank: int, size: int) -> None:
    model = make_model()
    kind = type("Derived", (ByHorovodsNames, torch.optim.SGD), {})
    plain = OPTIMIZERS["sgd"](model.parameters())
    optimizer = kind(
        plain.param_groups, model.named_parameters(), hvd.Compression.none, gradient_predivide_factor=2.0
    )
    assert (optimizer.op, optimizer.gradient_predivide_factor) == (hvd.Average, 2.0)
    assert optimizer.process_set is hvd.global_process_set and not optimizer.sparse_as_dense
    train(model, optimizer, 3, own_batch(rank, size))
    check_equal(model, reference(OPTIMIZERS["sgd"], size, 3))


def test_options_of_ones_own_stay() -> None:
    class Own(torch.optim.SGD):
        op = "class's"

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.process_set = "object's"

    optimizer = hvd.DistributedOptimizer(Own(make_model().parameters(), lr=0.1))
    assert optimizer.process_set == "object's"
    assert Own(make_model().parameters(), lr=0.1).op == "class's"


class Counting(_DistributedOptimizer):
    """A library's own optimizer: counts what is reduced."""

    reduced = 0

    def _allreduce_grad_async(self, p: Any) -> Any:
        self.reduced += 1
        return super()._allreduce_grad_async(p)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("base", [_DistributedOptimizer, Counting], ids=["as it is", "overridden"])
def test_a_class_derived_from_it(kind: str, base: Any, rank: int, size: int) -> None:
    model = make_model()
    plain = OPTIMIZERS[kind](model.parameters())
    derived = type("Derived", (base, type(plain)), {})
    optimizer = derived(plain.param_groups, model.named_parameters())
    train(model, optimizer, 3, own_batch(rank, size))
    check_equal(model, reference(OPTIMIZERS[kind], size, 3))
    if base is Counting:
        assert optimizer.reduced == 3 * 6


def test_derived_for_a_part_of_the_model(rank: int, size: int) -> None:
    """A gradient that this rank does not have is given to the class as zeros."""
    model = make_model()
    kind = type("Derived", (Counting, torch.optim.SGD), {})
    optimizer = kind([{"params": list(model.parameters()), "lr": 0.1}], model.named_parameters())
    model(torch.ones(1, 6), use_second=rank == 0).sum().backward()
    optimizer.step()
    assert optimizer.reduced == 6
    hashes = hvd.allgather_object([p.grad.numpy().tobytes() for p in model.parameters()])
    assert all(each == hashes[0] for each in hashes)
