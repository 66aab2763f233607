"""What the distributed optimizers of all frameworks share: which gradients go when, and what comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

from horovod.basics import Average
from horovod.collectives import Collectives
from horovod.common.exceptions import HorovodInternalError
from horovod.compression import Compressor
from horovod.handles import Handle

A = TypeVar("A")
P = TypeVar("P", bound=Hashable)
Q = TypeVar("Q", bound=Hashable, contravariant=True)


class Gradients(Protocol[Q, A]):
    """Where a framework keeps the gradient of a parameter."""

    def take(self, parameter: Q) -> A:
        """The gradient; zeros when this rank has computed none."""

    def dense(self, array: A) -> A:
        """The array itself, or a row-major copy, to be reduced in place."""

    def put(self, parameter: Q, reduced: A) -> None:
        """Makes the reduced array the gradient, unless it lies in its memory already."""

    def is_trained(self, parameter: Q) -> bool:
        """Whether the parameter is not frozen."""


def split_factor(factor: float, op: int) -> tuple[float, float]:
    """The factors before and after the sum that a gradient_predivide_factor means."""
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
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


def _slices(parameters: Sequence[P], count: int) -> list[Sequence[P]]:
    """So many nearly equal slices, the longer ones first."""
    length, longer = divmod(len(parameters), count)
    starts = [i * length + min(i, longer) for i in range(count + 1)]
    return [parameters[start:end] for start, end in pairwise(starts)]


def make_groups(
    groups: int | Sequence[Sequence[P]], parameters: Sequence[P], kind_of: Callable[[P], Any]
) -> list[tuple[P, ...]]:
    """Which parameters are reduced together: a number of slices, or the user's lists.

    A group holds one element type only, so ``kind_of`` divides them further.
    """
    if isinstance(groups, int):
        slices = _slices(parameters, max(1, min(groups, len(parameters))))
    else:
        ours = set(parameters)
        slices = [[parameter for parameter in group if parameter in ours] for group in groups]
        if any(count > 1 for count in Counter(p for group in slices for p in group).values()):
            raise ValueError("groups must not name a parameter twice")
    divided = []
    for group in slices:
        for kind in dict.fromkeys(kind_of(parameter) for parameter in group):
            divided.append(tuple(parameter for parameter in group if kind_of(parameter) == kind))
    return divided


class Reducer(Generic[P, A]):
    """The gradients of one optimizer in one step after the other.

    ``ready`` hears of every gradient of every backward pass and starts its reduction in the last one;
    ``finish`` starts what no pass has (ranks may use different parameters) and waits for all; ``forget``
    begins a new step.
    """

    def __init__(
        self,
        gradients: Gradients[P, A],
        collectives: Collectives[A],
        names: dict[P, str],
        groups: Sequence[tuple[P, ...]],
        passes: int,
        op: int,
        factors: tuple[float, float],
        compression: type[Compressor],
    ) -> None:
        self.gradients = gradients
        self.collectives = collectives
        self.names = names
        self.group_of = {parameter: group for group in groups for parameter in group}
        self.op = op
        self.factors = factors
        self.compression = compression
        self.set_passes(passes)
        self.seen: dict[P, int] = {}  # passes since the step began
        self.in_flight: dict[P, Callable[[], None] | None] = {}  # None: waits for, or goes with, its group
        self.finished = False  # the step's gradients were reduced
        self.changed = False  # a gradient came after that

    def set_passes(self, passes: int) -> None:
        """How many backward passes add to the gradients before they are reduced."""
        if passes < 1:
            raise ValueError(f"backward_passes_per_step must be at least 1, not {passes}")
        self.passes = passes

    # -- what happens to the reducer ---------------------------------------------------------------

    def ready(self, parameter: P) -> None:
        """One more pass has added to this gradient."""
        seen = self.seen.get(parameter, 0) + 1
        if seen > self.passes:
            raise AssertionError(
                f"the gradient of '{self.names[parameter]}' was computed {seen} times since the last step(), "
                f"but backward_passes_per_step is {self.passes}; call step() in between, or pass "
                f"backward_passes_per_step={seen} to DistributedOptimizer"
            )
        if self.finished and self.seen and self.op != Average:
            raise AssertionError(
                f"the gradient of '{self.names[parameter]}' came after those of this step had been reduced: "
                "add up the losses and call backward() once, or use op=Average"
            )
        self.seen[parameter] = seen
        self.changed = True
        if seen == self.passes:
            self._start(parameter)

    def finish(self) -> None:
        """Returns when all gradients are reduced; raises the first error after all have ended."""
        if self.finished and not self.changed:
            return
        for parameter in self.names:
            goes = self.gradients.is_trained(parameter) or parameter in self.group_of  # groups go whole
            if goes and parameter not in self.in_flight:
                self._start(parameter)
        waits = [wait for wait in self.in_flight.values() if wait is not None]
        self.in_flight.clear()
        self.finished, self.changed = True, False
        failures = [error for wait in waits if (error := _failure_of(wait)) is not None]
        if failures:
            self.forget()
            raise failures[0]

    def forget(self) -> None:
        """The step is over; gradients may come anew."""
        self.seen.clear()
        self.finished = self.changed = False

    # -- reductions --------------------------------------------------------------------------------

    def _start(self, parameter: P) -> None:
        group = self.group_of.get(parameter, (parameter,))
        self.in_flight[parameter] = None
        if self.in_flight.keys() >= set(group):
            self.in_flight[parameter] = self._reduce(group, parameter in self.group_of)

    def _reduce(self, group: tuple[P, ...], grouped: bool) -> Callable[[], None]:
        """Starts one reduction; the returned function waits for it and puts the results in place."""
        pairs = [self.compression.compress(self.gradients.take(parameter)) for parameter in group]
        sent = [self.gradients.dense(small) for small, _ in pairs]
        name = self.names[group[0]]
        handle: Handle[A]
        if grouped:
            handle = self.collectives.grouped_allreduce_async_(sent, None, name, self.op, *self.factors)
        else:
            handle = self.collectives.allreduce_async_(sent[0], None, name, self.op, *self.factors)

        def wait() -> None:
            handle.wait()
            for parameter, reduced, (_, context) in zip(group, sent, pairs, strict=True):
                self.gradients.put(parameter, self.compression.decompress(reduced, context))

        return wait


def _failure_of(wait: Callable[[], None]) -> HorovodInternalError | None:
    try:
        wait()
    except HorovodInternalError as error:
        return error
    return None
