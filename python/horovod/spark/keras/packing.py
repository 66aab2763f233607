"""Models and optimizers of Keras as bytes, for other processes and for files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import keras

FILE = "model.keras"


def packed_model(model: Any) -> Any:
    """Returns a model in Keras's own format, with its weights."""
    if isinstance(model, bytes) or model is None:
        return model
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, FILE)
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def unpacked_model(data: Any, custom_objects: Mapping[str, Any]) -> Any:
    """Returns the model of such bytes, not compiled."""
    if not isinstance(data, bytes):
        return data
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, FILE)
        with open(path, "wb") as file:
            file.write(data)
        return keras.models.load_model(path, custom_objects=dict(custom_objects), compile=False)


def packed_optimizer(optimizer: Any) -> Any:
    """Returns an optimizer as a dict that ``keras.optimizers.get`` takes; a name stays one."""
    if optimizer is None or isinstance(optimizer, (str, dict)):
        return optimizer
    return keras.optimizers.serialize(optimizer)
