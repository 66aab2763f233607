"""DistributedOptimizer: averages gradients over the ranks while backprop still runs.

The user's own optimizer object is instrumented and handed back: its class becomes a subclass of the same
name, so state, schedulers and references to it stay valid. A hook on each parameter starts the reduction of
its gradient as soon as it is there, and ``backward`` returns when all of them are reduced: clipping, gradient
scaling and logging see what ``step`` will use.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, TypeVar

import torch

from horovod.basics import Average, size
from horovod.compression import Compressor, NoneCompressor
from horovod.handles import check_process_set
from horovod.optimizer import Reducer, check_names, make_groups, split_factor
from horovod.torch.operations import collectives

O = TypeVar("O", bound=torch.optim.Optimizer)  # noqa: E741


class _Gradients:
    """Where PyTorch keeps gradients."""

    def take(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.layout is not torch.strided:
            raise ValueError("this version can't reduce sparse gradients; use Embedding(sparse=False)")
        return parameter.grad.detach()

    def dense(self, array: torch.Tensor) -> torch.Tensor:
        return array.contiguous()

    def put(self, parameter: torch.nn.Parameter, reduced: torch.Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None
        if reduced.data_ptr() != gradient.data_ptr():
            gradient.detach().copy_(reduced)

    def is_trained(self, parameter: torch.nn.Parameter) -> bool:
        return parameter.requires_grad


class _BackwardHooks:
    """Tells the reducer of gradients, and of the end of ``backward``."""

    def __init__(self, reducer: Reducer[Any, torch.Tensor]) -> None:
        self.reducer = reducer
        self.task = -1  # the backward call at whose end after_backward will run

    def watch(self, parameter: torch.nn.Parameter) -> None:
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(self.gradient_ready)  # type: ignore[no-untyped-call]

    def gradient_ready(self, parameter: torch.Tensor) -> None:
        self.await_end()
        self.reducer.ready(parameter)

    def await_end(self) -> None:
        task = torch._C._current_graph_task_id()
        if task != self.task:
            self.task = task
            torch.autograd.Variable._execution_engine.queue_callback(self.after_backward)

    def after_backward(self) -> None:
        outer = torch._C._current_autograd_node()
        if outer is not None:  # a backward inside another one's node ended: a reentrant checkpoint
            hook = outer.register_hook(lambda *_: self.return_to_outer(hook))
        elif self.reducer.in_flight:
            self.reducer.finish()

    def return_to_outer(self, hook: Any) -> None:
        hook.remove()
        self.await_end()


class _Distributed(torch.optim.Optimizer):
    """The methods that DistributedOptimizer adds to a user's optimizer."""

    _hvd: Reducer[Any, torch.Tensor]
    _hvd_hooks: _BackwardHooks
    _hvd_skip: bool
    _hvd_by_hand: bool

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, as ``backward`` does on ranks that call it."""
        self._hvd.finish()
        self._hvd.seen.clear()
        self._hvd_by_hand = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it ``step`` does not wait, because ``synchronize`` was called by hand."""
        self._hvd_skip = True
        try:
            yield
        finally:
            self._hvd_skip = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes are summed up before the gradients are reduced."""
        self._hvd.set_passes(passes)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer's own; refused between ``backward`` and ``step``: gradients would be lost."""
        if self._hvd.seen:
            raise AssertionError(
                "zero_grad() was called after backward() but before step() or synchronize(): the gradients "
                "would be lost; call synchronize() first if that is what you want"
            )
        self._hvd.forget()
        self._hvd_by_hand = False
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's own; the new parameters' gradients are reduced, too."""
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        for i, parameter in enumerate(self.param_groups[number]["params"]):
            self._hvd.names[parameter] = _default_name(number, i)
            self._hvd_hooks.watch(parameter)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Read by GradScaler.step, which may then leave the step out: the gradients have served anyway."""
        if not self._hvd.changed:
            self._hvd.seen.clear()
        return bool(self.__dict__.get("_step_supports_amp_scaling", False))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles are plain optimizers of the user's class."""
        return _make_plain, (type(self).__bases__[1],), self.__getstate__()


def _make_plain(kind: type[O]) -> O:
    return kind.__new__(kind)


def _default_name(group: int, index: int) -> str:
    return f"noname.{group}.{index}"


def _before_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Step pre-hook: the gradients are reduced before the optimizer uses them."""
    reducer = optimizer._hvd
    by_hand, optimizer._hvd_by_hand = optimizer._hvd_by_hand, False
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        if not optimizer._hvd_skip:
            if by_hand:
                warnings.warn(
                    "step() was called after synchronize(): use "
                    "`with optimizer.skip_synchronize(): optimizer.step()`, or leave out synchronize()",
                    stacklevel=4,
                )
            reducer.finish()
        reducer.forget()
        return None

    def closure_and_wait() -> Any:
        loss = closure()
        reducer.finish()
        reducer.forget()
        return loss

    return (args[0], closure_and_wait), {}


def _check_groups(groups: Any) -> Any:
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups must be a positive number or lists of parameters, not {groups}")
    elif groups is not None:
        wrong = [type(member) for group in groups for member in group if not isinstance(member, torch.Tensor)]
        if wrong:
            raise ValueError(f"groups must hold parameters, not {wrong[0]}")
    return groups


def DistributedOptimizer(  # noqa: N802
    optimizer: O,
    named_parameters: Any = None,
    compression: type[Compressor] = NoneCompressor,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: Any = None,
) -> O:
    """Makes an optimizer average its gradients over all ranks before every step.

    Args:
        optimizer: any ``torch.optim.Optimizer``; the same object is returned, instrumented.
        named_parameters: ``model.named_parameters()``; names that appear in messages, equal on all ranks.
        compression: ``Compression.fp16`` halves what is sent.
        backward_passes_per_step: gradients of so many passes are summed up before they are reduced.
        op: the reduction; ``Average`` or ``Sum`` as a rule.
        gradient_predivide_factor: splits the division of an average: by this before the sum, the rest after.
        num_groups: old name of ``groups`` as a number.
        groups: how many groups of gradients to reduce as a whole, or lists of the parameters of each.
        sparse_as_dense: accepted for compatibility; sparse gradients are not supported by this version.
        process_set: the global one.

    Raises:
        ValueError: the names or groups do not fit the optimizer's parameters.
    """
    size()  # init must have been called
    check_process_set(process_set)
    if num_groups:
        warnings.warn("num_groups is deprecated: pass groups", DeprecationWarning, stacklevel=2)
    if isinstance(optimizer, _Distributed):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    factors = split_factor(gradient_predivide_factor, op)
    names = {
        parameter: _default_name(i, j)
        for i, group in enumerate(optimizer.param_groups)
        for j, parameter in enumerate(group["params"])
    }
    if named_parameters is not None:
        given = check_names(named_parameters, names)
        names = {parameter: given[parameter] for parameter in names}
    wanted = _check_groups(groups or num_groups or None)
    trained = [parameter for parameter in names if parameter.requires_grad]
    together = make_groups(wanted, trained, lambda parameter: parameter.dtype) if wanted else []
    reducer = Reducer(
        _Gradients(), collectives, names, together, backward_passes_per_step, op, factors, compression
    )
    return _instrument(optimizer, reducer)


def _instrument(optimizer: O, reducer: Reducer[Any, torch.Tensor]) -> O:
    hooks = _BackwardHooks(reducer)
    for parameter in reducer.names:
        hooks.watch(parameter)
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__})
    optimizer.__dict__.update(_hvd=reducer, _hvd_hooks=hooks, _hvd_skip=False, _hvd_by_hand=False)
    optimizer.register_step_pre_hook(_before_step)
    return optimizer
