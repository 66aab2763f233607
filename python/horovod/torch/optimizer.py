"""DistributedOptimizer: averages gradients over the ranks while backprop still runs.

The user's own optimizer object is instrumented and handed back: its class becomes a subclass of the same
name, a hook on each parameter starts the reduction of its gradient as soon as it is there, and a hook before
``step`` waits for all of them. State, schedulers and references to the object stay valid.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from horovod.basics import Average
from horovod.compression import Compressor, NoneCompressor
from horovod.handles import Handle, check_process_set
from horovod.torch.operations import allreduce_async_, grouped_allreduce_async_

O = TypeVar("O", bound=torch.optim.Optimizer)  # noqa: E741
Group = tuple[torch.nn.Parameter, ...]


def _name_parameters(
    optimizer: torch.optim.Optimizer, named_parameters: Any
) -> dict[torch.nn.Parameter, str]:
    """A name for each parameter; ValueError when the user's names are incomplete or ambiguous."""
    if named_parameters is None:
        return {
            parameter: f"noname.{i}.{j}"
            for i, group in enumerate(optimizer.param_groups)
            for j, parameter in enumerate(group["params"])
        }
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError("named_parameters must be tuples (name, parameter), as of model.named_parameters()")
    repeated = sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    if repeated:
        raise ValueError(f"named_parameters must have unique names; repeated: {', '.join(repeated)}")
    names = {parameter: name for name, parameter in pairs}
    unnamed = [id(p) for group in optimizer.param_groups for p in group["params"] if p not in names]
    if unnamed:
        raise ValueError(f"named_parameters lacks parameters of the optimizer; ids of those: {unnamed}")
    return names


def _group_parameters(
    parameters: Sequence[torch.nn.Parameter], groups: Any
) -> dict[torch.nn.Parameter, Group]:
    """Which parameters are reduced together: a number of nearly equal slices, or explicit lists."""
    if isinstance(groups, int):
        length, longer = divmod(len(parameters), max(1, min(groups, len(parameters))))
        slices: list[Group] = []
        start = 0
        while start < len(parameters):
            end = start + length + (1 if len(slices) < longer else 0)
            slices.append(tuple(parameters[start:end]))
            start = end
    else:
        slices = [tuple(group) for group in groups]
    trained = set(parameters)
    group_of: dict[torch.nn.Parameter, Group] = {}
    for group in slices:
        if wrong := [type(member) for member in group if not isinstance(member, torch.Tensor)]:
            raise ValueError(f"groups must hold parameters, not {wrong[0]}")
        members = tuple(member for member in group if member in trained)
        if len(set(members)) < len(members) or not group_of.keys().isdisjoint(members):
            raise ValueError("groups must not name a parameter twice")
        group_of.update(dict.fromkeys(members, members))
    return group_of


class _Reducer:
    """The gradients of one optimizer on their way."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: dict[torch.nn.Parameter, str],
        compression: type[Compressor],
        backward_passes_per_step: int,
        op: int,
        factors: tuple[float, float],
        groups: Any,
    ) -> None:
        self.names = names
        self.compression = compression
        self.passes = backward_passes_per_step
        self.op = op
        self.factors = factors
        self.parameters = [p for g in optimizer.param_groups for p in g["params"] if p.requires_grad]
        self.group_of = _group_parameters(self.parameters, groups) if groups else {}
        self.seen: dict[torch.nn.Parameter, int] = {}  # passes since the last step
        self.finishers: dict[torch.nn.Parameter, Callable[[], None] | None] = {}  # None: with its group
        self.waiting: set[torch.nn.Parameter] = set()  # ready, but their group is not
        self.synchronized = False
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self.gradient_ready)

    def gradient_ready(self, parameter: torch.nn.Parameter) -> None:
        """Hook: one more pass has added to this gradient."""
        seen = self.seen.get(parameter, 0) + 1
        if seen > self.passes:
            raise AssertionError(
                f"the gradient of '{self.names[parameter]}' was computed {seen} times since the last step(), "
                f"but backward_passes_per_step is {self.passes}; call step() in between, or pass "
                f"backward_passes_per_step={seen} to DistributedOptimizer"
            )
        self.seen[parameter] = seen
        self.synchronized = False
        if seen == self.passes:
            self.start(parameter)

    def start(self, parameter: torch.nn.Parameter) -> None:
        """Starts the reduction of this gradient, or notes it until its group is ready."""
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        group = self.group_of.get(parameter)
        if group is None:
            self.finishers[parameter] = self.reduce(parameter)
            return
        self.waiting.add(parameter)
        self.finishers[parameter] = None
        if self.waiting.issuperset(group):
            self.waiting.difference_update(group)
            self.finishers[parameter] = self.reduce_group(group)

    def reduce(self, parameter: torch.nn.Parameter) -> Callable[[], None]:
        """Starts one reduction; the returned function waits for it and puts the result in place."""
        small, context = self.compress(parameter)
        handle = allreduce_async_(
            small, None, self.names[parameter], self.op, self.factors[0], self.factors[1]
        )
        return lambda: self.finish(parameter, handle.wait(), context)

    def reduce_group(self, group: Group) -> Callable[[], None]:
        """As ``reduce``, for parameters that go together."""
        pairs = [self.compress(parameter) for parameter in group]
        handle: Handle[torch.Tensor] = grouped_allreduce_async_(
            [small for small, _ in pairs], None, self.names[group[0]], self.op, *self.factors
        )

        def finish() -> None:
            for parameter, small, (_, context) in zip(group, handle.wait(), pairs, strict=True):
                self.finish(parameter, small, context)

        return finish

    def compress(self, parameter: torch.nn.Parameter) -> tuple[torch.Tensor, Any]:
        """What goes out for a gradient: dense, and compressed."""
        gradient = parameter.grad
        assert gradient is not None
        small, context = self.compression.compress(gradient.detach())
        return small.contiguous(), context

    def finish(self, parameter: torch.nn.Parameter, reduced: torch.Tensor, context: Any) -> None:
        """Puts a reduced gradient where the optimizer finds it."""
        gradient = parameter.grad
        assert gradient is not None
        result = self.compression.decompress(reduced, context)
        if result.data_ptr() != gradient.data_ptr():
            gradient.detach().copy_(result)

    def synchronize(self) -> None:
        """Starts what no pass has started (parameters that were not used), and waits for everything."""
        if not self.synchronized:
            for parameter in self.parameters:
                used = parameter.requires_grad or parameter in self.group_of  # a group goes as a whole
                if used and parameter not in self.finishers:
                    self.start(parameter)
        finishers = list(self.finishers.values())
        self.finishers.clear()
        self.waiting.clear()
        self.seen.clear()
        self.synchronized = True
        for finish in finishers:
            if finish is not None:
                finish()


class _Distributed(torch.optim.Optimizer):
    """The methods that DistributedOptimizer adds to a user's optimizer."""

    _hvd: _Reducer
    _hvd_skip: bool

    def synchronize(self) -> None:
        """Waits until all gradients are reduced: to look at them or change them before ``step``."""
        self._hvd.synchronize()

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
        self._hvd.passes = passes

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer's own; refused while gradients are being reduced."""
        if self._hvd.finishers:
            raise AssertionError(
                "zero_grad() was called after backward() but before step() or synchronize(): the gradients "
                "are being reduced, and clearing them now would race with that"
            )
        super().zero_grad(set_to_none)


def _before_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Step pre-hook: the gradients are reduced before the optimizer uses them."""
    if optimizer._hvd_skip:
        return None
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        if optimizer._hvd.synchronized and not optimizer._hvd.finishers:
            warnings.warn(
                "step() was called after synchronize(): use "
                "`with optimizer.skip_synchronize(): optimizer.step()`, or leave out synchronize()",
                stacklevel=4,
            )
        optimizer.synchronize()
        optimizer._hvd.synchronized = False
        return None

    def closure_and_wait() -> Any:
        loss = closure()
        optimizer.synchronize()
        optimizer._hvd.synchronized = False
        return loss

    return (args[0], closure_and_wait), {}


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
    check_process_set(process_set)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be at least 1")
    if num_groups:
        warnings.warn("num_groups is deprecated: pass groups", DeprecationWarning, stacklevel=2)
    if isinstance(optimizer, _Distributed):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    names = _name_parameters(optimizer, named_parameters)
    factors = (1.0 / gradient_predivide_factor, gradient_predivide_factor)
    reducer = _Reducer(
        optimizer, names, compression, backward_passes_per_step, op, factors, groups or num_groups
    )
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__module__": kind.__module__})
    optimizer._hvd = reducer  # type: ignore[attr-defined]
    optimizer._hvd_skip = False  # type: ignore[attr-defined]
    optimizer.register_step_pre_hook(_before_step)
    return optimizer
