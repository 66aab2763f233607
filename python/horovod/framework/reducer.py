"""The reduction of an optimizer's gradients while backward passes run: which gradients are sent when.

Frameworks with hooks use it; the others use gradient_list.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from horovod import _core
from horovod.common import epochs
from horovod.common.basics import Average, Max, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, check_member, is_member
from horovod.framework.compression import Compressor, NoneCompressor
from horovod.framework.grouping import check_passes
from horovod.framework.requests import ALLREDUCE

A = TypeVar("A")
P = TypeVar("P")
Q = TypeVar("Q", contravariant=True)


class Gradients(Protocol[Q, A]):
    """The place in which a framework keeps the gradient of a parameter, or another value to reduce."""

    def get(self, parameter: Q) -> A:
        """Returns the gradient; zeros if this rank has computed none."""

    def get_sparse(self, parameter: Q) -> A:
        """Returns the gradient as a sparse one; without entries if this rank has computed none."""

    def is_sparse(self, parameter: Q) -> bool:
        """Returns true if this rank has computed a sparse gradient."""

    def is_trained(self, parameter: Q) -> bool:
        """Returns true unless the parameter is frozen."""

    def dense(self, array: A) -> A:
        """Returns an array to reduce in place: this memory if it is dense and row-major, otherwise a copy."""

    def copy(self, array: A) -> A:
        """Returns a copy, which is sparse if the array is."""

    def start_sparse(self, array: A, name: str, op: int, process_set: ProcessSet) -> Callable[[], A]:
        """Starts the reduction of a sparse array; the returned function waits for it."""

    def set(self, parameter: Q, reduced: A) -> None:
        """Makes the reduced array the gradient, unless it is in its memory; sparse if the gradient was."""


@dataclass(frozen=True)
class Rules:
    """How gradients are reduced, by the user's options."""

    op: int
    factors: tuple[float, float]
    compression: type[Compressor]
    process_set: ProcessSet
    member: bool  # false: this rank keeps its own gradients
    early: bool = True  # start as soon as a gradient is complete; otherwise only in `finish`
    sparse_as_dense: bool = False


class Reducer(Generic[P, A]):
    """Reduces the gradients of one optimizer, step after step. Any thread.

    A hook adds the place of every gradient to ``arrived`` in every backward pass. ``ready`` starts the
    reductions in the last pass of a step. ``finish`` starts the reductions of gradients that no pass has
    computed, as ranks may use different parameters, and waits for all. ``forget`` starts a new step. If
    gradients arrive after ``finish``, the next ``finish`` is another *round* of the same step. State is
    indexed by the position of a parameter in ``parameters``: tensors hash slowly or not at all.
    """

    def __init__(
        self,
        gradients: Gradients[P, A],
        parameters: list[P],
        names: list[str],
        groups: Sequence[tuple[int, ...]],
        passes: int,
        rules: Rules,
    ) -> None:
        self.gradients = gradients
        self.parameters, self.names = parameters, names
        self.group_of = {place: group for group in groups for place in group}
        self.rules = rules
        self.weight = 1.0  # a factor of what is reduced, see ``set_weight``
        self.set_passes(passes)
        # Places that need `_prepare`: all with compression, otherwise those that the engine has refused.
        self.careful = set() if rules.compression is NoneCompressor else set(range(len(names)))
        # Starts the reduction of a gradient in the user's own way, and returns a function that waits for it.
        self.start_own: Callable[[P], Callable[[], A]] | None = None
        self.rounds = 0  # calls of `finish` in this step that reduced
        self.lock = threading.RLock()  # of all members except `arrived` and `streams`
        self.streams: dict[int, int] = {}  # streams on which a device's gradients were computed; any thread
        self.arrived: list[int] = []  # places whose gradients have arrived since the last `ready`
        self._begin()
        epochs.resettable.add(self)

    def _begin(self) -> None:
        """Begins to reduce among the ranks that there are now."""
        self.early = self.rules.early and self.rules.member
        self.number = -1  # the id of the process set for which the reductions were described
        # Places whose gradients are sparse, the same on all ranks; None: the ranks have not agreed yet.
        self.sparse: set[int] | None = None if self.rules.early else set()
        self.restored: set[int] = set()  # sparse gradients that are reduced densely and made sparse again
        self.in_flight: set[int] = set()  # places that were started, or wait for the rest of their group
        self.operations: list[_core.Handle[None]] = []
        self.sent: dict[int, tuple[A, Any]] = {}  # arrays in flight, with the context of their compression
        self.gathering: dict[int, Callable[[], A]] = {}  # waits for sparse gradients and those of `start_own`
        self.forget()

    def begin_epoch(self) -> None:
        """Forgets the step in progress, and what the ranks of the epoch before have agreed on."""
        with self.lock:
            group = self.rules.process_set
            member = group.process_set_id is not None and is_member(group)  # None: all members are lost
            self.rules = replace(self.rules, member=member)
            self._begin()
            _core.expect_steps()

    def set_passes(self, passes: int) -> None:
        """Sets how many backward passes are summed up before the gradients are reduced."""
        self.passes = check_passes(passes)

    def set_weight(self, weight: float) -> None:
        """Multiplies all reduced gradients by a factor, the same on all ranks, from the next step on."""
        self.weight = weight
        self.number = -1

    def add(self, parameter: P, name: str) -> int:
        """Adds a parameter, as all ranks must; returns its place."""
        self.parameters.append(parameter)
        self.names.append(name)
        if self.rules.compression is not NoneCompressor:
            self.careful.add(len(self.names) - 1)
        if self.rules.early:
            self.sparse = None
        return len(self.parameters) - 1

    # -- events of a step --------------------------------------------------------------------------

    def ready(self, waits: bool = False) -> None:
        """Counts one more pass for the gradients that have arrived, and starts those that are complete.

        ``waits``: the caller calls ``finish`` next.
        """
        with self.lock:
            arrived = self.arrived[:]
            del self.arrived[: len(arrived)]  # others may have arrived since
            starting, passes = [], self.passes
            for place in arrived:
                seen = self.seen.get(place, 0) + 1
                if seen > passes or self.rounds:
                    self._check_turn(place, seen)
                self.seen[place] = seen
                if seen == passes:
                    starting.append(place)
            self.changed.update(arrived)
            if not self.early or not starting:
                return
            self.due = True
            if self.sparse is None and not self.rules.sparse_as_dense:
                starting = [
                    place for place in starting if not self.gradients.is_sparse(self.parameters[place])
                ]
            self._start(starting, waits)

    def _check_turn(self, place: int, seen: int) -> None:
        if seen > self.passes:
            raise AssertionError(
                f"the gradient of '{self.names[place]}' was computed {seen} times since the last step(), "
                f"but backward_passes_per_step is {self.passes}; call step() in between, or pass "
                f"backward_passes_per_step={seen} to DistributedOptimizer"
            )
        if self.rules.op not in (Average, Sum):
            raise AssertionError(
                f"the gradient of '{self.names[place]}' arrived after those of this step were reduced: "
                "add up the losses and call backward() once, or use op=Average"
            )

    def finish(self) -> None:
        """Returns after all gradients are reduced; raises the first error after all reductions have ended."""
        with self.lock:
            self.ready(waits=True)
            if not self.rules.member or (self.rounds and not self.changed):
                return
            if self.sparse is None:
                self._agree_on_sparse()
            rest = [place for place in range(len(self.parameters)) if place not in self.in_flight]
            trained = self.gradients.is_trained
            rest = [i for i in rest if i in self.group_of or trained(self.parameters[i])]  # groups stay whole
            self._start(rest, waits=True)
            started, self.in_flight = self.in_flight, set()
            self.changed.clear()
            self.rounds, self.due = self.rounds + 1, False
            gathering, self.gathering = self.gathering, {}
            waits: list[Callable[[], None]] = [self._finish_dense]
            waits += [partial(self._finish_sparse, *item) for item in gathering.items()]
            failures = [error for wait in waits if (error := _failure_of(wait)) is not None]
            if failures:
                self.forget()
                raise failures[0]
            self._keep_sums(started)

    def forget(self) -> None:
        """Ends the step; the next gradients belong to a new one."""
        self.arrived.clear()
        self.streams.clear()
        self.seen: dict[int, int] = {}  # passes since the step started
        self.changed: set[int] = set()  # gradients that have arrived since the last `finish`
        self.reduced: dict[int, A] = {}  # reduced sums to which a later pass may add
        self.rounds = 0
        self.due = False  # a gradient has arrived in its last pass

    # -- reductions --------------------------------------------------------------------------------

    def _agree_on_sparse(self) -> None:
        """Finds the parameters whose gradient is sparse on some rank, and those reduced densely on some rank.

        This happens once for each optimizer: a rank that does not use a parameter must know whether the
        others will send sparse or dense gradients, and which of them the step needs.
        """
        count = len(self.parameters)
        marks = bytearray(map(self.gradients.is_sparse, self.parameters)) + bytearray(count)
        for place in range(count) if self.rules.sparse_as_dense else (*self.in_flight, *self.group_of):
            marks[count + place] = 1
        name = f"sparse_gradients.{self.names[0] if self.names else ''}"
        number = check_member(self.rules.process_set)
        _core.run(_core.describe(ALLREDUCE, reduction=Max, process_set=number), name, (marks,))
        sparse = {place for place in range(count) if marks[place]}
        self.restored = {place for place in sparse if marks[count + place]}
        self.sparse = sparse - self.restored

    def _start(self, places: Sequence[int], waits: bool) -> None:
        number = check_member(self.rules.process_set)  # the set may be removed, or registered again
        if number != self.number:
            self._describe(number)
        for place in places:
            self.in_flight.add(place)
            group = self.group_of.get(place)
            if self.start_own:
                self.gradients.get(self.parameters[place])
                self.gathering[place] = self.start_own(self.parameters[place])
            elif self.sparse and place in self.sparse:
                if self.weight != 1:
                    raise ValueError(
                        f"the gradient of '{self.names[place]}' is sparse, which global_batch can't weigh: "
                        "pass sparse_as_dense=True to DistributedOptimizer"
                    )
                part = self._contribution(place, self._gradient(place))
                self.gathering[place] = self.gradients.start_sparse(
                    part, self._name(place), self.rules.op, self.rules.process_set
                )
            elif group is None:
                self._reduce((place,), False, waits)
            elif self.in_flight.issuperset(group):
                self._reduce(group, True, waits)

    def _describe(self, number: int) -> None:
        """Makes the requests for single gradients and for groups."""
        before, after = self.rules.factors
        self.number = number
        self.requests = tuple(
            _core.describe(
                ALLREDUCE,
                reduction=self.rules.op,
                prescale=before,
                postscale=after * self.weight,
                process_set=number,
                grouped=grouped,
            )
            for grouped in (False, True)
        )

    def _reduce(self, places: tuple[int, ...], grouped: bool, waits: bool) -> None:
        """Starts the reduction of these gradients as one operation; it runs for every gradient of a step."""
        tensors = []
        for place in places:
            tensor, context = self._gradient(place), None
            if self.rounds or place in self.careful:
                tensor, context = self._prepare(place, tensor)
            self.sent[place] = tensor, context
            tensors.append(tensor)
        name = self._name(places[0]) if self.rounds else self.names[places[0]]
        streams = self.streams and [self._stream(place) for place in places]
        try:
            operation = _core.submit(
                self.requests[grouped], name, tensors, streams=streams or None, waits=waits
            )
        except ValueError:
            if self.careful.issuperset(places):
                raise
            self.careful.update(places)
            self._reduce(places, grouped, waits)
        else:
            self.operations.append(operation)

    def _stream(self, place: int) -> int | None:
        """Returns the stream of a gradient; None if this thread has prepared the array on its own stream."""
        prepared = self.rounds or place in self.careful
        return None if prepared else self.streams.get(place)

    def _gradient(self, place: int) -> A:
        sparse = place in self.restored or (self.sparse and place in self.sparse)
        get = self.gradients.get_sparse if sparse else self.gradients.get
        return get(self.parameters[place])

    def _prepare(self, place: int, gradient: A) -> tuple[A, Any]:
        """Returns the dense array to reduce for a gradient, and the context of its compression."""
        part = self._contribution(place, self.gradients.dense(gradient))
        small, context = self.rules.compression.compress(part)
        return self.gradients.dense(small), context

    def _finish_dense(self) -> None:
        operations, self.operations = self.operations, []
        sent, self.sent = self.sent, {}
        _core.wait(operations)
        set_gradient, parameters = self.gradients.set, self.parameters
        for place, (reduced, context) in sent.items():
            if place in self.careful:
                reduced = self.rules.compression.decompress(reduced, context)
            if self.reduced:
                reduced = self._with_earlier_rounds(place, reduced)
            set_gradient(parameters[place], reduced)

    def _finish_sparse(self, place: int, gathering: Callable[[], A]) -> None:
        self.gradients.set(self.parameters[place], self._with_earlier_rounds(place, gathering()))

    def _name(self, place: int) -> str:
        """Returns a name that differs by round, so that a later round never meets another rank's step."""
        return f"{self.names[place]}.{self.rounds + 1}" if self.rounds else self.names[place]

    def _contribution(self, place: int, gradient: A) -> A:
        """Returns the gradient; in a later round of a sum only its growth: the rest is reduced already."""
        if not self.rounds or self.rules.op == Average:
            return gradient
        if place not in self.changed:
            self.reduced[place] = self.gradients.copy(gradient)
        return gradient - self.reduced[place]  # type: ignore[operator,no-any-return]

    def _with_earlier_rounds(self, place: int, reduced: A) -> A:
        """Returns a reduced part together with the part of the gradient that was reduced before."""
        if place not in self.reduced:
            return reduced
        return self.reduced.pop(place) + reduced  # type: ignore[operator,no-any-return]

    def _keep_sums(self, places: Iterable[int]) -> None:
        """Keeps copies of sums to which another backward pass of this step may still add."""
        if self.rules.op != Sum or not self.rules.early:
            return
        for place in places:
            if self.seen.get(place, 0) < self.passes:
                gradient = self._gradient(place)
                dense = self.gradients.dense(gradient) if place in self.restored else gradient
                self.reduced[place] = self.gradients.copy(dense)


def _failure_of(wait: Callable[[], None]) -> HorovodInternalError | None:
    try:
        wait()
    except HorovodInternalError as error:
        return error
    return None
