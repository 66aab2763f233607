"""Training with averaged gradients: for Gluon a trainer, for modules an optimizer."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import mxnet as mx

from horovod import _core
from horovod.common.basics import Average, ProcessSet, Sum, global_process_set
from horovod.common.process_sets import is_member
from horovod.common.util import split_list
from horovod.framework.compression import Compressor, NoneCompressor
from horovod.framework.divergence import ParameterCheck, bytes_of
from horovod.framework.grouping import split_factor
from horovod.framework.requests import ALLREDUCE, Call, every
from horovod.mxnet.engine import only, run

_numbers = itertools.count()  # of trainers and optimizers of this process


def _reduce(
    gradients: Sequence[tuple[int, Any]],
    prefix: str,
    num_groups: int,
    prescale: float,
    process_set: ProcessSet,
) -> None:
    """Sums gradients, given with their parameters' numbers, in place; lower numbers have priority."""
    count = min(num_groups, len(gradients)) if num_groups > 0 else len(gradients)
    for group in split_list(gradients, max(1, count)):
        arrays, first = [gradient for _, gradient in group], group[0][0] if group else 0
        name, how, grouped = f"{prefix}{first}", (Sum, (prescale, 1.0)), num_groups > 0
        run(
            Call(ALLREDUCE, arrays, every, name, process_set, *how, grouped=grouped, priority=-first),
            in_place=True,
        )


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]
    """An optimizer that averages the gradients over all ranks before it uses them.

    It is for ``mx.mod.Module``; with Gluon use ``DistributedTrainer``. All other methods are those of the
    wrapped optimizer.

    Args:
        optimizer: any optimizer of MXNet; its ``rescale_grad`` is divided by the number of ranks.
        gradient_predivide_factor: averages divide by the factor before the sum and by size / factor after it.
        num_groups: more than 0: the gradients of an update are reduced in this many groups.
        process_set: the ranks that take part; other ranks update alone.

    Raises:
        ValueError: the object is not an optimizer of MXNet, or was wrapped before; Horovod is not
            initialized.
    """

    _optimizer: Any

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            raise ValueError("DistributedOptimizer: this optimizer was wrapped before; wrap it once")
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise ValueError(
                "DistributedOptimizer takes an optimizer of MXNet, such as mx.optimizer.SGD(), not "
                f"{optimizer!r}"
            )
        member = is_member(process_set)
        before, share = _factors(gradient_predivide_factor, process_set) if member else (1.0, 1.0)
        optimizer.rescale_grad *= share
        self.__dict__.update(
            _optimizer=optimizer,
            _share=share,
            _source=f"optimizer.{next(_numbers)}",
            _options=(num_groups, before, process_set) if member else None,
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_optimizer" not in vars(self):  # while it is copied
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._optimizer, name, value)

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)

    def __getstate__(self) -> Any:
        return vars(self)

    def _sum(self, index: Any, gradient: Any) -> None:
        """Sums some gradients of a step, which ends with the first ones of the next step."""
        _core.optimizer_step(f"{vars(self)['_source']}.{index}")
        options = vars(self)["_options"]
        if options is not None:
            pairs = list(zip(index, gradient, strict=True)) if isinstance(index, (list, tuple)) else None
            _reduce(pairs or [(index, gradient)], "", *options)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._sum(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._sum(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def set_learning_rate(self, lr: float) -> None:
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        self._optimizer.set_wd_mult(args_wd_mult)


def _factors(gradient_predivide_factor: float, process_set: ProcessSet) -> tuple[float, float]:
    """Returns the factors of gradients before and after the sum, which make it an average."""
    before, after = split_factor(gradient_predivide_factor, Average)
    return before, after / (process_set.size() or 1)


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """A ``gluon.Trainer`` that averages the gradients over all ranks.

    Each gradient is summed by an operation on MXNet's engine while the engine still computes others, and an
    update waits only for its own gradient. The optimizer's ``rescale_grad`` divides by the number of ranks.

    Args:
        params: ``net.collect_params()``, equal on all ranks (``broadcast_parameters``).
        optimizer: an optimizer of MXNet, or its name.
        optimizer_params: as for ``gluon.Trainer``.
        compression: ``Compression.fp16``, or a class of your own, makes messages smaller.
        gradient_predivide_factor: averages divide by the factor before the sum and by size / factor after it.
        prefix: a prefix of the names of gradients, which are numbers; needed for several concurrent trainers.
        num_groups: more than 0: gradients are reduced in this many groups, each as one operation.
        process_set: the ranks that take part; other ranks update alone.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        compression: type[Compressor] = NoneCompressor,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn("DistributedTrainer reduces by itself: it takes the optimizer inside", stacklevel=2)
            share, optimizer = vars(optimizer)["_share"], optimizer._optimizer
            optimizer.rescale_grad /= share
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._compression, self._prefix, self._groups = compression, prefix or "", num_groups
        self._source = f"trainer.{next(_numbers)}"  # of steps; trainers may have equal prefixes
        self._set = process_set if is_member(process_set) else None
        self._check = ParameterCheck(f"{self._prefix}parameters", process_set)
        if self._set:
            self._before, share = _factors(gradient_predivide_factor, process_set)
            self._scale *= share

    def _gradients(self) -> list[tuple[int, Any]]:
        return [
            (number, only(parameter.name, parameter.list_grad()))
            for number, parameter in enumerate(self._params)
            if parameter.grad_req != "null"
        ]

    def _allreduce_grads(self) -> None:
        _core.optimizer_step(self._source)
        if not self._set:
            return
        gradients = self._gradients()
        sent = [self._compression.compress(gradient) for _, gradient in gradients]
        numbered = [(number, small) for (number, _), (small, _) in zip(gradients, sent, strict=True)]
        _reduce(numbered, self._prefix, self._groups, self._before, self._set)
        for (_, gradient), (small, context) in zip(gradients, sent, strict=True):
            if small is not gradient:
                gradient[:] = self._compression.decompress(small, context)

    def _update(self, *args: Any, **kwargs: Any) -> None:
        super()._update(*args, **kwargs)
        if self._check.is_on() and self._check.count():
            trained = [each for each in self._params if each.grad_req != "null"]
            values = ((each.name, only(each.name, each.list_data())) for each in trained)
            self._check.compare((name, bytes_of(value.asnumpy())) for name, value in values)
