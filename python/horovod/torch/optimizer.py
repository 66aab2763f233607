"""DistributedOptimizer: averages gradients over the ranks while backprop still runs.

The user's own optimizer object is instrumented and returned: its class becomes a subclass of the same name,
so state, schedulers and references to it stay valid. A hook on each parameter starts reducing its gradient as
soon as it is complete, and ``backward`` returns after all gradients are reduced: clipping, gradient scaling
and logging use the same gradients as ``step``.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from horovod import _core
from horovod.common.basics import Adasum, Average, local_size, size
from horovod.common.caller import warn_caller
from horovod.common.process_sets import ProcessSet, global_process_set, is_member
from horovod.framework.compression import Compressor, NoneCompressor
from horovod.framework.divergence import ParameterCheck
from horovod.framework.grouping import check_groups, check_names, make_groups, split_factor
from horovod.framework.handles import Handle, synchronize
from horovod.framework.reducer import Reducer, Rules
from horovod.torch.divergence import compare_parameters
from horovod.torch.hooks import BackwardHooks, SharedGradients, StepDeltas, StoredGradients
from horovod.torch.mpi_ops import allreduce_async_

O = TypeVar("O", bound=torch.optim.Optimizer)  # noqa: E741
_numbers = itertools.count()


class _DistributedOptimizer(torch.optim.Optimizer):
    """The members that DistributedOptimizer adds to a user's optimizer; other libraries derive from it.

    ``class Mine(_DistributedOptimizer, torch.optim.SGD)`` has the parameters below; SGD's hyperparameters
    are in the parameter groups. A class that overrides ``_allreduce_grad_async`` reduces gradients its own
    way.
    """

    _hvd: Reducer[Any, torch.Tensor]
    _hvd_hooks: BackwardHooks
    _hvd_check: ParameterCheck
    _hvd_skip: bool
    _hvd_by_hand: bool
    _hvd_source: str  # the name under which it reports steps

    def __init__(
        self,
        params: Any,
        named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
        compression: type[Compressor] = NoneCompressor,
        backward_passes_per_step: int = 1,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        groups: int | Sequence[Sequence[torch.nn.Parameter]] | None = None,
        sparse_as_dense: bool = False,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(params)  # type: ignore[call-arg]  # the user's class is the next one
        options = (op, gradient_predivide_factor, groups, sparse_as_dense, process_set)
        self._begin(_make_reducer(self, named_parameters, compression, backward_passes_per_step, *options))

    def _begin(self, reducer: Reducer[Any, torch.Tensor]) -> None:
        """Installs the hooks that report every gradient to the reducer."""
        hooks = BackwardHooks(reducer)
        for place in range(len(reducer.parameters)):
            hooks.watch(place)
        check = ParameterCheck(f"parameters.{''.join(reducer.names[:1])}", reducer.rules.process_set)
        self.__dict__.update(
            _hvd=reducer, _hvd_hooks=hooks, _hvd_check=check, _hvd_skip=False, _hvd_by_hand=False
        )
        self._hvd_source = f"optimizer.{next(_numbers)}"
        for name, value in _read_by_overrides(reducer.rules).items():
            self.__dict__.setdefault(name, value)
        if type(self)._allreduce_grad_async is not _DistributedOptimizer._allreduce_grad_async:
            own = weakref.WeakMethod(self._start_own)  # weak, as the optimizer owns the reducer
            reducer.start_own = lambda parameter: own()(parameter)  # type: ignore[misc]
        if _core.is_initialized():  # otherwise when it has joined the running job
            _core.expect_steps()
        self._register_step_hooks()
        self.register_step_post_hook(_after_step)

    def _register_step_hooks(self) -> None:
        self.register_step_pre_hook(_before_step)

    def _allreduce_grad_async(self, p: torch.nn.Parameter) -> tuple[Handle[torch.Tensor], Any]:
        """Starts reducing a gradient; returns the handle, and the context of its compression."""
        rules = self._hvd.rules
        tensor, context = rules.compression.compress(p.grad)
        name = self._parameter_names[p]
        return allreduce_async_(tensor, None, name, rules.op, *rules.factors, rules.process_set), context

    def _start_own(self, parameter: torch.nn.Parameter) -> Callable[[], torch.Tensor]:
        handle, context = self._allreduce_grad_async(parameter)
        return lambda: self._hvd.rules.compression.decompress(synchronize(handle), context)

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward passes that are summed up before the gradients are reduced."""
        return self._hvd.passes

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, as ``backward`` does on ranks that call it."""
        self._hvd.finish()
        self._hvd.seen.clear()
        self._hvd_by_hand = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Makes ``step`` inside the context not wait, because ``synchronize`` was called by hand."""
        self._hvd_skip = True
        try:
            yield
        finally:
            self._hvd_skip = False

    @property
    def _parameter_names(self) -> dict[Any, str]:
        """The name of every parameter; other libraries read it."""
        return dict(zip(self._hvd.parameters, self._hvd.names, strict=True))

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets how many backward passes are summed up before the gradients are reduced."""
        self._hvd.set_passes(passes)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Calls the optimizer's own method; refused after ``backward``: gradients would be lost."""
        if self._hvd.seen or self._hvd.arrived:
            raise AssertionError(
                "zero_grad() was called after backward() but before step() or synchronize(): the gradients "
                "would be lost; call synchronize() first if that is what you want"
            )
        self._hvd.forget()
        self._hvd_by_hand = False
        if not set_to_none and isinstance(self._hvd.gradients, SharedGradients):
            self._hvd.gradients.keep()
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Calls the optimizer's own method; the gradients of the new parameters are also reduced."""
        super().add_param_group(param_group)
        if "_hvd" not in self.__dict__:  # called by the constructor
            return
        number = len(self.param_groups) - 1
        for i, parameter in enumerate(dict.fromkeys(self.param_groups[number]["params"])):
            self._hvd_hooks.watch(self._hvd.add(parameter, _default_name(number, i)))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Calls the optimizer's own method; a step that was in progress is forgotten."""
        if not self._hvd.in_flight:
            self._hvd.forget()
            self._hvd_by_hand = False
        super().load_state_dict(state_dict)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Read by GradScaler.step, which may then skip the step: it has used the gradients in any case."""
        if not self._hvd.changed:
            self._hvd.seen.clear()
        return bool(self.__dict__.get("_step_supports_amp_scaling", False))

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        self.__dict__["_step_supports_amp_scaling"] = value

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Makes copies and pickles plain optimizers of the user's class."""
        plain = next(kind for kind in type(self).__mro__ if not issubclass(kind, _DistributedOptimizer))
        return _make_plain, (plain,), self.__getstate__()


class _DistributedAdasumOptimizer(_DistributedOptimizer):
    """Makes every rank step by itself, then combines the steps."""

    def _register_step_hooks(self) -> None:
        self.register_step_pre_hook(_before_local_step)
        self.register_step_post_hook(_after_local_step)

    def synchronize(self) -> None:
        """Does nothing: the changes that are combined exist only after ``step``."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Raises AssertionError: the ranks' parameters would diverge by a step that is not combined."""
        raise AssertionError("skip_synchronize() makes no sense with op=Adasum: the ranks would part")
        yield


def is_equal_on_all_ranks(optimizer: torch.optim.Optimizer) -> bool:
    """Returns true if all ranks have the same parameters and state, which only ``step`` changes."""
    return (
        isinstance(optimizer, _DistributedOptimizer)
        and not isinstance(optimizer, _DistributedAdasumOptimizer)
        and optimizer._hvd.start_own is None
        and optimizer._hvd.rules.process_set.process_set_id == 0
    )


def _make_plain(kind: type[O]) -> O:
    return kind.__new__(kind)


def _read_by_overrides(rules: Rules) -> dict[str, Any]:
    """Returns the attributes of Horovod's optimizer for a class that overrides ``_allreduce_grad_async``."""
    return {
        "op": rules.op,
        "gradient_predivide_factor": rules.factors[1],
        "sparse_as_dense": rules.sparse_as_dense,
        "process_set": rules.process_set,
        "_compression": rules.compression,
    }


def _default_name(group: int, index: int) -> str:
    return f"noname.{group}.{index}"


def _before_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Waits for the reduced gradients before the optimizer uses them; a step pre-hook."""
    reducer = optimizer._hvd
    by_hand, optimizer._hvd_by_hand = optimizer._hvd_by_hand, False
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        if not optimizer._hvd_skip:
            if by_hand:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after "
                    "optimizer.synchronize(): the gradients are reduced already; use "
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


def _before_local_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Copies the parameters that the step will change; a step pre-hook of Adasum."""
    for parameter in optimizer._hvd.parameters:
        if parameter.requires_grad:
            optimizer._hvd.gradients.remember(parameter)


def _after_local_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Replaces the step by the combination of all ranks' steps; a step post-hook of Adasum."""
    optimizer._hvd.finish()
    optimizer._hvd.forget()


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Counts the step, and finds out whether parameters are still equal on all ranks; a step post-hook."""
    _core.optimizer_step(optimizer._hvd_source)
    reducer = optimizer._hvd
    compare_parameters(optimizer._hvd_check, zip(reducer.names, reducer.parameters, strict=True))


def _default_names(optimizer: torch.optim.Optimizer) -> dict[torch.nn.Parameter, str]:
    return {
        parameter: _default_name(i, j)
        for i, group in enumerate(optimizer.param_groups)
        for j, parameter in enumerate(group["params"])
    }


def DistributedOptimizer(  # noqa: N802
    optimizer: O,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: type[Compressor] = NoneCompressor,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.nn.Parameter]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    shared_gradients: bool = False,
) -> O:
    """Makes an optimizer average its gradients over all ranks before every step.

    Args:
        optimizer: any ``torch.optim.Optimizer``; the same object is returned, instrumented.
        named_parameters: ``model.named_parameters()``; the names appear in messages and are equal on all
            ranks.
        compression: ``Compression.fp16`` halves the messages; or a class of your own with ``compress`` and
            ``decompress``.
        backward_passes_per_step: gradients of this many passes are summed up before they are reduced.
        op: ``Average``, ``Sum``, or ``Adasum``: every rank steps by itself, and the steps are combined.
        gradient_predivide_factor: averages divide by the factor before the sum and by size / factor after it.
        num_groups: old name of ``groups`` as a number.
        groups: the number of groups of gradients to reduce as a whole, or lists of the parameters of each
            group. Sparse gradients in a group are reduced densely.
        sparse_as_dense: sparse gradients are reduced densely, instead of gathering their entries; afterwards
            they are sparse again.
        process_set: the ranks that train together; other ranks step by themselves.
        shared_gradients: for loops with ``optimizer.zero_grad(set_to_none=False)``: the first such call
            moves the gradients into memory that the other ranks of this host read in place, which saves a
            copy from then on. It has no effect on gradients that are dropped, compressed, sparse or on other
            devices, without another rank on this host, or without shared memory.

    Raises:
        ValueError: the names or groups do not match the optimizer's parameters.
        NotImplementedError: ``op=Adasum`` with a process set.

    Example::

        optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    """
    size()  # init must have been called
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    if not hasattr(optimizer, "param_groups"):
        raise ValueError(
            f"DistributedOptimizer takes an optimizer of torch.optim, not {type(optimizer).__name__}"
        )
    if num_groups:
        warn_caller("num_groups is deprecated: pass groups")
        groups = num_groups if groups is None else groups
    options = (op, gradient_predivide_factor, groups, sparse_as_dense, process_set)
    reducer = _make_reducer(
        optimizer, named_parameters, compression, backward_passes_per_step, *options, shared_gradients
    )
    kind, mixin = type(optimizer), _DistributedOptimizer if op != Adasum else _DistributedAdasumOptimizer
    optimizer.__class__ = type(kind.__name__, (mixin, kind), {"__module__": __name__})
    optimizer._begin(reducer)  # type: ignore[attr-defined]
    return optimizer


def _make_reducer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None,
    compression: type[Compressor],
    passes: int,
    op: int,
    gradient_predivide_factor: float,
    groups: int | Sequence[Sequence[torch.nn.Parameter]] | None,
    sparse_as_dense: bool,
    process_set: ProcessSet,
    shared_gradients: bool = False,
) -> Reducer[Any, torch.Tensor]:
    """Makes the reducer of an optimizer; the parameters are those of DistributedOptimizer."""
    if op == Adasum and process_set is not global_process_set:
        raise NotImplementedError("op=Adasum works among all ranks only, not in a process set")
    factors = split_factor(gradient_predivide_factor, op)
    defaults = _default_names(optimizer)
    parameters, names = list(defaults), list(defaults.values())
    if named_parameters is not None:
        names = check_names(named_parameters, parameters)
    wanted = check_groups(groups, torch.Tensor)
    trained = {place: each for place, each in enumerate(parameters) if each.requires_grad}
    together = make_groups(wanted, trained) if wanted else []
    rules = Rules(
        op, factors, compression, process_set, is_member(process_set), op != Adasum, sparse_as_dense
    )
    source: StoredGradients = StoredGradients() if rules.early else StepDeltas()
    if shared_gradients and rules.early and compression is NoneCompressor and local_size() > 1:
        source = SharedGradients(trained.values())
    return Reducer(source, parameters, names, together, passes, rules)
