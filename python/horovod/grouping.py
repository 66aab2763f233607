"""What users say of their parameters: names, groups, factors. The same for all frameworks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

from horovod.common.basics import Average
from horovod.common.util import split_list

P = TypeVar("P", bound=Hashable)


def split_factor(factor: float, op: int) -> tuple[float, float]:
    """The factors before and after the sum that a gradient_predivide_factor means."""
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if factor <= 0:
        raise ValueError(f"gradient_predivide_factor must be positive, not {factor}")
    return 1.0 / factor, factor


def check_names(named_parameters: Iterable[Any], parameters: Iterable[P]) -> dict[P, str]:
    """The user's names by parameter; ValueError when they are incomplete or ambiguous."""
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError("named_parameters must be tuples (name, parameter), as of model.named_parameters()")
    repeated = sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    if repeated:
        raise ValueError(f"named_parameters must have unique names; repeated: {', '.join(repeated)}")
    names: dict[P, str] = {parameter: name for name, parameter in pairs}
    unnamed = [id(parameter) for parameter in parameters if parameter not in names]
    if unnamed:
        raise ValueError(f"named_parameters lacks parameters of the optimizer; ids of those: {unnamed}")
    return names


def make_groups(groups: int | Sequence[Sequence[P]], parameters: Sequence[P]) -> list[tuple[P, ...]]:
    """Which parameters are reduced together: a number of slices, or the user's lists."""
    if isinstance(groups, int):
        slices = split_list(parameters, max(1, min(groups, len(parameters))))
    else:
        ours = set(parameters)
        slices = [[parameter for parameter in group if parameter in ours] for group in groups]
        if any(count > 1 for count in Counter(p for group in slices for p in group).values()):
            raise ValueError("groups must not name a parameter twice")
    return [tuple(group) for group in slices if group]
