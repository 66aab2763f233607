"""Random operations of TensorFlow, JAX and MXNet beside NumPy: `random_operations.py`.

HOROVOD_TEST_SEED tries the same ones again, HOROVOD_TEST_OPERATIONS another number of them.
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from random_operations import AVERAGE, SUM, Kinds, Operation, check, draw, value

import horovod

COUNT = int(os.environ.get("HOROVOD_TEST_OPERATIONS", "24"))
BATCH = 8  # of operations that are in flight together
NUMBERS = ("uint8", "int32", "int64", "float16", "float32", "float64")


class Framework:
    """How one runs a batch of operations."""

    package: str
    kinds: Kinds

    def __init__(self) -> None:
        self.hvd: Any = importlib.import_module(self.package)
        self.sets: dict[tuple[int, ...], Any] = {}

    def array(self, values: Any) -> Any:
        """A new tensor of the framework, which may change it."""
        raise NotImplementedError

    def numpy(self, tensor: Any) -> Any:
        return np.asarray(tensor)

    def call(self, operation: Operation, tensors: Sequence[Any], suffix: str = "", **more: Any) -> list[Any]:
        """The operation by the framework's own functions, whose names end in `suffix`."""
        options: dict[str, Any] = {"name": operation.name, "process_set": self.sets[operation.ranks], **more}
        if operation.kind in ("allreduce", "reducescatter"):
            options["op"] = getattr(horovod, operation.reduction)
            options["prescale_factor"] = operation.prescale
            options["postscale_factor"] = operation.postscale
        if operation.kind == "broadcast":
            return [
                getattr(self.hvd, f"broadcast{suffix}")(
                    tensor, operation.root, **{**options, "name": f"{operation.name}.{i}"}
                )
                for i, tensor in enumerate(tensors)
            ]
        if operation.kind == "alltoall":
            if not operation.splits:
                return [self.hvd.alltoall(tensors[0], **options)]
            place = operation.ranks.index(horovod.rank())
            splits = np.array(operation.splits[place], np.int32)
            return [self.hvd.alltoall(tensors[0], splits, **options)[0]]
        if len(tensors) == 1:
            return [getattr(self.hvd, operation.kind + suffix)(tensors[0], **options)]
        return list(getattr(self.hvd, f"grouped_{operation.kind}{suffix}")(list(tensors), **options))

    def batch(self, operation: Operation) -> tuple[Any, ...]:
        """Operations of which this is equal may run together."""
        return (operation.form,)

    def run(self, operations: Sequence[Operation], inputs: dict[int, Any]) -> list[Sequence[Any]]:
        """The results of operations that are in flight together, by their sources' values."""
        raise NotImplementedError


class TensorFlow(Framework):
    package = "horovod.tensorflow"
    kinds = Kinds(("eager", "function", "session", "variables", "gradient", "slices"), ("bool", *NUMBERS))

    def __init__(self) -> None:
        self.tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
        super().__init__()

    def array(self, values: Any) -> Any:
        return self.tf.constant(values)

    def apply(self, operation: Operation, tensors: Sequence[Any]) -> list[Any]:
        reduces = operation.kind == "allreduce" and operation.reduction in (SUM, AVERAGE)
        plain = reduces and operation.prescale == operation.postscale == 1
        if operation.form == "gradient" and reduces and operation.dtype.startswith("float"):
            with self.tf.GradientTape() as tape:
                zeros = [self.tf.zeros_like(tensor) for tensor in tensors]
                tape.watch(zeros)
                sums = self.call(operation, zeros)
            return list(tape.gradient(sums, zeros, output_gradients=list(tensors)))
        if operation.form == "slices" and plain and len(tensors) == 1 and operation.dtype.startswith("float"):
            rows = tensors[0].shape[0]
            slices = self.tf.IndexedSlices(tensors[0], self.tf.range(rows), self.tf.shape(tensors[0]))
            (reduced,) = self.call(operation, [slices])
            return [self.tf.math.unsorted_segment_sum(reduced.values, reduced.indices, rows)]
        if operation.form == "variables" and operation.kind == "broadcast":
            aliases = [self.tf.Variable(each.value()) for each in tensors]  # of the same memory until changed
            options = {"name": operation.name, "process_set": self.sets[operation.ranks]}
            before = [each.numpy() for each in tensors]
            self.hvd.broadcast_(aliases, operation.root, **options)
            for each, values in zip(tensors, before, strict=True):
                np.testing.assert_array_equal(each.numpy(), values)
            return aliases
        return self.call(operation, tensors)

    def run(self, operations: Sequence[Operation], inputs: dict[int, Any]) -> list[Sequence[Any]]:
        form = operations[0].form

        def everything(given: dict[int, Any]) -> list[list[Any]]:
            return [self.apply(each, [given[source] for source in each.sources]) for each in operations]

        if form == "session":
            with self.tf.Graph().as_default(), self.tf.compat.v1.Session() as session:
                return list(session.run(everything({i: self.array(x) for i, x in inputs.items()})))
        make = self.tf.Variable if form == "variables" else self.array
        run = everything if form in ("eager", "variables") else self.tf.function(everything)
        return [[self.numpy(each) for each in some] for some in run({i: make(x) for i, x in inputs.items()})]


class JAX(Framework):
    package = "horovod.jax"
    kinds = Kinds(
        ("eager", "jit", "donated", "scan", "while", "vmap", "gradient", "disabled"),
        ("bool", *NUMBERS),
        ragged=False,
    )

    def __init__(self) -> None:
        self.jax = pytest.importorskip("jax", "0.6", reason="JAX 0.6 is not installed")
        super().__init__()
        self.jax.config.update("jax_enable_x64", True)

    def array(self, values: Any) -> Any:
        return self.jax.numpy.array(values)

    def apply(self, operation: Operation, tensors: Sequence[Any]) -> list[Any]:
        linear = operation.kind == "allreduce" and operation.reduction in (SUM, AVERAGE)
        if operation.form == "gradient" and linear and operation.dtype.startswith("float"):
            zeros = [self.jax.numpy.zeros_like(tensor) for tensor in tensors]
            _, back = self.jax.vjp(lambda *given: tuple(self.call(operation, given)), *zeros)
            return list(back(tuple(tensors)))
        if operation.form == "scan":
            body = lambda carry, _: (carry, self.call(operation, tensors))  # noqa: E731
            _, stacked = self.jax.lax.scan(body, 0, None, length=2)
            return [each[1] for each in stacked]
        if operation.form == "while":
            results = self.jax.eval_shape(lambda: self.call(operation, tensors))
            start = [self.jax.numpy.zeros(each.shape, each.dtype) for each in results]
            step = lambda state: (state[0] + 1, self.call(operation, tensors))  # noqa: E731
            return list(self.jax.lax.while_loop(lambda state: state[0] < 2, step, (0, start))[1])
        alike = len(set(operation.rows)) == 1  # vmap maps one dimension of all
        if operation.form == "vmap" and operation.kind == "allreduce" and alike:
            return list(self.jax.vmap(lambda *given: self.call(operation, given))(*tensors))
        return self.call(operation, tensors)

    def batch(self, operation: Operation) -> tuple[Any, ...]:
        return operation.form, operation.ranks  # it needs the same program on all ranks

    def run(self, operations: Sequence[Operation], inputs: dict[int, Any]) -> list[Sequence[Any]]:
        form, given = operations[0].form, {i: self.array(x) for i, x in inputs.items()}

        def everything(given: dict[int, Any]) -> list[list[Any]]:
            return [self.apply(each, [given[source] for source in each.sources]) for each in operations]

        if form in ("eager", "gradient"):
            return everything(given)
        if form == "disabled":
            with self.jax.disable_jit():
                return everything(given)
        return list(self.jax.jit(everything, donate_argnums=0 if form == "donated" else ())(given))


class MXNet(Framework):
    package = "horovod.mxnet"
    kinds = Kinds(("nd", "np", "in place", "priority"), ("bool", *NUMBERS))

    def __init__(self) -> None:
        self.mx = pytest.importorskip("mxnet", reason="MXNet is not installed", exc_type=ImportError)
        super().__init__()

    def array(self, values: Any) -> Any:
        return self.mx.np.array(values, dtype=values.dtype)

    def numpy(self, tensor: Any) -> Any:
        return tensor.asnumpy()

    def apply(self, operation: Operation, tensors: Sequence[Any]) -> list[Any]:
        empty = operation.splits or not all(map(all, operation.rows))  # which arrays of mx.nd can't be
        if operation.form == "nd" and operation.dtype != "bool" and not empty:
            return self.call(operation, [each.as_nd_ndarray() for each in tensors])
        if operation.form == "priority":
            return self.call(operation, tensors, priority=operation.number % 3)
        if operation.form == "in place" and operation.kind in ("allreduce", "broadcast"):
            copies = [each.copy() for each in tensors]
            results = self.call(operation, copies, suffix="_")
            assert all(one is other for one, other in zip(results, copies, strict=True))
            return copies
        return self.call(operation, tensors)

    def run(self, operations: Sequence[Operation], inputs: dict[int, Any]) -> list[Sequence[Any]]:
        with self.mx.util.np_shape(True):
            given = {source: self.array(values) for source, values in inputs.items()}
            return [self.apply(each, [given[source] for source in each.sources]) for each in operations]


COMPILED = [pytest.param(kind, marks=pytest.mark.two_or_three) for kind in (TensorFlow, JAX)]


@pytest.fixture(params=[*COMPILED, MXNet], ids=lambda kind: kind.__name__)
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made, size = request.param(), horovod.size()
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    made.sets[tuple(range(size))] = horovod.global_process_set
    if size > 1:
        for ranks in ([size - 1], [0, size - 1]):
            if tuple(ranks) not in made.sets:
                made.sets[tuple(ranks)] = horovod.add_process_set(ranks)
    yield made
    for some in list(made.sets.values())[1:]:
        horovod.remove_process_set(some)


def batches(framework: Framework, operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Neighbours that may run together; sorted first, so that there are more of them."""
    order = sorted(operations, key=lambda each: (each.number // 64, framework.batch(each)))
    for _, some in itertools.groupby(order, lambda each: (each.number // 64, framework.batch(each))):
        together = list(some)
        for first in range(0, len(together), BATCH):
            yield together[first : first + BATCH]


@pytest.mark.timeout(300 + 0.7 * COUNT)  # JAX compiles nearly every one
def test_random_operations(framework: Any, rank: int, size: int) -> None:
    seed = int(os.environ.get("HOROVOD_TEST_SEED") or random.randrange(1 << 31))
    seed = int(horovod.broadcast(np.array([seed]), 0)[0])
    print(f"HOROVOD_TEST_SEED={seed}: {COUNT} operations")
    operations = draw(seed, COUNT, list(framework.sets), framework.kinds)
    faults = []  # raised at the end: the other ranks go on
    for batch in batches(framework, operations):
        mine = [operation for operation in batch if rank in operation.ranks]
        inputs = {
            source: value(seed, operation, tensor, operation.ranks.index(rank))
            for operation in mine
            for tensor, source in enumerate(operation.sources)
        }
        results = framework.run(mine, inputs) if mine else []
        for operation, some in zip(mine, results, strict=True):
            try:
                check(seed, operation, rank, [framework.numpy(each) for each in some])
            except AssertionError as fault:
                faults.append(fault)
    if faults:
        print(f"{len(faults)} operations differ")
        raise faults[0]
