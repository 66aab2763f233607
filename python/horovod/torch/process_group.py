"""A ProcessGroup of torch.distributed: its collectives run on the engine, what that lacks on Gloo.

Called from the program's thread, from autograd's, and by C++ on any thread, with the GIL held. Ranks are
those of the group unless said otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable
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


class Work(dist.Work):  # type: ignore[misc]
    """A collective under way, which is over when all its handles are."""

    def __init__(
        self, group: Group, handles: list[_core.Handle[Any]], results: Any, limit: float = 0
    ) -> None:
        super().__init__()
        self._group, self._handles, self._results = group, handles, results
        self._limit = limit or group.limit
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
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
            for handle in self._handles:
                handle.wait(limit)
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
        if self._future is None:
            over: torch.futures.Future[Exception | None] = torch.futures.Future()
            self._future = over.then(self._outcome)
            self._group.complete_later(lambda: over.set_result(self._failure(self._limit)))
        return self._future

    def _outcome(self, over: torch.futures.Future[Exception | None]) -> Any:
        """An exception raised in `then` reaches C++, too; one set in a Future is a value there."""
        if error := over.value():
            raise error
        return self._results

    def result(self) -> Any:
        return self._results

    def is_completed(self) -> bool:
        return all(handle.done() for handle in self._handles)

    def exception(self) -> Any:
        return self._failure(0) if self.is_completed() else None

    def is_success(self) -> bool:
        return self.is_completed() and not self.exception()


def _flat(tensors: Tensors) -> torch.Tensor:
    parts = [tensor.detach().reshape(-1) for tensor in tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _fill(outputs: Tensors, counts: list[int] | None = None) -> Callable[[list[_core.Result]], None]:
    """What becomes of a result of the engine: it fills the outputs, one after the other."""

    def finish(results: list[_core.Result]) -> None:
        joined, *received = map(torch.utils.dlpack.from_dlpack, results)
        if counts and received and received[0].tolist() != counts:
            raise ValueError(f"the ranks sent {received[0].tolist()} elements, the outputs expect {counts}")
        for output, part in zip(
            outputs, torch.split(joined, [t.numel() for t in outputs] or 1), strict=False
        ):
            output.detach().copy_(part.view(output.shape))

    return finish


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
        self.limit: float = options.timeout.total_seconds()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._completer: threading.Thread | None = None
        self._barriers = 0

    # -- the group ---------------------------------------------------------------------------------

    group_name = property(lambda self: self._options.group_id)
    group_desc = property(lambda self: "undefined")

    def getGroupName(self) -> str:  # noqa: N802
        return str(self._options.group_id)

    def getBackendName(self) -> str:  # noqa: N802
        return "horovod"

    name = getBackendName

    def shutdown(self) -> None:
        self._calls.put(None)
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

    def _describe(self, operation: _core.Operation, **fields: Any) -> _core.Request:
        return _core.describe(operation, process_set=self._process_set, **fields)

    def _start(self, request: _core.Request, inputs: Tensors, opts: Any, **more: Any) -> _core.Handle[Any]:
        try:
            return _core.submit(request, None, inputs, waits=not getattr(opts, "asyncOp", True), **more)
        except HorovodInternalError as error:
            raise dist.DistBackendError(str(error)) from None

    # -- in place ----------------------------------------------------------------------------------

    def _all_in_place(self, request: _core.Request, tensors: Tensors, opts: Any) -> Work:
        handles = []
        for tensor in map(torch.Tensor.detach, tensors):
            dense = tensor.contiguous()
            finish = None if dense is tensor else functools.partial(tensor.copy_, dense)
            handles.append(
                self._start(request, [dense], opts, finish=finish and (lambda _, copy=finish: copy()))
            )
        return Work(self, handles, tensors)

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        reduction = _REDUCTIONS.get(opts.reduceOp) if opts else Sum
        if reduction is None or tensors[0].layout is not torch.strided:
            return self._gloo.allreduce(tensors, opts)
        return self._all_in_place(self._describe(ALLREDUCE, reduction=reduction), tensors, opts)

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Any:
        root = self._ranks[opts.rootRank if opts else 0]
        return self._all_in_place(self._describe(BROADCAST, root=root), tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        is_root = opts.rootRank == self.rank()
        return self.allreduce(tensors if is_root else [tensor.detach().clone() for tensor in tensors], opts)

    def barrier(self, opts: Any = None) -> Any:
        limit = max(opts.timeout.total_seconds(), 0) if opts else 0
        return Work(self, [self._start(self._describe(BARRIER), [], opts)], [], limit)

    # -- gathered and scattered --------------------------------------------------------------------

    def _check_whole(self, what: str, whole: torch.Tensor, of: str, part: torch.Tensor) -> None:
        if whole.numel() != self.size() * part.numel():
            raise ValueError(
                f"{what} has {whole.numel()} elements, not {self.size()} times the {part.numel()} of {of}, "
                "once for each rank"
            )

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        request = self._describe(ALLGATHER)
        handles = [
            self._start(request, [_flat([tensor])], opts, finish=_fill(output))
            for output, tensor in zip(outputs, inputs, strict=True)
        ]
        return Work(self, handles, outputs)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._check_whole("all_gather_into_tensor: the output", output, "the input", tensor)
        work = self.allgather([[output] for output in outputs], inputs, opts)
        work._results = outputs
        return work

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.all_gather_single_coalesced([output], [tensor], opts)

    def _scatter(self, output: torch.Tensor, inputs: Tensors, opts: Any) -> _core.Handle[Any]:
        reduction = _REDUCTIONS[opts.reduceOp] if opts else Sum
        sizes = [tensor.numel() for tensor in inputs] if len(inputs) > 1 else [output.numel()] * self.size()
        flat = _flat(inputs)
        if reduction in REDUCESCATTER.reductions and len(set(sizes)) == 1:
            request = self._describe(REDUCESCATTER, reduction=reduction)
            return self._start(request, [flat], opts, finish=_fill([output]))
        whole = torch.empty_like(flat)

        def take_own(_: Any) -> None:
            output.detach().copy_(torch.split(whole, sizes)[self.rank()].view(output.shape))

        request = self._describe(ALLREDUCE, reduction=reduction)
        return self._start(request, [flat], opts, outputs=[whole], finish=take_own)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any = None) -> Any:
        handles = [self._scatter(output, each, opts) for output, each in zip(outputs, inputs, strict=True)]
        return Work(self, handles, outputs)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._check_whole("reduce_scatter_tensor: the input", tensor, "the output", output)
        return self.reduce_scatter(outputs, [[tensor] for tensor in inputs], opts)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    # -- from each to each -------------------------------------------------------------------------

    def _exchange(
        self,
        outputs: Tensors,
        flat: torch.Tensor,
        splits: list[int],
        opts: Any,
        counts: list[int] | None = None,
    ) -> Work:
        finish = _fill(outputs, counts)
        return Work(
            self, [self._start(self._describe(ALLTOALL), [flat], opts, splits=splits, finish=finish)], outputs
        )

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        splits, counts = ([tensor.numel() for tensor in tensors] for tensors in (inputs, outputs))
        return self._exchange(outputs, _flat(inputs), splits, opts, counts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        counts: list[int],
        splits: list[int],
        opts: Any = None,
    ) -> Any:
        splits, counts = (
            [rows * each[0].numel() for rows in given]
            if given
            else [each.numel() // self.size()] * self.size()
            for each, given in ((tensor, splits), (output, counts))
        )
        return self._exchange([output], _flat([tensor]), splits, opts, counts)

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        splits = [0] * self.size()
        splits[opts.rootRank] = inputs[0].numel()
        return self._exchange(outputs[0] if outputs else [], _flat(inputs), splits, opts)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        given = inputs[0] if inputs else [outputs[0].new_empty(0)] * self.size()
        return self._exchange(outputs, _flat(given), [tensor.numel() for tensor in given], opts)

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
        limit = timeout.total_seconds() if timeout else self.limit
        if self.rank():
            store.set(str(self.rank()), "")
            store.wait(["end"], timedelta(seconds=2 * limit))
        else:
            store.set("end", self._missing(store, limit, wait_all_ranks))
        text = store.get("end").decode()
        if text:
            raise RuntimeError(text)

    def _missing(self, store: Any, limit: float, wait_all_ranks: bool) -> str:
        missing, deadline = [], time.monotonic() + limit
        for rank in range(1, self.size()):
            try:
                store.wait([str(rank)], timedelta(seconds=max(deadline - time.monotonic(), 0.01)))
            except RuntimeError:
                missing.append(str(rank))
            if missing and not wait_all_ranks:
                break
        text = f"monitored_barrier: rank {', '.join(missing)} of the group did not call it within {limit:g} s"
        return text if missing else ""

    # -- the same by other names, of earlier versions of PyTorch -----------------------------------

    allreduce_coalesced = allreduce
    allgather_coalesced = allgather
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
