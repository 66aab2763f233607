"""The hooks of a reducer in PyTorch: where gradients are stored, when they arrive, when ``backward`` ends.

Autograd's threads call the hooks, with the GIL held."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import torch

from horovod import _core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
from horovod.framework.reducer import Reducer
from horovod.torch.mpi_ops import sparse_allreduce_async

_LINE = 64  # bytes; no two gradients share one
_current_task = torch._C._current_graph_task_id
_SMALL = 16384  # bytes; gradients up to this size are sent with the next larger one, or after backward
_ROWS = 1  # the dimensions that are sparse in the gradient of an embedding


class StoredGradients:
    """The gradients in ``parameter.grad``."""

    def get(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        gradient = parameter.grad
        if gradient is None:
            gradient = parameter.grad = torch.zeros_like(parameter)
        return gradient

    def get_sparse(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        if parameter.grad is None:
            indices = torch.empty((_ROWS, 0), dtype=torch.int64, device=parameter.device)
            values = parameter.new_empty((0, *parameter.shape[_ROWS:]))
            parameter.grad = torch.sparse_coo_tensor(
                indices, values.detach(), parameter.shape, check_invariants=False
            )
        elif parameter.grad.layout is torch.strided:
            parameter.grad = parameter.grad.to_sparse(_ROWS)
        return parameter.grad.detach()

    def is_sparse(self, parameter: torch.nn.Parameter) -> bool:
        return parameter.grad is not None and parameter.grad.layout is torch.sparse_coo

    def is_trained(self, parameter: torch.nn.Parameter) -> bool:
        return parameter.requires_grad

    def dense(self, array: torch.Tensor) -> torch.Tensor:
        strided = array if array.layout is torch.strided else array.to_dense()
        return strided.detach().resolve_conj().resolve_neg().contiguous()

    def copy(self, array: torch.Tensor) -> torch.Tensor:
        return array.detach().clone()

    def start_sparse(
        self, array: torch.Tensor, name: str, op: int, process_set: ProcessSet
    ) -> Callable[[], torch.Tensor]:
        return sparse_allreduce_async(array, name, op, process_set)

    def set(self, parameter: torch.nn.Parameter, reduced: torch.Tensor) -> None:
        gradient = parameter.grad
        if gradient is reduced:
            return
        assert gradient is not None
        if reduced.layout is not torch.strided:
            parameter.grad = reduced
        elif gradient.layout is not torch.strided:
            parameter.grad = reduced.to_sparse(gradient.sparse_dim())
        elif reduced.data_ptr() != gradient.data_ptr():
            gradient.detach().copy_(reduced)


class SharedGradients(StoredGradients):
    """The gradients in ``parameter.grad``; this host's ranks read those that are kept between steps in place.

    A gradient that autograd allocates again in every step is not moved: that would cost the copy which
    reading in place saves.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.fitting = [parameter for parameter in parameters if _can_share(parameter)]
        self.places: dict[torch.nn.Parameter, torch.Tensor] | None = None  # None until `keep`

    def keep(self) -> None:
        """Moves the gradients to shared memory; the caller keeps them and is about to set them to zero."""
        if self.places is None:
            self.places = _shared_places(self.fitting)
        for parameter, place in self.places.items():
            gradient = parameter.grad
            if gradient is None or _layout_of(gradient) != _layout_of(place):
                continue
            if gradient.data_ptr() != place.data_ptr():
                parameter.grad = place.copy_(gradient.detach())


def _shared_places(parameters: list[torch.nn.Parameter]) -> dict[torch.nn.Parameter, torch.Tensor]:
    """Allocates shared memory for their gradients; returns none if there is no shared memory."""
    starts = [0, *accumulate(_round_up(parameter.nbytes) for parameter in parameters)]
    try:
        memory = _core.shared(max(1, starts[-1]))
    except HorovodInternalError:
        return {}
    return {
        parameter: torch.frombuffer(
            memory, dtype=parameter.dtype, count=parameter.numel(), offset=start
        ).view(parameter.shape)
        for parameter, start in zip(parameters, starts, strict=False)
    }


def _layout_of(array: torch.Tensor) -> tuple[Any, ...]:
    return array.layout, array.device, array.dtype, array.shape


def _can_share(parameter: torch.nn.Parameter) -> bool:
    """Returns true if the gradient will be contiguous memory on the CPU, and not empty."""
    dense = parameter.layout is torch.strided and parameter.device.type == "cpu"
    return dense and parameter.requires_grad and parameter.is_contiguous() and parameter.numel() > 0


def _round_up(count: int) -> int:
    return (count + _LINE - 1) // _LINE * _LINE


class StepDeltas(StoredGradients):
    """The changes of the parameters in a step of the optimizer, reduced in place of gradients."""

    def __init__(self) -> None:
        self.before: dict[torch.nn.Parameter, torch.Tensor] = {}

    def remember(self, parameter: torch.nn.Parameter) -> None:
        """Copies a parameter before the step."""
        self.before[parameter] = parameter.detach().clone(memory_format=torch.contiguous_format)

    def get(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        return parameter.detach() - self.before[parameter]

    def set(self, parameter: torch.nn.Parameter, reduced: torch.Tensor) -> None:
        parameter.detach().copy_(self.before.pop(parameter).add_(reduced))


class _End:
    """A callback for the end of ``backward``.

    It is destroyed uncalled if ``backward`` raises; ``__del__`` then counts the gradients that have arrived.
    """

    def __init__(self, hooks: BackwardHooks, task: int) -> None:
        self.hooks, self.task = hooks, task

    def __call__(self) -> None:
        self.hooks.after_backward(self.task)

    def __del__(self) -> None:
        self.hooks.tasks.discard(self.task)
        self.hooks.reducer.ready()


class BackwardHooks:
    """Reports gradients and the end of the outermost ``backward`` to the reducer.

    The optimizer owns it. Parameters outlive optimizers, so it removes its hooks at its end: otherwise both
    optimizers would reduce if a second one is made for the same parameters.
    """

    def __init__(self, reducer: Reducer[Any, torch.Tensor]) -> None:
        self.reducer = reducer
        self.tasks: set[int] = set()  # calls of backward after which after_backward will run
        self.thread = bytearray(8)  # the thread whose gradient arrived last
        self.overlapped = False  # more calls of backward ran at once than a step has passes
        self.installed: list[Any] = []

    def __del__(self) -> None:
        for hook in self.installed:
            hook.remove()

    def watch(self, place: int) -> None:
        parameter = self.reducer.parameters[place]
        if not (parameter.requires_grad and self.reducer.rules.member):
            return
        reference, early = weakref.ref(self), self.reducer.rules.early

        def begin() -> None:
            hooks = reference()
            if hooks is not None and early and _current_task() not in hooks.tasks:
                hooks.await_end()

        def arrive(_: torch.Tensor) -> None:
            collect(_)
            hooks = reference()
            if hooks is not None:
                hooks.reducer.ready()

        collect = _core.collector(self.reducer.arrived, place, begin, self.thread, self.reducer.streams)
        waits = early and not torch.nn.parameter.is_lazy(parameter) and parameter.nbytes <= _SMALL
        hook = parameter.register_post_accumulate_grad_hook(collect if waits else arrive)
        self.installed.append(hook)

    def await_end(self) -> None:
        self.overlapped &= bool(self.tasks)
        task = _current_task()
        self.tasks.add(task)
        torch.autograd.Variable._execution_engine.queue_callback(_End(self, task))

    def after_backward(self, task: int) -> None:
        self.tasks.discard(task)
        outer = torch._C._current_autograd_node()
        if outer is not None:  # this backward ran inside a node of another one: a reentrant checkpoint
            hook = outer.register_hook(lambda *_: self.return_to_outer(hook))
            return
        self.reducer.ready(waits=not self.tasks)
        self.overlapped |= len(self.tasks) >= self.reducer.passes
        if self.overlapped:
            raise AssertionError(
                "threads called backward() at once on parameters of one DistributedOptimizer: ranks can't "
                "agree on which gradients to reduce together; call them one after the other, or pass "
                "backward_passes_per_step=<how many calls a step has> to DistributedOptimizer"
            )
        if self.reducer.due and not self.tasks:  # the last of concurrent calls to end
            self.reducer.finish()

    def return_to_outer(self, hook: Any) -> None:
        hook.remove()
        if _current_task() not in self.tasks:
            self.await_end()
