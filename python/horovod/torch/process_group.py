"""A ProcessGroup of torch.distributed: its collectives run on the engine, what that lacks on Gloo.

Called from the program's thread, from autograd's, and by C++ on any thread, with the GIL held. Ranks are
those of the group unless said otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from horovod import _core
from horovod.common.basics import Average, Max, Min, Product, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.requests import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, REDUCESCATTER

Tensors = list[torch.Tensor]

dist: Any = torch.distributed  # whose types lag behind
# What the engine lacks, bit operations and sums with a factor, is not here.
_REDUCTIONS = {
    dist.ReduceOp(getattr(dist.ReduceOp, name)): reduction
    for name, reduction in {"SUM": Sum, "AVG": Average, "MIN": Min, "MAX": Max, "PRODUCT": Product}.items()
}
_MOST_HELD = 64  # operations that nobody waits for
_HOOK_CALLS = 1024  # that have names of their own


class _Naming(threading.local):
    """The names of what this thread starts for a communication hook."""

    names: Iterator[str] | None = None

    @contextlib.contextmanager
    def by(self, names: Iterator[str] | None) -> Iterator[None]:
        before, self.names = self.names, names
        try:
            yield
        finally:
            self.names = before


_naming = _Naming()


class Work(dist.Work):  # type: ignore[misc]
    """A collective under way; `limit` is its timeout in seconds."""

    def __init__(self, group: Group, handle: _core.Handle[Any], results: Any, limit: float) -> None:
        super().__init__()
        self._group, self._handle, self._results, self._limit = group, handle, results, limit
        self._names = _naming.names
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._group.unwaited.pop(self, None)
        if self._future is not None:
            with contextlib.suppress(RuntimeError):  # its type is lost in a Future
                self._future.wait()
        if error := self._failure(timeout.total_seconds() if timeout else self._limit):
            raise error
        return True

    synchronize = wait

    def _failure(self, limit: float) -> Any:
        """Waits, but not for the future, so many seconds."""
        try:
            self._handle.wait(limit)
        except TimeoutError as error:
            return dist.DistBackendError(
                f"rank {self._group.rank()} of the group: {error}, which is the timeout: another rank has "
                "not called it, or is slow; init_process_group, new_group and wait() take a longer one"
            )
        except HorovodInternalError as error:
            return dist.DistBackendError(str(error))
        except Exception as error:
            return error
        return None

    def get_future(self) -> torch.futures.Future[Any]:
        self._group.unwaited.pop(self, None)
        if self._future is None:
            over: torch.futures.Future[Exception | None] = torch.futures.Future()
            self._future = over.then(self._outcome)

            def complete() -> None:
                with _naming.by(self._names):
                    over.set_result(self._failure(self._limit))

            self._group.complete_later(complete)
        return self._future

    def _outcome(self, over: torch.futures.Future[Exception | None]) -> Any:
        """An exception raised in `then` reaches C++, too; one set in a Future is a value there."""
        if error := over.value():
            raise error
        return self._results

    def result(self) -> Any:
        return self._results

    def is_completed(self) -> bool:
        return self._handle.done()

    def exception(self) -> Any:
        return self._failure(0) if self.is_completed() else None

    def is_success(self) -> bool:
        return self.is_completed() and not self.exception()


def _is_dense(tensors: Tensors) -> bool:
    return len(tensors) == 1 and tensors[0].is_contiguous()


def _joined(tensors: Tensors) -> torch.Tensor:
    """What the engine reads: one dense tensor as it is, else a vector of all elements."""
    return tensors[0].detach() if _is_dense(tensors) else torch.cat([t.detach().reshape(-1) for t in tensors])


def _room(tensors: Tensors) -> torch.Tensor:
    """A vector that the engine writes: the tensors' own memory if they are one dense tensor."""
    if _is_dense(tensors):
        return tensors[0].detach().view(-1)
    return tensors[0].new_empty(sum(map(torch.Tensor.numel, tensors)))


def _fill(tensors: Tensors, joined: torch.Tensor) -> None:
    parts = torch.split(joined.view(-1), [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.detach().copy_(part.view(tensor.shape))


def _call_all(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while call := calls.get():
        call()


class Group(dist.ProcessGroup):  # type: ignore[misc]
    """A process set.

    Args:
        options: what torch.distributed says of it: name, store, this rank, timeout.
        ranks: of the job, ascending.
        process_set: its id.
        leave: called at the end.
    """

    def __init__(self, options: Any, ranks: list[int], process_set: int, leave: Callable[[], None]) -> None:
        super().__init__(options.group_rank, len(ranks))
        self._options, self._store, self._leave = options, options.store, leave
        self._ranks, self._process_set = ranks, process_set
        self._limit: float = options.timeout.total_seconds()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._completer: threading.Thread | None = None
        self._barriers = 0
        self._hook_calls = itertools.cycle(range(_HOOK_CALLS))
        self.unwaited: OrderedDict[Work, None] = OrderedDict()

    # -- the group ---------------------------------------------------------------------------------

    group_name = property(lambda self: self._options.group_id)
    group_desc = property(lambda self: "undefined")
    _device_types = property(lambda self: [torch.device("cpu")])

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
        """On a thread of its own, one after the other, on all ranks in the same order.

        Functions chained to a future may wait for operations that they start: these run at once, there.
        """
        if threading.current_thread() is self._completer:
            complete()
            return
        if self._completer is None:
            self._completer = threading.Thread(target=_call_all, args=(self._calls,), daemon=True)
            self._completer.start()
        self._calls.put(complete)

    def naming(self, hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """The communication hook, with names for what it and the functions chained to its futures start.

        These run on this thread or on the other, whenever a future is done, so their order among the
        operations of other buckets is chance. Within one call of the hook each follows on the one before.
        """

        @functools.wraps(hook)
        def named(state: Any, bucket: Any) -> Any:
            pattern = f"hook.{next(self._hook_calls)}.{{}}"
            with _naming.by(map(pattern.format, itertools.count())):
                return hook(state, bucket)

        _leave_untraced(named)
        return named

    @functools.cached_property
    def _gloo(self) -> Any:
        """Its ranks connect when they first need each other, not all at once, where PyTorch can do that."""
        store, kind = dist.PrefixStore("gloo", self._store), dist.ProcessGroupGloo
        try:
            device = kind.create_default_device(lazy_init=True)
        except TypeError:
            return kind(store, self.rank(), self.size(), self._options.timeout)
        options = kind._Options()
        options._devices, options._timeout = [device], self._options.timeout
        return kind(store, self.rank(), self.size(), options)

    # -- collectives: each is one request, of one tensor or of a group of them ------------------------

    def _start(
        self,
        operation: _core.Operation,
        inputs: list[Tensors],
        outputs: list[Tensors] | None,
        results: Any,
        opts: Any,
        splits: list[int] | None = None,
        counts: list[int] | None = None,
        **fields: Any,
    ) -> Work:
        """Each input, and each output, is a list of tensors, one after the other; outputs None: in place.

        `splits` are of an alltoall, in elements, `counts` what its output expects of each rank.
        """
        sent = [_joined(each) for each in inputs]
        rooms = None if outputs is None else [_room(each) for each in outputs]
        if rooms:
            sent = [each.view(-1) for each in sent]
        written = zip(outputs or inputs, rooms or sent, strict=True)
        copied = [(tensors, joined) for tensors, joined in written if not _is_dense(tensors)]

        def finish(received: list[_core.Result]) -> None:
            if counts and (lengths := torch.utils.dlpack.from_dlpack(received[0]).tolist()) != counts:
                raise ValueError(f"the ranks sent {lengths} elements, the outputs expect {counts}")
            for tensors, joined in copied:
                _fill(tensors, joined)

        grouped = len(inputs) > 1
        request = _core.describe(operation, process_set=self._process_set, grouped=grouped, **fields)
        waits = not getattr(opts, "asyncOp", True)
        after = finish if counts or copied else None
        name = next(_naming.names) if _naming.names else None
        try:
            handle = _core.submit(
                request, name, sent, outputs=rooms, splits=splits, finish=after, waits=waits
            )
        except HorovodInternalError as error:
            raise dist.DistBackendError(str(error)) from None
        limit = opts.timeout.total_seconds() if opts else 0
        return self._hold(Work(self, handle, results, limit if limit > 0 else self._limit))

    def _hold(self, work: Work) -> Work:
        """For earlier versions of PyTorch, whose C++ keeps no Python half and then waits for ever."""
        self.unwaited[work] = None
        if len(self.unwaited) > _MOST_HELD:
            self.unwaited.popitem(last=False)
        return work

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        reduction = _REDUCTIONS.get(opts.reduceOp) if opts else Sum
        if reduction is None or tensors[0].layout is not torch.strided:
            return self._gloo.allreduce(tensors, opts)
        return self._start(ALLREDUCE, [[t] for t in tensors], None, tensors, opts, reduction=reduction)

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Any:
        root = self._ranks[opts.rootRank if opts else 0]
        return self._start(BROADCAST, [[t] for t in tensors], None, tensors, opts, root=root)

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        is_root = opts.rootRank == self.rank()
        return self.allreduce(tensors if is_root else [tensor.detach().clone() for tensor in tensors], opts)

    def barrier(self, opts: Any = None) -> Any:
        return self._start(BARRIER, [], None, [], opts)

    def _check_parts(self, what: str, whole: Tensors, parts: Tensors) -> None:
        for one, part in zip(whole, parts, strict=True):
            if one.numel() != self.size() * part.numel():
                raise ValueError(
                    f"{what} has {one.numel()} elements, not {self.size()} times {part.numel()}, which are "
                    "one rank's"
                )

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        return self._start(ALLGATHER, [[t] for t in inputs], outputs, outputs, opts)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """The outer list of the outputs has the ranks, the inner ones the tensors."""
        by_tensor = [list(each) for each in zip(*outputs, strict=True)]
        return self._start(ALLGATHER, [[t] for t in inputs], by_tensor, outputs, opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        self._check_parts("all_gather_into_tensor: the output", outputs, inputs)
        return self._start(ALLGATHER, [[t] for t in inputs], [[o] for o in outputs], outputs, opts)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.all_gather_single_coalesced([output], [tensor], opts)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> Any:
        reduction = _REDUCTIONS.get(opts.reduceOp) if opts else Sum
        if reduction is None:
            raise ValueError(f"reduce_scatter: {opts.reduceOp} is for all_reduce only")
        lengths = [
            [tensor.numel() for tensor in each] if len(each) > 1 else [output.numel()] * self.size()
            for output, each in zip(outputs, inputs, strict=True)
        ]
        if reduction in REDUCESCATTER.reductions and all(len(set(each)) == 1 for each in lengths):
            own = [[output] for output in outputs]
            return self._start(REDUCESCATTER, inputs, own, outputs, opts, reduction=reduction)
        whole = [
            [output if i == self.rank() else output.new_empty(n) for i, n in enumerate(each)]
            for output, each in zip(outputs, lengths, strict=True)
        ]
        return self._start(ALLREDUCE, inputs, whole, outputs, opts, reduction=reduction)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        self._check_parts("reduce_scatter_tensor: the input", inputs, outputs)
        return self.reduce_scatter(outputs, [[tensor] for tensor in inputs], opts)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        splits, counts = ([tensor.numel() for tensor in each] for each in (inputs, outputs))
        sent, received = ([t for t in each if t.numel()] or each[:1] for each in (inputs, outputs))
        return self._start(ALLTOALL, [sent], [received], outputs, opts, splits, counts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        counts: list[int],
        splits: list[int],
        opts: Any = None,
    ) -> Any:
        def lengths(what: str, whole: torch.Tensor, rows: list[int]) -> list[int]:
            rows = rows or [len(whole) // self.size()] * self.size()
            if sum(rows) != len(whole):
                raise ValueError(
                    f"all_to_all_single: the {what} has {len(whole)} rows, its parts have {rows}"
                )
            return [n * whole.shape[1:].numel() for n in rows]

        splits, counts = lengths("input", tensor, splits), lengths("output", output, counts)
        return self._start(ALLTOALL, [[tensor]], [[output]], [output], opts, splits, counts)

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        nothing = inputs[0].new_empty(0)
        sent = [inputs[0] if rank == opts.rootRank else nothing for rank in range(self.size())]
        return self.alltoall(outputs[0] if outputs else [nothing] * self.size(), sent, opts)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        nothing = outputs[0].new_empty(0)
        received = [outputs[0] if rank == opts.rootRank else nothing for rank in range(self.size())]
        return self.alltoall(received, inputs[0] if inputs else [nothing] * self.size(), opts)

    # -- between two, and by the store -------------------------------------------------------------

    def send(self, tensors: Tensors, to: int, tag: int) -> Any:
        return self._gloo.send(tensors, to, tag)

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        return self._gloo.recv(tensors, source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        return self._gloo.recv_anysource(tensors, tag)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names the first rank that is missing; ``wait_all_ranks``: every one."""
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

        if self.rank():
            store.set(str(self.rank()), "")
            store.wait(["missing"], timedelta(seconds=2 * limit))
        else:
            missing = (str(rank) for rank in range(1, self.size()) if is_missing(rank))
            store.set("missing", ", ".join(missing) if wait_all_ranks else next(missing, ""))
        if ranks := store.get("missing").decode():
            raise RuntimeError(
                f"monitored_barrier: rank {ranks} of the group did not call it within {limit:g} s"
            )

    # -- the same by other names, of earlier versions of PyTorch -----------------------------------

    allreduce_coalesced = allreduce
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _leave_untraced(function: Any) -> None:
    """As torch.compiler.disable, which takes a second to import, and time in each call."""
    frames: Any = torch._C._dynamo.eval_frame
    function._torchdynamo_disable = True
    if hasattr(frames, "set_code_exec_strategy"):
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        frames.set_code_exec_strategy(function.__code__, strategy)
    elif hasattr(frames, "skip_code"):
        frames.skip_code(function.__code__)


for _method in (*vars(Group).values(), *vars(Work).values()):
    if hasattr(_method, "__code__"):
        _leave_untraced(_method)
