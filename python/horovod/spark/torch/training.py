"""Trains a module of PyTorch on one rank, with the rows that belong to it."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from horovod import torch as hvd
from horovod.spark.common.estimator import Training

Tensors = list[torch.Tensor]


def dtype_of(model: Any) -> torch.dtype:
    """Returns the type of the module's parameters."""
    return next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)


def as_tensors(model: Any, arrays: Sequence[np.ndarray[Any, Any]], shapes: Any) -> Tensors:
    """Returns arrays as tensors: floats in the type of the module's parameters, rows in their shapes."""
    kind, found = dtype_of(model), []
    for number, array in enumerate(arrays):
        tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))  # Arrow's are not writable
        tensor = tensor.to(kind) if tensor.is_floating_point() else tensor
        shape = shapes[number] if shapes else None
        found.append(tensor.reshape(-1, *shape[1:]) if shape else tensor)
    return found


def outputs_of(found: Any) -> Tensors:
    """Returns the outputs of a module as a list."""
    if isinstance(found, torch.Tensor):
        return [found]
    return [*(found.values() if isinstance(found, dict) else found)]


def fitted(outputs: Tensors, labels: Tensors) -> tuple[Tensors, Tensors]:
    """Returns outputs and labels; labels with as many values as their output have its shape."""
    fit = [
        label.reshape(output.shape) if label.numel() == output.numel() else label
        for output, label in zip(outputs, labels, strict=True)
    ]
    return outputs, fit


class Loss:
    """The weighted sum of the losses of all labels."""

    def __init__(self, losses: Sequence[Callable[..., Any]], weights: Sequence[float] | None) -> None:
        self._losses, self._weights = losses, weights or [1.0] * len(losses)

    def __call__(self, outputs: Tensors, labels: Tensors, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the loss of a batch; ``rows`` are weights of rows."""
        parts = [
            weight * _loss(loss, output, label, rows)
            for loss, weight, output, label in zip(self._losses, self._weights, outputs, labels, strict=True)
        ]
        return torch.stack(parts).sum()


def _loss(loss: Any, output: torch.Tensor, label: torch.Tensor, rows: torch.Tensor | None) -> Any:
    if rows is None:
        return loss(output, label)
    if isinstance(loss, torch.nn.Module):
        loss = copy.copy(loss)
        loss.reduction = "none"
        each = loss(output, label)
    else:
        each = loss(output, label, reduction="none")
    return (each.reshape(len(rows), -1).mean(1) * rows).mean()


def train_minibatch(
    model: Any,
    optimizer: Any,
    transform_outputs: Callable[[Any, Tensors], tuple[Tensors, Tensors]],
    loss_fn: Loss,
    inputs: Tensors,
    labels: Tensors,
    sample_weights: torch.Tensor | None,
) -> tuple[Tensors, torch.Tensor]:
    """Trains one batch; ``train_minibatch_fn`` of an estimator replaces it."""
    optimizer.zero_grad()
    outputs, labels = transform_outputs(model(*inputs), labels)
    loss = loss_fn(outputs, labels, sample_weights)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return outputs, loss


class _Mean:
    """Sums of losses and metrics over rows; ``over_ranks`` is their mean."""

    def __init__(self, name: str, metrics: Sequence[Callable[..., Any]]) -> None:
        self._name, self._metrics = name, metrics
        self._sums = np.zeros(2 + len(metrics))

    def add(self, rows: int, loss: torch.Tensor, outputs: Tensors, labels: Tensors) -> None:
        outputs, labels = fitted(outputs, labels)
        pairs = [*zip(outputs, labels, strict=True)]
        values = [np.mean([float(metric(*pair)) for pair in pairs]) for metric in self._metrics]
        self._sums += rows * np.array([1.0, float(loss), *values])

    def over_ranks(self) -> dict[str, float]:
        total = hvd.allreduce(torch.from_numpy(self._sums), op=hvd.Sum, name=f"spark.{self._name}").numpy()
        names = ["loss", *(getattr(each, "__name__", type(each).__name__) for each in self._metrics)]
        return dict(zip(names, (total[1:] / total[0]).tolist(), strict=True))


class Trainer:
    """One training on this rank."""

    def __init__(self, training: Training) -> None:
        hvd.init()
        self._training, self._values = training, training.values
        if self._values["random_seed"] is not None:
            torch.manual_seed(self._values["random_seed"] + hvd.rank())
        self._model = self._values["model"]
        made = self._values["loss_constructors"]
        losses = [make() for make in _listed(made)] if made else _listed(self._values["loss"])
        self._loss = Loss(losses, self._values["loss_weights"])
        self._plain = self._values["optimizer"]
        self._first, self._history = self._resumed()
        for group in self._plain.param_groups:
            group["lr"] *= hvd.size()
        hvd.broadcast_parameters(self._model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self._plain, root_rank=0)
        self._optimizer = hvd.DistributedOptimizer(
            self._plain,
            named_parameters=self._model.named_parameters(),
            compression=self._values["gradient_compression"] or hvd.Compression.none,
            backward_passes_per_step=self._values["backward_passes_per_step"],
        )
        self._sizes: list[int] = []

    def run(self) -> dict[str, Any] | None:
        """Trains all epochs; returns weights, history and sizes of the outputs on rank 0."""
        training, values = self._training, self._values
        rows = training.rows(training.train_path, hvd.rank(), hvd.size())
        checked = training.rows(training.val_path, hvd.rank(), hvd.size()) if training.val_path else None
        steps = training.steps(rows, hvd.size())
        for epoch in range(self._first, values["epochs"]):
            batches = rows.whole_batches(values["batch_size"], steps, training.seed(epoch))
            measured: dict[str, Any] = {"epoch": epoch, "train": self._train(batches)}
            if checked:
                limit = values["validation_steps_per_epoch"]
                measured["validation"] = self._validate(checked.batches(training.validation_batch()), limit)
            self._history.append(measured)
            if hvd.rank() == 0:
                self._keep()
                if values["verbose"]:
                    print(f"epoch {epoch}: {measured}")
        if hvd.rank():
            return None
        return {"weights": _bytes(self._model.state_dict()), "history": self._history, "sizes": self._sizes}

    def _tensors(self, batch: dict[str, Any]) -> tuple[Tensors, Tensors, torch.Tensor | None]:
        batch, values = self._training.transformed(batch), self._values
        inputs = as_tensors(
            self._model, [batch[name] for name in values["feature_cols"]], values["input_shapes"]
        )
        labels = as_tensors(
            self._model, [batch[name] for name in values["label_cols"]], values["label_shapes"]
        )
        weight = values["sample_weight_col"]
        return inputs, labels, as_tensors(self._model, [batch[weight]], None)[0] if weight else None

    def _train(self, batches: Iterable[dict[str, Any]]) -> dict[str, float]:
        step = self._values["train_minibatch_fn"] or train_minibatch
        mean = _Mean("train", self._values["metrics"])
        self._model.train()
        for batch in batches:
            inputs, labels, weights = self._tensors(batch)
            outputs, loss = step(
                self._model,
                self._optimizer,
                lambda found, given: fitted(outputs_of(found), given),
                self._loss,
                inputs,
                labels,
                weights,
            )
            outputs = [each.detach() for each in outputs_of(outputs)]
            self._sizes = [each[0].numel() for each in outputs]
            mean.add(len(labels[0]), loss.detach(), outputs, labels)
        return mean.over_ranks()

    @torch.no_grad()
    def _validate(self, batches: Iterable[dict[str, Any]], limit: int | None) -> dict[str, float]:
        mean = _Mean("validation", self._values["metrics"])
        self._model.eval()
        for number, batch in enumerate(batches):
            if number == limit:
                break
            inputs, labels, weights = self._tensors(batch)
            outputs, labels = fitted(outputs_of(self._model(*inputs)), labels)
            mean.add(len(labels[0]), self._loss(outputs, labels, weights), outputs, labels)
        return mean.over_ranks()

    def _keep(self) -> None:
        """Writes a checkpoint, with the learning rate of one rank."""
        training = self._training
        if training.store.saving_runs():
            optimizer = self._optimizer.state_dict()
            for group in optimizer["param_groups"]:
                group["lr"] /= hvd.size()
            state = {"model": self._model.state_dict(), "optimizer": optimizer, "history": self._history}
            training.store.write(training.store.get_checkpoint_path(training.run_id), _bytes(state))

    def _resumed(self) -> tuple[int, list[Any]]:
        """Continues from the checkpoint of the run, if there is one; returns the epoch and the history."""
        store, path = self._training.store, self._training.store.get_checkpoint_path(self._training.run_id)
        state = None
        if hvd.rank() == 0 and store.saving_runs() and store.exists(path):
            state = torch.load(io.BytesIO(store.read(path)), weights_only=True)
            self._model.load_state_dict(state["model"])
            self._plain.load_state_dict(state["optimizer"])
        history = hvd.broadcast_object(state and state["history"], root_rank=0, name="spark.history") or []
        return len(history), history


def _listed(value: Any) -> list[Any]:
    return [*value] if isinstance(value, (list, tuple)) else [value]


def _bytes(state: Any) -> bytes:
    data = io.BytesIO()
    torch.save(state, data)
    return data.getvalue()


def train(training: Training) -> dict[str, Any] | None:
    """Trains all epochs; returns weights, history and sizes of the outputs on rank 0."""
    return Trainer(training).run()
