"""What TensorFlow's and Keras's ``broadcast_variables`` take."""

from __future__ import annotations

from typing import Any

from horovod.common.caller import warn_caller


def variables_of(given: Any) -> list[Any]:
    """The variables; a warning where there are none, of which a model that is not built is the usual cause.

    Raises:
        ValueError: it is no list of variables.
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
