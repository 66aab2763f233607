"""Callbacks for ``fit``: equal weights at the start, metrics of all ranks, learning rates that fit them.

Each becomes a callback of Keras 2 or 3 with Keras's own class as its second base. Other libraries derive from
the classes whose name ends in Impl, and pass Keras's back end first, which has no meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import horovod
from horovod._keras.functions import broadcast_variables
from horovod._keras.metrics import averaged
from horovod._keras.variables import build_optimizer, variables_of_optimizer
from horovod.common import epochs
from horovod.common.basics import Min, size


class _Callback:
    """The attributes that Keras's own class sets."""

    model: Any
    params: dict[str, Any]


class BroadcastGlobalVariablesCallbackImpl(_Callback):
    """Gives the root's weights and optimizer state to all ranks when training starts.

    If the model has no weights yet on some rank, all ranks get them after the first batch.

    Args:
        root_rank: the rank that has initialised the model or loaded it.
        device: accepted for compatibility; it has no meaning.
        local_variables: the variables that every rank keeps for itself.
    """

    def __init__(
        self,
        backend: Any,
        root_rank: int,
        device: str = "",
        local_variables: Sequence[Any] | None = None,
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        self._epoch = epochs.number()
        self._local = {id(variable) for variable in local_variables or ()}

    def on_train_begin(self, logs: Any = None) -> None:
        if self._epoch != epochs.number():  # ranks that have joined an elastic job have not done it
            self._epoch, self.broadcast_done = epochs.number(), False
        built = np.array([self.model.built])
        if not self.broadcast_done and horovod.allreduce(built, op=Min, name="model is built")[0]:
            build_optimizer(self.model.optimizer, self.model.trainable_variables)
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        variables = [*self.model.weights, *variables_of_optimizer(self.model.optimizer)]
        broadcast_variables([each for each in variables if id(each) not in self._local], self.root_rank)
        self.broadcast_done = True


class MetricAverageCallbackImpl(_Callback):
    """Averages the metrics of an epoch over all ranks, which must have the same ones.

    Arrays, such as the score of each class, are averaged element by element, also in lists and mappings.
    List it before the callbacks that use the metrics, such as ReduceLROnPlateau or TensorBoard.
    """

    def __init__(self, backend: Any, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs:
            logs.update(averaged(logs))


class LearningRateScheduleCallbackImpl(_Callback):
    """Multiplies the initial learning rate by a factor that depends on the epoch.

    Args:
        initial_lr: the learning rate at the start.
        multiplier: a function of the epoch, which has a fraction unless ``staircase``, or a number m, which
            means m to the power of the epochs since ``start_epoch``.
        start_epoch: the first epoch in which the callback acts.
        end_epoch: the first epoch in which it no longer acts; None: there is none.
        staircase: acts at the first batch of an epoch only, otherwise at every batch.
        momentum_correction: also scales the momentum if the learning rate is part of it, as in SGD.
        steps_per_epoch: batches an epoch; None: the number that ``fit`` reports.

    Raises:
        ValueError: ``initial_lr`` is missing, or the number of batches is unknown.
    """

    def __init__(
        self,
        backend: Any,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: float = 0,
        end_epoch: float | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr must be given")
        self.initial_lr, self.staircase = initial_lr, staircase
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.multiplier: Callable[[float], float]
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            factor = multiplier
            self.staircase = True
            self.multiplier = lambda epoch: factor ** (epoch - start_epoch)

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps_per_epoch = self.steps_per_epoch or self.params.get("steps")
        if not self.staircase and not self.steps_per_epoch:
            raise ValueError("the number of batches an epoch is unknown: pass steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        inside = self.start_epoch <= self.epoch and (self.end_epoch is None or self.epoch < self.end_epoch)
        if not inside or (self.staircase and batch):
            return
        at = self.epoch if self.staircase else self.epoch + batch / (self.steps_per_epoch or 1)
        self._set(self.initial_lr * self.multiplier(at))

    def _set(self, rate: float) -> None:
        optimizer = self.model.optimizer
        before = float(optimizer.learning_rate)
        optimizer.learning_rate = rate
        # The sum of past steps contains the old rate, by which they were multiplied.
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if self.momentum_correction and before and before != rate and getattr(inner, "momentum", 0):
            for momentum in self._momenta(inner):
                momentum.assign(momentum * (rate / before))

    def _momenta(self, optimizer: Any) -> list[Any]:
        """Returns SGD's or RMSprop's sums of past steps; none before the first step."""
        found: Any
        if hasattr(optimizer, "get_slot"):  # a legacy one of Keras 2
            known = "momentum" in optimizer.get_slot_names()
            found = [optimizer.get_slot(each, "momentum") for each in self.model.trainable_variables if known]
        else:
            found = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", ())
        return [momentum for momentum in found if momentum is not None]

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)


class LearningRateWarmupCallbackImpl(LearningRateScheduleCallbackImpl):
    """Raises the learning rate batch by batch from that of one process to the initial one.

    It grows from ``initial_lr / size`` by the same amount in every batch, so that the large batches of many
    ranks do no harm at the start (Goyal et al., 2017).

    Args:
        initial_lr: the learning rate after the warmup, scaled by the number of ranks.
        warmup_epochs: the number of epochs of the warmup.
        momentum_correction: as for ``LearningRateScheduleCallback``.
        steps_per_epoch: as for ``LearningRateScheduleCallback``.
        verbose: more than 0: prints a line at the end.
    """

    def __init__(
        self,
        backend: Any,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            done = epoch + 1 / (self.steps_per_epoch or 1)  # at the end of the batch
            return (done * (size() - 1) / warmup_epochs + 1) / size()

        super().__init__(
            backend,
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


class BroadcastGlobalVariablesCallback(BroadcastGlobalVariablesCallbackImpl):
    """Does the same without the argument ``backend``, like the three classes below."""

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Sequence[Any] | None = None
    ) -> None:
        super().__init__(None, root_rank, device, local_variables)


class MetricAverageCallback(MetricAverageCallbackImpl):
    def __init__(self, device: str = "") -> None:
        super().__init__(None, device)


class LearningRateScheduleCallback(LearningRateScheduleCallbackImpl):
    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: float = 0,
        end_epoch: float | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        epochs = (start_epoch, end_epoch)
        super().__init__(
            None, initial_lr, multiplier, *epochs, staircase, momentum_correction, steps_per_epoch
        )


class LearningRateWarmupCallback(LearningRateWarmupCallbackImpl):
    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(None, initial_lr, warmup_epochs, momentum_correction, steps_per_epoch, verbose)


class BestModelCheckpoint:
    """Saves the best model so far into ``filepath``, an attribute that is set later.

    Pass it to ``fit`` on one rank, after a MetricAverageCallback on all ranks.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str = "epoch",
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            filepath="best.weights.h5" if save_weights_only else "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
