"""Keras 2, as older versions of TensorFlow have it and tf_keras: every way in says what is needed."""

from __future__ import annotations

import importlib
import importlib.metadata
import os

import pytest

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
try:
    VERSION = importlib.metadata.version("keras")
except importlib.metadata.PackageNotFoundError:
    VERSION = ""
if not VERSION or not (LEGACY or VERSION.startswith("2")):
    pytest.skip("of Keras 2", allow_module_level=True)

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def test_the_package_names_keras_3() -> None:
    with pytest.raises(
        ImportError, match=r"needs Keras 3, and tf\.keras is Keras 2.*DistributedGradientTape"
    ):
        importlib.import_module("horovod.tensorflow.keras")


@pytest.mark.skipif(VERSION.startswith("3"), reason="Keras 3 is there, too")
def test_the_other_package_does_too() -> None:
    with pytest.raises(ImportError, match="needs Keras 3, and this is Keras 2"):
        importlib.import_module("horovod.keras")


@pytest.mark.skipif(VERSION.startswith("2"), reason="Keras 3 is not there")
def test_an_optimizer_is_refused() -> None:
    os.environ["KERAS_BACKEND"] = "tensorflow"
    hvd = importlib.import_module("horovod.keras")
    with pytest.raises(ValueError, match=r"takes an optimizer of Keras 3.*not tf_keras"):
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
