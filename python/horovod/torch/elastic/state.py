"""The state of training with PyTorch: models, optimizers, samplers, and whatever has a ``state_dict``."""

from __future__ import annotations

import copy
import itertools
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Set
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from horovod import _core
from horovod.common.basics import Average, Sum, rank, size
from horovod.common.elastic import ObjectState
from horovod.common.host_copy import HostCopy
from horovod.framework.reducer import Reducer
from horovod.torch.elastic.sampler import ElasticSampler, share
from horovod.torch.functions import broadcast_object
from horovod.torch.optimizer import is_equal_on_all_ranks


class StateHandler:
    """Keeps one value of a state. Derive from it for a type of your own, and see ``set_handler_registry``.

    Args:
        value: what it keeps.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keeps the present contents."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to the contents that were kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives rank 0's contents to all ranks. All ranks call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Is called when the ranks have changed, before ``sync``."""

    def set_value(self, value: Any) -> None:
        """Keeps another value from now on."""
        self.value = value
        self.save()


class _Tensor(NamedTuple):
    """Takes the place of a tensor in a description."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    alike: bool = False  # it was an _Alike

    def fits(self, tensor: Any) -> bool:
        return isinstance(tensor, torch.Tensor) and (tuple(tensor.shape), tensor.dtype) == self[:2]

    def room(self, kept: torch.Tensor | None) -> torch.Tensor:
        """Returns memory for the tensor: what has been kept before, if it fits."""
        return kept if kept is not None and self.fits(kept) else torch.zeros(self.shape, dtype=self.dtype)


class _Alike(NamedTuple):
    """Takes the place of a tensor that all ranks have alike: its copy is that of the host."""

    live: torch.Tensor


def _map(tree: Any, leaf: Callable[[Any, Any], Any], other: Any = None) -> Any:
    """Returns nested dicts, lists and tuples with ``leaf(each, counterpart)`` in place of what is in them.

    The counterpart is what is at the same place of ``other``, which may have another structure; or None.
    """
    if isinstance(tree, dict):
        known = other if isinstance(other, dict) else {}
        made = copy.copy(tree)  # a state_dict of a module has attributes
        made.update({key: _map(value, leaf, known.get(key)) for key, value in tree.items()})
        return made
    if type(tree) in (list, tuple):  # not an _Alike
        row = other if isinstance(other, type(tree)) and len(other) == len(tree) else [None] * len(tree)
        return type(tree)(_map(value, leaf, at) for value, at in zip(tree, row, strict=True))
    return leaf(tree, other)


def _keep(value: Any, kept: Any) -> Any:
    """Returns a copy; a tensor's is in the memory of the copy before, as new memory is ten times as slow."""
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    value = value.detach()
    if value.layout is not torch.strided:
        return value.clone()
    if not isinstance(kept, torch.Tensor) or (kept.shape, kept.dtype) != (value.shape, value.dtype):
        kept = torch.empty(value.shape, dtype=value.dtype)
    return kept.copy_(value)


def _put_back(kept: Any, live: Any) -> Any:
    """Returns what ``load_state_dict`` is given: never the memory of the copy, which it would adopt."""
    if isinstance(kept, _Alike):
        kept = kept.live  # which has been restored
        if not isinstance(live, torch.Tensor) or live.data_ptr() == kept.data_ptr():
            return kept
    if not isinstance(kept, torch.Tensor):
        return copy.deepcopy(kept)
    if isinstance(live, torch.Tensor) and (live.shape, live.dtype) == (kept.shape, kept.dtype):
        return live.detach().copy_(kept)
    return kept.clone()


class StateDictHandler(StateHandler):
    """Keeps anything that has ``state_dict`` and ``load_state_dict``, such as a learning-rate scheduler."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._kept: Any = None
        self.alike: Set[int] = frozenset()  # addresses of tensors that the host's copy has
        self.save()

    def save(self) -> None:
        self._kept = _map(self.value.state_dict(), self._keep, self._kept)

    def _keep(self, value: Any, kept: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.data_ptr() in self.alike and _is_plain(value):
            return _Alike(value.detach())
        return _keep(value, kept)

    def alike_tensors(self) -> Iterator[torch.Tensor]:
        """Returns the tensors whose copy is that of the host."""
        found: list[torch.Tensor] = []
        _map(self._kept, lambda leaf, _: found.append(leaf.live) if isinstance(leaf, _Alike) else None)
        return iter(found)

    def restore(self) -> None:
        self.value.load_state_dict(_map(self._kept, _put_back, self.value.state_dict()))

    def sync(self) -> None:
        self.save()
        tree = broadcast_object(self._kept if rank() == 0 else None, 0, "elastic.handler")
        if rank() != 0:
            self._kept = tree
            self.restore()

    def describe(self, memory: list[torch.Tensor], alike: dict[int, torch.Tensor]) -> Any:
        """Returns what is kept without its tensors, which it adds to ``memory`` or, by address, ``alike``."""

        def leave_out(value: Any, _: Any) -> Any:
            if isinstance(value, _Alike):
                live = value.live
                if live.data_ptr() not in alike:
                    alike[live.data_ptr()] = live
                    return _Tensor(tuple(live.shape), live.dtype, True)
                value = live  # it has two names
            if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
                return value
            memory.append(value)
            return _Tensor(tuple(value.shape), value.dtype)

        return _map(self._kept, leave_out)

    def make_room(self, description: Any, memory: list[torch.Tensor], alike: list[torch.Tensor]) -> None:
        """Replaces what is kept by what was described elsewhere, of which the tensors are still to come."""

        def room(value: Any, kept: Any) -> Any:
            if not isinstance(value, _Tensor):
                return value
            tensor = value.room(kept if isinstance(kept, torch.Tensor) else None)
            (alike if value.alike else memory).append(tensor)
            return tensor

        self._kept = _map(description, room, self._kept)


class ModelStateHandler(StateDictHandler):
    """Keeps the parameters and buffers of a ``torch.nn.Module``."""

    def make_room(self, description: Any, memory: list[torch.Tensor], alike: list[torch.Tensor]) -> None:
        own = {name: _shape(tensor) for name, tensor in self.value.state_dict().items()}
        other = {name: _shape(tensor) for name, tensor in description.items()}
        for name in [*own, *other]:
            if own.get(name) != other.get(name):
                raise ValueError(
                    f"rank {rank()}: this process has another model than the job that it joins: "
                    f"{name} is {_text(own.get(name))} here and {_text(other.get(name))} there"
                )
        super().make_room(description, memory, alike)


def _shape(value: Any) -> tuple[tuple[int, ...], torch.dtype] | None:
    """Returns what must be equal in all processes; extra state of a module may have any size."""
    return (tuple(value.shape), value.dtype) if isinstance(value, (torch.Tensor, _Tensor)) else None


def _is_plain(tensor: torch.Tensor) -> bool:
    """Returns true if the bytes of the tensor follow one another in host memory."""
    return tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.is_contiguous()


def _text(shape: tuple[tuple[int, ...], torch.dtype] | None) -> str:
    return f"a tensor {list(shape[0])} of {shape[1]}" if shape else "missing"


class OptimizerStateHandler(StateDictHandler):
    """Keeps the hyperparameters and the state of a ``torch.optim.Optimizer``."""


class SamplerStateHandler(StateDictHandler):
    """Keeps the progress of an ``ElasticSampler``, which divides the rest of the epoch at each change."""

    def reset(self) -> None:
        self.value.reset()


@runtime_checkable
class HasStateDict(Protocol):
    """The type of whatever has ``state_dict`` and ``load_state_dict``, for the registry."""

    def state_dict(self) -> Any:
        """Returns the contents."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Takes the contents over."""


_registry: list[tuple[Any, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (HasStateDict, StateDictHandler),
]


def get_handler_registry() -> list[tuple[Any, type[StateHandler]]]:
    """Returns which handler keeps values of which type; the first type that fits counts."""
    return [*_registry]


def set_handler_registry(registry: list[tuple[Any, type[StateHandler]]]) -> None:
    """Replaces the list of ``get_handler_registry``, for states that are made from now on."""
    _registry[:] = registry


def _kept_by(handler: StateHandler) -> dict[str, Any]:
    """Returns a copy of what a handler keeps beside its value."""
    kept = {name: each for name, each in vars(handler).items() if name != "value"}
    return copy.deepcopy(kept, {id(handler.value): handler.value})


def _handler_of(value: Any) -> StateHandler | None:
    return next((handler(value) for kind, handler in _registry if isinstance(value, kind)), None)


class _Generators:
    """Keeps the generators of random numbers of this process, each rank its own."""

    def __init__(self) -> None:
        self.save()

    def save(self) -> None:
        """Keeps where they are."""
        numpy = sys.modules.get("numpy")
        self._kept = random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def restore(self) -> None:
        """Goes back to where they were."""
        python, own, numpy = self._kept
        random.setstate(python)
        torch.set_rng_state(own)
        if numpy:
            sys.modules["numpy"].random.set_state(numpy)
        if self._devices:
            torch.cuda.set_rng_state_all(self._devices)


class TorchState(ObjectState):
    """The state of training: models, optimizers, samplers, schedulers, and any other values by name.

    ``commit`` copies all of it into memory that is kept: what a ``DistributedOptimizer`` updates and keeps
    once for each host, concurrently with the next forward and backward pass. A value without a handler is
    copied by ``copy.deepcopy``, and must be picklable to be sent to ranks that join.

    Args:
        model: a model; more can be given by name.
        optimizer: its optimizer, also a ``DistributedOptimizer``; more can be given by name.
        global_batch: batches of the loader that all ranks together make a step of, whatever their number;
            see ``steps``. None: each rank makes its own number, of ``backward_passes_per_step``.
        rng: each rank also keeps its generators of random numbers: Python's, NumPy's and PyTorch's.
        kwargs: further values. ``state.name`` reads them, and assigning to it replaces them.

    Example::

        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        global_batch: int | None = None,
        rng: bool = False,
        **kwargs: Any,
    ) -> None:
        self._global_batch, self._generators = global_batch, _Generators() if rng else None
        given = {"model": model, "optimizer": optimizer}
        values = {name: value for name, value in given.items() if value is not None} | kwargs
        handlers = {name: _handler_of(value) for name, value in values.items()}
        self._handlers = {name: handler for name, handler in handlers.items() if handler}
        for name in self._handlers:
            object.__setattr__(self, name, values.pop(name))
        for name in given:
            self.__dict__.setdefault(name, None)
        super().__init__(broadcast_object, rank, **values)
        self._commit.host_copy = self._host_copy = HostCopy()
        self._watched: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._joined = False  # the host's copy is that of the job
        for name in self._handlers.keys() - self._sent().keys():
            self._commit.share = self._share
            try:
                _kept_by(self._handlers[name])
            except Exception as error:
                raise ValueError(
                    f"the handler {type(self._handlers[name]).__name__} of {name} keeps what can't be copied "
                    f"by copy.deepcopy: {error}"
                ) from error
        self.passes = 1  # of this rank in a step
        self._divide()

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        super().__setattr__(name, value)
        if handler:
            handler.set_value(value)
            self._divide()

    def save(self) -> None:
        """Copies everything; when all ranks do so, what they have alike once for each host."""
        self._wait_for_file()
        if self._generators:
            self._generators.save()
        if self._together and self._joined and _core.is_initialized():
            alike = self._keep(self._find_alike())
            super().save()
            self._host_copy.save(alike, _counts(alike), self._own_parts)
            return
        if not self._keep_reference():
            self._keep(frozenset())
            self._host_copy.forget()
        super().save()

    def _keep_reference(self) -> bool:
        """Keeps what the host's copy has as it was at the last commit; returns false if it has changed."""
        tensors = self._host_copy.tensors
        if not self._host_copy.is_clean(_counts(tensors)):
            return False
        addresses = [each.data_ptr() for each in tensors]
        return [each.data_ptr() for each in self._keep({*addresses})] == addresses

    def restore(self) -> None:
        """Goes back to what was copied."""
        self._wait_for_file()
        self._host_copy.restore(_counts(self._host_copy.tensors))
        for handler in self._handlers.values():
            handler.restore()
        if self._generators:
            self._generators.restore()
        super().restore()
        self._host_copy.restored(_counts(self._host_copy.tensors))

    def _keep(self, addresses: Set[int]) -> list[torch.Tensor]:
        """Lets the handlers copy all but the tensors at these addresses, which it returns."""
        alike: dict[int, torch.Tensor] = {}
        sent = self._sent().values()
        for handler in sent:
            handler.alike = addresses
        for handled in self._handlers.values():
            handled.save()
        for handler in sent:
            handler.alike = frozenset()
            alike.update((each.data_ptr(), each) for each in handler.alike_tensors())
        return [*alike.values()]

    def _find_alike(self) -> Set[int]:
        """Returns the addresses of the tensors that are equal on all ranks and change in steps only."""
        found: set[int] = set()
        for handler in self._sent().values():
            optimizer = handler.value
            if not isinstance(handler, OptimizerStateHandler) or not is_equal_on_all_ranks(optimizer):
                continue
            self._watch(optimizer)
            parts = [each for group in optimizer.param_groups for each in group["params"]]
            parts += [each for state in optimizer.state.values() for each in state.values()]
            found.update(each.data_ptr() for each in parts if isinstance(each, torch.Tensor))
        return found - {0}  # of tensors without elements

    def _wait_for_file(self) -> None:
        """Waits until a commit that is being written no longer needs the tensors."""
        if self._commit.files:
            self._commit.files.wait()

    def _watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes the next steps of the optimizer wait for the copy."""
        if optimizer in self._watched:
            return
        me = weakref.ref(self)

        def before_step(*_: Any) -> None:
            state = me()
            if state:
                state._wait_for_file()
                state._host_copy.before_step(_counts(state._host_copy.tensors))

        optimizer.register_step_pre_hook(before_step)
        self._watched.add(optimizer)

    def sync(self) -> None:
        """Makes the values of all ranks equal; samplers divide the rest of the epoch anew."""
        super().sync()
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler) and not self._joins:
                handler.reset()  # rank 0, whose progress counts, has received nothing
        self._divide()  # a process that joins may have another place than was planned
        if _core.is_initialized():
            self._joined = True
            alike = self._keep(self._find_alike())
            self._host_copy.save(alike, _counts(alike), self._own_parts)

    def reset(self) -> None:
        """Makes samplers divide the rest of the epoch among the ranks that there are now."""
        for handler in self._handlers.values():
            handler.reset()
        self._divide()
        super().reset()

    def _divide(self) -> None:
        """Gives this rank its passes of a step, if all ranks together make a given number."""
        if self._global_batch is None:
            return
        if self._global_batch < size():
            raise ValueError(
                f"global_batch={self._global_batch} is too small for {size()} ranks, which make a pass "
                "each in every step; start fewer, or limit them by --max-np"
            )
        self.passes = len(share(self._global_batch, size(), rank()))
        for handler in self._handlers.values():
            reducer = getattr(handler.value, "_hvd", None)
            if isinstance(handler.value, ElasticSampler):
                handler.value.divide(self._global_batch)
            elif isinstance(reducer, Reducer):
                if reducer.rules.op not in (Average, Sum):
                    raise ValueError("global_batch needs a DistributedOptimizer with op=Average or op=Sum")
                reducer.set_passes(self.passes)
                reducer.set_weight(size() / self._global_batch if reducer.rules.op == Average else 1.0)

    def steps(self, loader: torch.utils.data.DataLoader[Any]) -> Iterator[list[Any]]:
        """Gives the batches of each step, ``state.passes`` of them: with ``global_batch``.

        The loader has a ``batch_size`` and an ``ElasticSampler`` that belongs to this state. The same samples
        belong to a step for every number of ranks; those that are too few for one are left out.

        Example::

            for batches in state.steps(loader):
                for number, (x, y) in enumerate(batches):
                    torch.nn.functional.cross_entropy(model(x), y).backward()
                    state.sampler.record_batch(number, len(x))
                optimizer.step()
                optimizer.zero_grad()
                state.commit()
        """
        if self._global_batch is None or not loader.batch_size:
            raise ValueError("steps() needs TorchState(global_batch=…) and a loader with a batch_size")
        batches = iter(loader)
        for _ in range(len(loader.sampler) // (loader.batch_size * self.passes)):  # type: ignore[arg-type]
            yield list(itertools.islice(batches, self.passes))

    def _share(self) -> None:
        own = [handler for name, handler in self._handlers.items() if name not in self._sent()]
        before = [_kept_by(handler) for handler in own]
        try:
            for handler in own:
                handler.sync()
                handler.save()
        except BaseException:  # rank 0 may be lost: this process goes back to its own commit as a whole
            for handler, kept in zip(own, before, strict=True):
                vars(handler).update(kept)
                handler.restore()
            raise

    def _sent(self) -> dict[str, StateDictHandler]:
        """Returns the handlers whose contents are sent as memory; the others have a way of their own."""
        return {
            name: handler
            for name, handler in self._handlers.items()
            if isinstance(handler, StateDictHandler) and type(handler).sync is StateDictHandler.sync
        }

    def _describe(self) -> tuple[Any, list[Any]]:
        memory: list[torch.Tensor] = []
        alike: dict[int, torch.Tensor] = {}
        handled = {name: handler.describe(memory, alike) for name, handler in self._sent().items()}
        objects, _ = super()._describe()
        self._commit.host_copy_parts = len(alike)
        return (objects, handled), [_bytes(each) for each in [*memory, *alike.values()]]

    def _copy_to_keep(self) -> None:
        """Does nothing: ``save`` does it."""

    def _own_parts(self) -> list[Any]:
        own, *memory = super()._own_parts()
        return [own, *(each.clone() for each in memory)]  # the next commit writes there while it is copied

    def _make_room(self, description: Any) -> list[Any]:
        objects, handled = description
        memory: list[torch.Tensor] = []
        alike: list[torch.Tensor] = []
        sent = self._sent()
        if sent.keys() != handled.keys():
            raise ValueError(
                f"rank {rank()}: the state of this process has {', '.join(sent) or 'no tensors'}, that of "
                f"the job which it joins has {', '.join(handled) or 'none'}"
            )
        self._host_copy.forget()
        for name, handler in sent.items():
            handler.make_room(handled[name], memory, alike)
        super()._make_room(objects)
        return [_bytes(each) for each in memory + alike]


def _counts(tensors: list[torch.Tensor]) -> list[int]:
    """Returns how often each of the tensors has been written, as far as PyTorch counts that."""
    return [each._version for each in tensors]


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)
