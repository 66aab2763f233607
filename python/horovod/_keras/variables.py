"""Variables of TensorFlow, and of the layers and optimizers of Keras."""

from __future__ import annotations

from typing import Any

from horovod.common.caller import warn_caller


def variables_of(given: Any) -> list[Any]:
    """Returns the variables as a list; warns if there are none, usually because a model is not built.

    Raises:
        ValueError: the argument is not a list of variables.
    """
    try:
        variables = list(given)
    except TypeError:
        variables, wrong = [], [given]
    else:
        wrong = [variable for variable in variables if not hasattr(variable, "assign")]
    if wrong:
        raise ValueError(
            "broadcast_variables takes a list of variables, such as model.variables, not "
            f"{type(wrong[0]).__name__}"
        )
    if not variables:
        text = "broadcast_variables: there are no variables; before it is built a model has none"
        warn_caller(text, UserWarning)
    return variables


def variables_of_layers(given: Any) -> list[Any]:
    """Returns the trainable variables of a layer of Keras or a list of layers; none for None.

    Raises:
        ValueError: one of them is not a layer, or has no variables yet.
    """
    layers = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    for layer in layers:
        if not hasattr(layer, "built"):
            raise ValueError(f"local_layers must be layers of Keras, not {type(layer)}")
        if not layer.built:
            raise ValueError(
                f"the local layer '{layer.name}' has no variables yet: build the model, or call it, first"
            )
    return [variable for layer in layers for variable in layer.trainable_variables]


def build_optimizer(optimizer: Any, variables: Any) -> None:
    """Makes the variables of an optimizer of Keras 2 or 3, unless they have been made."""
    if not getattr(optimizer, "built", False):  # Keras 2's does nothing the second time
        build = getattr(optimizer, "build", None) or optimizer._create_all_weights  # a legacy one
        build(variables)


def variables_of_optimizer(optimizer: Any) -> list[Any]:
    """Returns the variables of an optimizer of Keras 2 or 3."""
    variables = optimizer.variables
    return [*(variables() if callable(variables) else variables)]  # Keras 2: a method
