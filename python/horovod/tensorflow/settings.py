"""The options of tapes and optimizers for the reduction of gradients."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common.basics import ProcessSet
from horovod.common.process_sets import is_member
from horovod.compression import Compressor
from horovod.gradient_list import GradientList
from horovod.grouping import make_groups, split_factor
from horovod.optimizer import Rules
from horovod.tensorflow.lists import tensors


@dataclass
class Settings:
    """Checked once, used with whatever variables come."""

    compression: type[Compressor]
    sparse_as_dense: bool
    op: int
    gradient_predivide_factor: float
    num_groups: int
    groups: int | Sequence[Sequence[Any]] | None
    process_set: ProcessSet
    scale_local_gradients: bool = True
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.num_groups:
            warnings.warn("num_groups is deprecated: pass groups", DeprecationWarning, stacklevel=5)
            self.groups = self.groups or self.num_groups
        if isinstance(self.groups, int) and self.groups < 0:
            raise ValueError(f"groups must be a number of groups or lists of variables, not {self.groups}")
        split_factor(self.gradient_predivide_factor, self.op)
        is_member(self.process_set)

    def reduce(
        self, gradients: Sequence[Any], variables: Sequence[Any], name: str, local: Collection[int] = ()
    ) -> list[Any]:
        """The reduced gradients of these variables; those of the local places stay this rank's own."""
        factor = self.gradient_predivide_factor
        rules = Rules(
            op=self.op,
            factors=(1.0, 1.0) if factor == 1.0 else split_factor(factor, self.op),
            compression=self.compression,
            process_set=self.process_set,
            member=is_member(self.process_set),
            sparse_as_dense=self.sparse_as_dense,
        )
        groups = self.groups
        places = [place for place, gradient in enumerate(gradients) if gradient is not None]
        lists = make_groups(groups, {place: variables[place] for place in places}) if groups else None
        reduce = GradientList(
            tensors,
            [f"{name}.{place}" for place in range(len(gradients))],
            rules,
            lists,
            local,
            self.scale_local_gradients,
            self.scale,
        )
        return reduce(gradients)


def places_of(some: Sequence[Any], variables: Sequence[Any]) -> set[int]:
    """Where these variables stand among all; they can't be hashed."""
    known = {id(variable) for variable in some}
    return {place for place, variable in enumerate(variables) if id(variable) in known}
