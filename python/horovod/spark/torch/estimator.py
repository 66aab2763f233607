"""An estimator of Spark ML for PyTorch, and its model."""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod.spark.common import table
from horovod.spark.common.estimator import HorovodEstimator, HorovodModel, Training
from horovod.spark.common.params import with_params
from horovod.spark.torch.training import as_tensors, outputs_of, train


@with_params(table.MODEL)
class TorchModel(HorovodModel):
    """A trained model of PyTorch.

    ``getModel`` returns the module, ``getHistory`` a list with the losses and metrics of each epoch.
    """

    def loaded(self) -> Any:
        """Returns the module, which computes no gradients."""
        return self.value("model").eval().requires_grad_(False)

    def predict(self, model: Any, inputs: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        """Returns the outputs for a batch."""
        return [
            each.float().numpy()
            for each in outputs_of(model(*as_tensors(model, inputs, self.value("input_shapes"))))
        ]


@with_params(table.TORCH)
class TorchEstimator(HorovodEstimator):
    """Trains a module of PyTorch on the rows of a DataFrame, on ranks in the tasks of Spark.

    ``fit(df)`` returns a TorchModel. The module gets the feature columns as its arguments, floats in the type
    of its parameters. ``loss`` and ``metrics`` get an output and a label. ``optimizer`` was made with the
    parameters of ``model``; its learning rate is multiplied by the number of ranks. docs/spark.md has an
    example and the table of parameters, each of which has a setter and a getter.
    """

    needed = ("model", "optimizer", "store", "feature_cols", "label_cols")

    def _checked(self) -> Any:
        if (self.value("loss") is None) == (self.value("loss_constructors") is None):
            raise ValueError("TorchEstimator needs loss or loss_constructors, and not both")
        if self.value("callbacks"):
            raise ValueError("TorchEstimator: PyTorch has no callbacks; use train_minibatch_fn or metrics")
        return super()._checked()

    train = staticmethod(train)

    def made(self, training: Training, result: Any) -> TorchModel:
        """Returns the trained model."""
        import torch

        model = copy.deepcopy(self.value("model"))
        model.load_state_dict(torch.load(io.BytesIO(result["weights"]), weights_only=True))
        return TorchModel(
            model=model,
            history=result["history"],
            run_id=training.run_id,
            feature_columns=[*self.value("feature_cols")],
            label_columns=[*self.value("label_cols")],
            output_sizes=result["sizes"],
            input_shapes=self.value("input_shapes"),
        )
