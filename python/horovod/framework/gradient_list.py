"""Reduction of lists of gradients, for frameworks without hooks: tapes of TensorFlow, and Keras."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from horovod import _core
from horovod.common.basics import Average
from horovod.common.caller import warn_caller
from horovod.common.process_sets import ProcessSet, global_process_set, is_member
from horovod.common.util import split_list
from horovod.framework.collectives import Collectives
from horovod.framework.compression import Compressor, NoneCompressor
from horovod.framework.divergence import ParameterCheck
from horovod.framework.grouping import check_groups, make_groups, split_factor
from horovod.framework.handles import Handle
from horovod.framework.reducer import Rules

A = TypeVar("A")


class Tensors(Protocol[A]):
    """A framework's operations on gradients, which may be arrays in memory, nodes of a graph or traced."""

    def is_sparse(self, gradient: A) -> bool:
        """Returns true if the gradient consists of some rows and their numbers."""

    def dense(self, gradient: A) -> A:
        """Returns a sparse gradient as a dense one."""

    def scale(self, gradient: A, factor: Any) -> A:
        """Returns the gradient, dense or sparse, times the factor, a number or what ``size_of`` returns."""

    def size_of(self, process_set: ProcessSet) -> Any:
        """Returns the number of members as a number, or in a graph as a scalar that reads it."""
        return process_set.size() or 1

    def reduce(
        self, groups: Sequence[Sequence[A]], names: Sequence[str], rules: Rules
    ) -> Sequence[Sequence[A]]:
        """Reduces every group of dense gradients as one operation, or all groups as one; reports a step.

        Groups must not wait for each other: all are started before one is waited for, or they may run in
        any order.
        """

    def gather(self, gradients: Sequence[A], names: Sequence[str], rules: Rules) -> Sequence[A]:
        """Reduces sparse gradients, which stay sparse: their rows are gathered. Factors are not applied."""


class GradientList(Generic[A]):
    """Reduces lists of gradients over all ranks, again and again.

    Parameters are identified by their places: TensorFlow's and Keras's can't be hashed. If a gradient is None
    on one rank, it must be None on all. Any thread.

    Args:
        tensors: the framework.
        names: one for each parameter, unique in this list and equal on all ranks.
        rules: how to reduce; ranks that are not members keep their gradients.
        groups: a number of groups, or lists of places whose gradients are reduced as one operation; None:
            each by itself. Sparse gradients are in no group, unless ``rules.sparse_as_dense``.
        local: places of the parameters that every rank keeps for itself; their gradients are not reduced.
        scale_local: divides local gradients by the number of ranks, as if the gradients of others were zeros.
        scale: a factor for every gradient, e.g. 1 / k to average sums over k backward passes.
    """

    def __init__(
        self,
        tensors: Tensors[A],
        names: Sequence[str],
        rules: Rules,
        groups: int | Sequence[Sequence[int]] | None = None,
        local: Collection[int] = (),
        scale_local: bool = True,
        scale: float = 1.0,
    ) -> None:
        self.tensors, self.names, self.groups = tensors, names, groups
        self.local, self.scale_local, self.scale = frozenset(local), scale_local, scale
        before, after = rules.factors
        self.rules = replace(rules, factors=(before * scale, after))

    def __call__(self, gradients: Sequence[A | None]) -> list[A | None]:
        """Returns the reduced gradients at the same places; None stays None.

        Sparse gradients stay sparse unless ``rules.sparse_as_dense``.

        Raises:
            ValueError: the number of gradients is not the number of names.
            HorovodInternalError, or the framework's error: the ranks disagree, or one is lost.
        """
        if len(gradients) != len(self.names):
            raise ValueError(f"{len(gradients)} gradients were given for {len(self.names)} parameters")
        result = list(gradients)
        present = {place: gradient for place, gradient in enumerate(gradients) if gradient is not None}
        kept = {place: present[place] for place in present if not self.rules.member or place in self.local}
        reduced = {place: present[place] for place in present if place not in kept}
        sparse = {place: reduced.pop(place) for place in [*reduced] if self.tensors.is_sparse(reduced[place])}
        if self.rules.sparse_as_dense:
            reduced |= {place: self.tensors.dense(gradient) for place, gradient in sparse.items()}
            sparse = {}
        for place, gradient in self._reduce(reduced) + self._gather(sparse) + self._keep(kept):
            result[place] = gradient
        return result

    def _reduce(self, gradients: dict[int, A]) -> list[tuple[int, A]]:
        compression, groups = self.rules.compression, self._groups_of(sorted(gradients))
        if not groups:
            return []
        sent = {place: compression.compress(gradient) for place, gradient in gradients.items()}
        names = [self.names[group[0]] for group in groups]
        outcome = self.tensors.reduce(
            [[sent[place][0] for place in group] for group in groups], names, self.rules
        )
        return [
            (place, compression.decompress(tensor, sent[place][1]))
            for group, tensors in zip(groups, outcome, strict=True)
            for place, tensor in zip(group, tensors, strict=True)
        ]

    def _groups_of(self, places: Sequence[int]) -> list[Sequence[int]]:
        """Returns these places in groups; a place that no group names is a group of its own."""
        if isinstance(self.groups, int):
            return [group for group in split_list(places, max(1, self.groups)) if group]
        rest = dict.fromkeys(places)
        groups = [[place for place in group if place in rest] for group in self.groups or ()]
        for place in (place for group in groups for place in group):
            del rest[place]
        return [*filter(None, groups), *([place] for place in rest)]

    def _gather(self, gradients: dict[int, A]) -> list[tuple[int, A]]:
        if not gradients:
            return []
        names = [self.names[place] for place in gradients]
        gathered = self.tensors.gather([*gradients.values()], names, self.rules)
        return [
            (place, self._scaled(gradient, self.scale))
            for place, gradient in zip(gradients, gathered, strict=True)
        ]

    def _keep(self, gradients: dict[int, A]) -> list[tuple[int, A]]:
        """Scales the gradients that are not reduced: local ones, or all if this rank is not a member."""
        shared = self.rules.member and self.scale_local
        factor = self.scale / (self.tensors.size_of(self.rules.process_set) if shared else 1)
        return [(place, self._scaled(gradient, factor)) for place, gradient in gradients.items()]

    def _scaled(self, gradient: A, factor: Any) -> A:
        unchanged = isinstance(factor, float) and factor == 1.0
        return gradient if unchanged else self.tensors.scale(gradient, factor)


@dataclass
class GradientOptions(Generic[A]):
    """The options that a user gives to a tape or an optimizer: checked once, used for any variables.

    Args:
        tensors: the framework.
        name: the prefix of the operations' names; a place follows it.
        kind: the type of the members of ``groups``.
        numbered: several objects may have this name: from the second on a number is added to it.
        scale: as for ``GradientList``.
        local: variables that every rank keeps for itself.

    The other arguments are those of the user.

    Raises:
        ValueError: they contradict each other, or one is out of range.
    """

    tensors: Tensors[A]
    name: str
    compression: type[Compressor] = NoneCompressor
    sparse_as_dense: bool = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: int | Sequence[Sequence[Any]] | None = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    kind: type = object
    numbered: bool = False
    scale: float = 1.0
    local: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.num_groups:
            warn_caller("num_groups is deprecated: pass groups")
        self.groups = check_groups(self.num_groups or None if self.groups is None else self.groups, self.kind)
        self.rules()

    @functools.cached_property
    def prefix(self) -> str:
        """The prefix of the operations' names.

        Its number counts the objects that have reduced, which all ranks do in one order; one rank alone may
        have made more objects.
        """
        if not self.numbered:
            return self.name
        key = (self.name, *self.process_set.ranks)
        _numbers[key] += 1
        return f"{self.name}_{_numbers[key]}" if _numbers[key] > 1 else self.name

    @functools.cached_property
    def check(self) -> ParameterCheck:
        """The comparison of the variables between the ranks that train together."""
        return ParameterCheck(f"{self.name}.parameters", self.process_set)

    def shared(self, variables: Sequence[Any]) -> list[Any]:
        """Returns those of these variables that are equal on all ranks: all but local ones."""
        local = set(self.places_of_local(variables))
        return [variable for place, variable in enumerate(variables) if place not in local]

    def rules(self) -> Rules:
        """Returns how to reduce now: whether this rank is a member changes with the process sets."""
        factors = split_factor(self.gradient_predivide_factor, self.op)
        member = is_member(self.process_set)
        return Rules(
            self.op,
            factors,
            self.compression,
            self.process_set,
            member,
            sparse_as_dense=self.sparse_as_dense,
        )

    def reduce(self, gradients: Sequence[A | None], variables: Sequence[Any]) -> list[A | None]:
        """Returns the reduced gradients of these variables."""
        groups = self.groups
        if groups is not None and not isinstance(groups, int):
            groups = make_groups(groups, dict(enumerate(variables)))
        reduce = GradientList(
            self.tensors,
            [f"{self.prefix}.{place}" for place in range(len(variables))],
            self.rules(),
            groups,
            self.places_of_local(variables),
            self.scale_local_gradients,
            self.scale,
        )
        return reduce(gradients)

    def places_of_local(self, variables: Sequence[Any]) -> list[int]:
        """Returns the places of local variables among these, by identity, as they can't be hashed."""
        local = {id(variable) for variable in self.local}
        return [place for place, variable in enumerate(variables) if id(variable) in local]


_numbers: Counter[tuple[Any, ...]] = Counter()  # of GradientOptions with one name in one process set


class DenseTensors(Tensors[A], Protocol[A]):
    """Tensors of a framework without sparse gradients."""

    def is_sparse(self, gradient: A) -> bool:
        return False

    def dense(self, gradient: A) -> A:
        return gradient

    def gather(self, gradients: Sequence[A], names: Sequence[str], rules: Rules) -> Sequence[A]:
        return gradients  # the list is empty

    def scale(self, gradient: A, factor: Any) -> A:
        scaled: Any = gradient
        return scaled * factor  # type: ignore[no-any-return]


class EagerTensors(DenseTensors[A]):
    """Tensors with collectives that return handles."""

    def __init__(self, collectives: Collectives[A]) -> None:
        self.collectives = collectives

    def reduce(
        self, groups: Sequence[Sequence[A]], names: Sequence[str], rules: Rules
    ) -> Sequence[Sequence[A]]:
        before, after = rules.factors
        how: tuple[Any, ...] = (rules.op, before, after, rules.process_set)
        handles: list[Handle[Any]] = [
            self.collectives.grouped_allreduce_async(group, None, name, *how)
            if len(group) > 1
            else self.collectives.allreduce_async(group[0], None, name, *how)
            for group, name in zip(groups, names, strict=True)
        ]
        _core.wait(handles)
        results = [handle.wait() for handle in handles]
        _core.optimizer_step(names[0])
        return [result if len(group) > 1 else [result] for group, result in zip(groups, results, strict=True)]
