"""A ProcessGroup of torch.distributed: collectives run on the engine; Gloo runs operations that it lacks.

The program's thread, autograd's threads and C++ on any thread call it with the GIL held. Ranks are those of
the group unless the text says otherwise.
"""

from __future__ import annotations

import functools
import itertools
import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from horovod import _core
from horovod.common import addresses, basics
from horovod.common.basics import Average, Max, Min, Product, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.framework.requests import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, REDUCESCATTER
from horovod.torch import memory
from horovod.torch.memory import Copies, Tensors
from horovod.torch.work import GlooHandle, Received, Work, leave_methods_untraced, leave_untraced, naming

dist: Any = torch.distributed  # its type annotations lack newer members
# The engine has no bit operations.
_REDUCTIONS = [
    (dist.ReduceOp.SUM, Sum),
    (dist.ReduceOp.AVG, Average),
    (dist.ReduceOp.MAX, Max),
    (dist.ReduceOp.MIN, Min),
    (dist.ReduceOp.PRODUCT, Product),
]
DEVICES = ["cpu", "cuda"] if torch.version.cuda else ["cpu"]
_MOST_HELD = 64  # operations kept without a caller that has waited for them
_HOOK_CALLS = 1024  # calls of hooks with names of their own; then the names repeat


def _reduction_of(opts: Any) -> dict[str, Any]:
    """Returns the reduction as fields of a request; empty if the engine does not have it."""
    op = opts.reduceOp if opts else dist.ReduceOp.SUM
    for kind, reduction in _REDUCTIONS:  # a comparison takes 0.1 us, looking one up in a dict 0.7 us
        if op == kind:
            return {"reduction": reduction}
    if op == dist.ReduceOp.PREMUL_SUM:
        return {"reduction": Sum, "prescale": float(op.__getstate__()[1])}
    return {}


def _call_all(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while call := calls.get():
        call()


class Group(dist.ProcessGroup):  # type: ignore[misc]
    """A process set.

    Args:
        options: the group's options in torch.distributed: name, store, this rank, timeout.
        ranks: the members' ranks in the job, ordered by their rank in the group.
        process_set: the id of the process set.
        leave: a function that is called when the group is shut down.
    """

    def __init__(self, options: Any, ranks: list[int], process_set: int, leave: Callable[[], None]) -> None:
        super().__init__(options.group_rank, len(ranks))
        self._options, self._store, self._leave = options, options.store, leave
        self._rank, self._size = options.group_rank, len(ranks)  # rank() and size() take 0.6 us each
        self._ranks, self._process_set = ranks, process_set
        # The engine orders the members by their rank in the job. None: the group has the same order.
        self._order = None if ranks == sorted(ranks) else [ranks.index(rank) for rank in sorted(ranks)]
        self._limit: float = options.timeout.total_seconds()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._completer: threading.Thread | None = None
        self._barriers = 0
        self._hook_calls = itertools.cycle(range(_HOOK_CALLS))
        self.unwaited: OrderedDict[Work, None] = OrderedDict()
        if len(ranks) > 2:  # Gloo's ranks wait for each other, even for ranks that send and receive nothing
            _ = self._gloo

    # -- the group ---------------------------------------------------------------------------------

    group_name = property(lambda self: self._options.group_id)
    group_desc = property(lambda self: "undefined")
    _device_types = property(lambda self: [torch.device(each) for each in DEVICES])

    def getGroupName(self) -> str:  # noqa: N802
        return str(self._options.group_id)

    def getBackendName(self) -> str:  # noqa: N802
        return "horovod"

    name = getBackendName

    def shutdown(self) -> None:
        self._calls.put(None)
        self.unwaited.clear()
        self._leave()

    abort = shutdown

    def complete_later(self, complete: Callable[[], None]) -> None:
        """Calls functions one after the other on a thread of its own, in the same order on all ranks.

        Functions chained to a future may wait for operations that they start, so a call on that thread runs
        at once.
        """
        if threading.current_thread() is self._completer:
            complete()
            return
        if self._completer is None:
            self._completer = threading.Thread(target=_call_all, args=(self._calls,), daemon=True)
            self._completer.start()
        self._calls.put(complete)

    def naming(self, hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Wraps a communication hook: operations of the hook and of functions chained to its futures get
        names.

        These functions run on this thread or on the completing one when a future is done, so their order
        among the operations of other buckets is random. Within one call of the hook they run in order.
        """

        @functools.wraps(hook)
        def named(state: Any, bucket: Any) -> Any:
            pattern = f"hook.{next(self._hook_calls)}.{{}}"
            with naming.by(map(pattern.format, itertools.count())):
                return hook(state, bucket)

        leave_untraced(named)
        return named

    @functools.cached_property
    def _gloo(self) -> Any:
        """A group of Gloo; if PyTorch supports it, pairs of ranks connect when they first communicate."""
        store, kind = dist.PrefixStore("gloo", self._store), dist.ProcessGroupGloo
        place = {}
        if not os.environ.get("GLOO_SOCKET_IFNAME"):  # by default Gloo resolves the host's name
            one_host = basics.local_size() == basics.size()
            place["hostname"] = addresses.LOOPBACK if one_host else addresses.of_this_host()[0]
        try:
            make = kind.create_device if place else kind.create_default_device
            device = make(**place, lazy_init=True)
        except TypeError:
            return kind(store, self._rank, self._size, self._options.timeout)
        options = kind._Options()
        options._devices, options._timeout = [device], self._options.timeout
        return kind(store, self._rank, self._size, options)

    # -- collectives: each is one request, of one tensor or of a group of them ------------------------

    def _submit(
        self,
        operation: _core.Operation,
        sent: Tensors,
        rooms: Tensors | None,
        copies: Copies,
        results: Any,
        opts: Any,
        *,
        splits: list[int] | None = None,
        counts: list[int] | None = None,
        **fields: Any,
    ) -> Work:
        """Submits one request on dense memory, in place if `rooms` is None; then `copies` are carried out.

        `splits` and `counts` are the elements that an alltoall sends to and expects from each rank.
        """

        def finish(received: list[_core.Result]) -> None:
            if counts and (lengths := torch.utils.dlpack.from_dlpack(received[0]).tolist()) != counts:
                raise ValueError(f"the ranks sent {lengths} elements, the outputs expect {counts}")
            memory.fill(copies)

        request = _core.describe(operation, process_set=self._process_set, grouped=len(sent) > 1, **fields)
        waits = not getattr(opts, "asyncOp", True)
        outcome = list if counts else None
        name = next(naming.names) if naming.names else None
        try:
            handle = _core.submit(
                request, name, sent, outputs=rooms, splits=splits, finish=outcome, waits=waits
            )
        except HorovodInternalError as error:
            raise dist.DistBackendError(str(error)) from error
        ends = finish if counts or copies else None
        stream = memory.stream_of(sent) if ends else None
        return self._hold(Work(self, handle, ends, results, self._time(opts), stream))

    def _time(self, opts: Any) -> float:
        limit: float = opts.timeout.total_seconds() if opts else 0
        return limit if limit > 0 else self._limit

    def _hold(self, work: Work) -> Work:
        """Keeps an operation alive for older versions of PyTorch, whose C++ does not and waits forever."""
        self.unwaited[work] = None
        if len(self.unwaited) > _MOST_HELD:
            self.unwaited.popitem(last=False)
        return work

    def _move(
        self,
        operation: _core.Operation,
        inputs: list[Tensors],
        outputs: list[Tensors],
        results: Any,
        opts: Any,
        **fields: Any,
    ) -> Work:
        """Submits a request from inputs to outputs; each is a list of tensors that are joined in order."""
        sent = [memory.vector(operation.name, each) for each in inputs]
        rooms = [memory.room(operation.name, each) for each in outputs]
        pairs = zip(outputs, rooms, strict=True)
        copies = [pair for pair in pairs if pair[0][0].data_ptr() != pair[1].data_ptr()]
        sent = memory.copied_if_shared(sent, rooms, self._rank, self._size)
        return self._submit(operation, sent, rooms, copies, results, opts, **fields)

    def _in_place(self, what: str, tensors: Tensors, reads: bool = False) -> tuple[Tensors, Copies]:
        """Returns memory for an operation in place, and the copies after it: none if this rank only reads."""
        if memory.is_dense(tensors):
            return [tensors[0].detach()], []
        for tensor in tensors:
            memory.check(what, [tensor])
        if not reads:
            memory.check_written(what, tensors)
        dense = [memory.joined([tensor]) for tensor in tensors]
        if len(dense) > 1 and memory.share_bytes(dense):
            dense = [tensor.clone() for tensor in dense]
        if reads:
            return dense, []
        pairs = zip(tensors, dense, strict=True)
        return dense, [([own], each) for own, each in pairs if own.data_ptr() != each.data_ptr()]

    def _order_of(self, by_rank: Tensors) -> Tensors:
        """Returns the tensors of all ranks, or one tensor of equal parts, in the engine's order of ranks."""
        if self._order is None:
            return by_rank
        if len(by_rank) == 1:
            by_rank = memory.pieces("a group of sort_ranks=False", by_rank[0], self._size)
        return [by_rank[rank] for rank in self._order]

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        if tensors[0].layout is not torch.strided:
            return self._gloo.allreduce(tensors, opts)
        return self._reduce(*self._in_place("all_reduce", tensors), tensors, opts)

    def _reduce(self, dense: Tensors, copies: Copies, results: Any, opts: Any) -> Work:
        """Reduces dense memory in place, with the options of any reducing operation."""
        if reduction := _reduction_of(opts):
            return self._submit(ALLREDUCE, dense, None, copies, results, opts, **reduction)
        options = dist.AllreduceOptions() if len(dense) == 1 else dist.AllreduceCoalescedOptions()
        options.reduceOp, options.timeout = opts.reduceOp, timedelta(seconds=self._time(opts))
        reduce = self._gloo.allreduce if len(dense) == 1 else self._gloo.allreduce_coalesced
        handle, stream = GlooHandle(reduce(dense, options)), memory.stream_of(dense)
        return self._hold(
            Work(self, handle, lambda _: memory.fill(copies), results, self._time(opts), stream)
        )

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Any:
        root = opts.rootRank if opts else 0
        dense, copies = self._in_place("broadcast", tensors, reads=root == self._rank)
        return self._submit(BROADCAST, dense, None, copies, tensors, opts, root=self._ranks[root])

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        reads = opts.rootRank != self._rank
        dense, copies = self._in_place("reduce", tensors, reads)
        return self._reduce([each.clone() for each in dense] if reads else dense, copies, tensors, opts)

    def barrier(self, opts: Any = None) -> Any:
        return self._submit(BARRIER, [], None, [], [], opts)

    def _check_parts(self, what: str, whole: Tensors, parts: Tensors) -> None:
        for one, part in zip(whole, parts, strict=True):
            if one.numel() != self._size * part.numel():
                raise ValueError(
                    f"{what} has {one.numel()} elements, not {self._size} times {part.numel()}, which are "
                    "one rank's"
                )

    def _check_list(self, what: str, by_rank: Tensors, own: torch.Tensor) -> None:
        lengths = [tensor.numel() for tensor in by_rank]
        if len(lengths) != self._size or lengths[self._rank] != own.numel():
            raise ValueError(
                f"{what} of {self._size} ranks: the list has tensors of {lengths} elements, the tensor of "
                f"this rank, which is {self._rank}, has {own.numel()}"
            )

    def _gather_lists(self, outputs: list[Tensors], inputs: Tensors, results: Any, opts: Any) -> Work:
        for each, own in zip(outputs, inputs, strict=True):
            self._check_list("all_gather", each, own)
        ordered = [self._order_of(each) for each in outputs]
        return self._move(ALLGATHER, [[t] for t in inputs], ordered, results, opts)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        return self._gather_lists(outputs, inputs, outputs, opts)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """Gathers several tensors; `outputs` has a list for each rank with an item for each tensor."""
        by_tensor = [list(each) for each in zip(*outputs, strict=True)]
        return self._gather_lists(by_tensor, inputs, outputs, opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        self._check_parts("all_gather_into_tensor: the output", outputs, inputs)
        ordered = [self._order_of([output]) for output in outputs]
        return self._move(ALLGATHER, [[t] for t in inputs], ordered, outputs, opts)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.all_gather_single_coalesced([output], [tensor], opts)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> Any:
        for output, each in zip(outputs, inputs, strict=True):
            self._check_list("reduce_scatter", each, output)
        lengths = [[tensor.numel() for tensor in each] for each in inputs]
        return self._reduce_parts(outputs, inputs, lengths, opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        self._check_parts("reduce_scatter_tensor: the input", inputs, outputs)
        lengths = [[output.numel()] * self._size for output in outputs]
        return self._reduce_parts(outputs, [[tensor] for tensor in inputs], lengths, opts)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    def _reduce_parts(
        self, outputs: Tensors, inputs: list[Tensors], lengths: list[list[int]], opts: Any
    ) -> Work:
        """Reduces inputs with a part of the given length for each rank; uneven inputs are reduced whole."""
        reduction, even = _reduction_of(opts), all(len(set(each)) == 1 for each in lengths)
        if reduction.get("reduction") in REDUCESCATTER.reductions and even:
            ordered = [self._order_of(each) for each in inputs]
            own = [[output] for output in outputs]
            return self._move(REDUCESCATTER, ordered, own, outputs, opts, **reduction)
        for output, each in zip(outputs, inputs, strict=True):
            memory.check("reduce_scatter", [*each, output])
            memory.check_written("reduce_scatter", [output])
        wholes = [memory.joined(each).reshape(-1).clone() for each in inputs]
        parts = [torch.split(whole, each)[self._rank] for whole, each in zip(wholes, lengths, strict=True)]
        copies = [([output], part) for output, part in zip(outputs, parts, strict=True)]
        return self._reduce(wholes, copies, outputs, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        for what, each in (("inputs", inputs), ("outputs", outputs)):
            if len(each) != self._size:
                raise ValueError(f"all_to_all: {len(each)} {what} for {self._size} ranks")
        sent, received = self._order_of(inputs), self._order_of(outputs)
        splits, counts = ([tensor.numel() for tensor in each] for each in (sent, received))
        sent, received = ([t for t in each if t.numel()] or each[:1] for each in (sent, received))
        return self._move(ALLTOALL, [sent], [received], outputs, opts, splits=splits, counts=counts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        counts: list[int],
        splits: list[int],
        opts: Any = None,
    ) -> Any:
        def lengths(what: str, whole: torch.Tensor, rows: list[int]) -> list[int]:
            rows = rows or [len(whole) // self._size] * self._size
            if sum(rows) != len(whole):
                raise ValueError(
                    f"all_to_all_single: the {what} has {len(whole)} rows, its parts have {rows}"
                )
            return rows

        splits, counts = lengths("input", tensor, splits), lengths("output", output, counts)
        if self._order is not None:
            return self.alltoall([*torch.split(output, counts)], [*torch.split(tensor, splits)], opts)
        splits, counts = (
            [n * whole.shape[1:].numel() for n in rows]
            for whole, rows in ((tensor, splits), (output, counts))
        )
        return self._move(ALLTOALL, [[tensor]], [[output]], [output], opts, splits=splits, counts=counts)

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        nothing = inputs[0].new_empty(0)
        sent = [inputs[0] if rank == opts.rootRank else nothing for rank in range(self._size)]
        return self.alltoall(outputs[0] if outputs else [nothing] * self._size, sent, opts)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        nothing = outputs[0].new_empty(0)
        received = [outputs[0] if rank == opts.rootRank else nothing for rank in range(self._size)]
        return self.alltoall(received, inputs[0] if inputs else [nothing] * self._size, opts)

    # -- between two ranks, and through the store --------------------------------------------------

    def send(self, tensors: Tensors, to: int, tag: int) -> Any:
        dense, _ = self._in_place("send", tensors, reads=True)
        return self._gloo.send(memory.padded([each.cpu() for each in dense]), to, tag)

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        dense, copies = self._received_into(tensors)
        return self._received(self._gloo.recv(memory.padded(dense), source, tag), copies)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        dense, copies = self._received_into(tensors)
        return self._received(self._gloo.recv_anysource(memory.padded(dense), tag), copies)

    def _received_into(self, tensors: Tensors) -> tuple[Tensors, Copies]:
        """Returns memory of the host to receive into, since Gloo receives nowhere else, and the copies."""
        dense, copies = self._in_place("recv", tensors)
        rooms, moves = memory.on_host(dense)
        return rooms, moves + copies

    def _received(self, work: Any, copies: Copies) -> Any:
        return Received(work, lambda: memory.fill(copies)) if copies else work

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Waits for all ranks; the error names the first missing rank, or with the option all of them."""
        self._barriers += 1
        store = dist.PrefixStore(f"monitored_barrier/{self._barriers}", self._store)
        limit = timeout.total_seconds() if timeout else self._limit
        deadline = time.monotonic() + limit

        def is_missing(rank: int) -> bool:
            try:
                store.wait([str(rank)], timedelta(seconds=max(deadline - time.monotonic(), 0.01)))
            except RuntimeError:
                return True
            return False

        if self._rank:
            store.set(str(self._rank), "")
            store.wait(["missing"], timedelta(seconds=2 * limit))
        else:
            missing = (str(rank) for rank in range(1, self._size) if is_missing(rank))
            store.set("missing", ", ".join(missing) if wait_all_ranks else next(missing, ""))
        if ranks := store.get("missing").decode():
            raise RuntimeError(
                f"monitored_barrier: rank {ranks} of the group did not call it within {limit:g} s"
            )

    # -- names in earlier versions of PyTorch ------------------------------------------------------

    allreduce_coalesced = allreduce
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


leave_methods_untraced(Group, Work, Received)
