"""An estimator of Spark ML for Keras, and its model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from horovod.spark.common import table
from horovod.spark.common.estimator import HorovodEstimator, HorovodModel, Training
from horovod.spark.common.params import with_params
from horovod.spark.keras.packing import packed_model, packed_optimizer, unpacked_model
from horovod.spark.keras.training import listed, one_or_tuple, train


@with_params(table.MODEL)
class KerasModel(HorovodModel):
    """A trained model of Keras; ``getHistory`` returns the losses and metrics of each epoch by name."""

    def loaded(self) -> Any:
        """Returns the model of Keras."""
        return unpacked_model(self.value("model"), self.value("custom_objects"))

    def getModel(self) -> Any:  # noqa: N802
        """Returns the model of Keras."""
        return self.loaded()

    def predict(self, model: Any, inputs: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        """Returns the outputs for a batch."""
        return [np.asarray(each) for each in listed(model.predict_on_batch(one_or_tuple(inputs)))]

    def packed(self) -> dict[str, Any]:
        """Returns the values that were given, as they are saved."""
        return self.values() | {"model": packed_model(self.value("model"))}


@with_params(table.KERAS)
class KerasEstimator(HorovodEstimator):
    """Trains a model of Keras on the rows of a DataFrame, on ranks in the tasks of Spark.

    ``fit(df)`` returns a KerasModel. The model gets the feature columns as its inputs. The learning rate of
    ``optimizer``, an optimizer of Keras or its name, is multiplied by the number of ranks. docs/spark.md has
    an example and the table of parameters, each of which has a setter and a getter.
    """

    needed = ("model", "optimizer", "loss", "store", "feature_cols", "label_cols")

    train = staticmethod(train)

    def packed_objects(self) -> dict[str, Any]:
        """Returns model and optimizer in Keras's own formats."""
        return {
            "model": packed_model(self.value("model")),
            "optimizer": packed_optimizer(self.value("optimizer")),
        }

    def getModel(self) -> Any:  # noqa: N802
        """Returns the model to train."""
        return unpacked_model(self.value("model"), self.value("custom_objects"))

    def variables(self) -> dict[str, str]:
        """Returns the variables that ranks get: they use the back end of Keras that this process uses."""
        return {"KERAS_BACKEND": keras.backend.backend()} | super().variables()

    def made(self, training: Training, result: Any) -> KerasModel:
        """Returns the trained model."""
        custom = self.value("custom_objects")
        model = unpacked_model(training.values["model"], custom)
        model.set_weights(result["weights"])
        return KerasModel(
            model=packed_model(model),
            history=result["history"],
            run_id=training.run_id,
            feature_columns=[*self.value("feature_cols")],
            label_columns=[*self.value("label_cols")],
            output_sizes=result["sizes"],
            custom_objects=custom,
        )
