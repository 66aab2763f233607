"""Checks of the names, groups and factors that users pass to optimizers. The same for all frameworks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from horovod.common.basics import Average
from horovod.common.util import split_list

P = TypeVar("P")


def split_factor(factor: float, op: int) -> tuple[float, float]:
    """Returns the factors before and after the sum that a gradient_predivide_factor means."""
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if not (0 < factor < math.inf and 1.0 / factor < math.inf):
        raise ValueError(f"gradient_predivide_factor must be positive and finite, not {factor}")
    return 1.0 / factor, factor


def check_passes(passes: Any) -> int:
    """Returns the user's backward_passes_per_step; ValueError unless it is an integer of at least 1."""
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"backward_passes_per_step must be an integer of at least 1, not {passes}")
    return passes


def check_names(named_parameters: Iterable[Any], parameters: Sequence[Any]) -> list[str]:
    """Returns the user's name of each parameter; ValueError if names are missing or ambiguous."""
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError("named_parameters must be tuples (name, parameter), as of model.named_parameters()")
    repeated = sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    if repeated:
        raise ValueError(f"named_parameters must have unique names; repeated: {', '.join(repeated)}")
    names: dict[int, str] = {id(parameter): name for name, parameter in pairs}
    unnamed = [id(parameter) for parameter in parameters if id(parameter) not in names]
    if unnamed:
        raise ValueError(
            f"named_parameters lacks {len(unnamed)} of the {len(parameters)} parameters of the optimizer; "
            f"are they those of another model? ids of those: {unnamed}"
        )
    return [names[id(parameter)] for parameter in parameters]


def check_groups(groups: Any, kind: type) -> Any:
    """Returns the user's groups; ValueError unless they are None, a number or lists of such parameters."""
    if isinstance(groups, int):
        if groups < 1:
            raise ValueError(f"groups must be a positive number or lists of parameters, not {groups}")
    elif groups is not None:
        if not isinstance(groups, Iterable) or any(not isinstance(group, Iterable) for group in groups):
            raise ValueError(f"groups must be a number or lists of parameters, not {groups!r}")
        wrong = [type(member) for group in groups for member in group if not isinstance(member, kind)]
        if wrong:
            raise ValueError(f"groups must hold parameters, not {wrong[0]}")
    return groups


def make_groups(groups: int | Sequence[Sequence[P]], parameters: Mapping[int, P]) -> list[tuple[int, ...]]:
    """Returns groups of places of parameters to reduce together: a number of slices, or the user's lists."""
    slices: list[Sequence[int]]
    if isinstance(groups, int):
        slices = split_list(list(parameters), max(1, min(groups, len(parameters))))
    else:
        places = {id(parameter): place for place, parameter in parameters.items()}
        slices = [[places[id(member)] for member in group if id(member) in places] for group in groups]
        if any(count > 1 for count in Counter(place for group in slices for place in group).values()):
            raise ValueError("groups must not name a parameter twice")
    return [tuple(group) for group in slices if group]
