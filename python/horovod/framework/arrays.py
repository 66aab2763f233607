"""How calls run on the arrays of a framework: in their memory or on copies. NumPy's arrays are an example."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from horovod import _core
from horovod.common.util import FRAMEWORKS, extension_available
from horovod.framework.handles import Handle
from horovod.framework.requests import A, Call

T = TypeVar("T")


class Arrays(Protocol[A]):
    """Runs calls on a framework's arrays, which are of one of two kinds: see the next two classes."""

    def start(self, call: Call[A, T], in_place: bool = False) -> Handle[T]:
        """Submits the request; the handle's ``wait`` returns the outcome of the call."""

    def run(self, call: Call[A, Any], in_place: bool = False) -> list[A]:
        """Submits the request and waits; the calling thread does the work itself."""


class MemoryArrays(Arrays[A], Protocol[A]):
    """Arrays in memory, which the engine reads and writes through DLPack or the buffer protocol."""

    def dense(self, array: A) -> A:
        """Returns the array itself, or a copy that is dense and row-major."""

    def empty_like(self, array: A) -> A:
        """Returns an uninitialised array for a result of the same shape and type."""

    def adopt(self, result: _core.Result) -> A:
        """Returns an array over memory of the engine, without a copy."""

    def start(self, call: Call[A, T], in_place: bool = False) -> Handle[T]:
        inputs, outputs = self._memory(call, in_place)
        pick = call.pick

        def adopt_and_pick(results: list[_core.Result]) -> T:
            return pick([self.adopt(result) for result in results])

        finish = adopt_and_pick if call.request.operation.results else pick
        return _core.submit(
            call.request, call.name, inputs, outputs=outputs, splits=call.splits, finish=finish
        )

    def run(self, call: Call[A, Any], in_place: bool = False) -> list[A]:
        inputs, outputs = self._memory(call, in_place)
        results = _core.run(call.request, call.name, inputs, outputs=outputs, splits=call.splits)
        if results is not None:
            return [self.adopt(result) for result in results]
        return inputs if outputs is None else outputs

    def _memory(self, call: Call[A, Any], in_place: bool) -> tuple[list[A], list[A] | None]:
        if in_place:
            return list(call.tensors), None
        inputs = [self.dense(tensor) for tensor in call.tensors]
        if call.request.operation.results:  # the engine makes them
            return inputs, None
        return inputs, [self.empty_like(tensor) for tensor in inputs]


def as_numpy(array: Any) -> Any:
    """Returns the array as one of NumPy, over the same memory if this process can share it.

    Raises:
        ValueError: the array has no values here, such as a tensor that ``jax.jit`` or ``tf.function`` traces.
    """
    import numpy as np

    try:
        # asarray does not try DLPack, and TensorFlow aborts the process if DLPack is asked for strings.
        by_dlpack = not hasattr(array, "__array__") and hasattr(array, "__dlpack__")
        known = np.from_dlpack(array) if by_dlpack else np.asarray(array)
    except Exception as error:
        raise ValueError(_refusal(type(array), error)) from error
    return known


def _refusal(kind: type, error: Exception) -> str:
    cause = str(error).partition("\n")[0].rstrip(".")
    text = f"{kind.__name__} can't be read as a NumPy array: {cause}"
    framework = kind.__module__.partition(".")[0]
    if framework not in FRAMEWORKS:
        return text
    if extension_available(framework):
        return f"{text}; `import horovod.{framework} as hvd` takes it"
    return f"{text}; horovod.{framework} would take it, but is not in this version: call this untraced"


class NumPyArrays(MemoryArrays[Any]):
    """NumPy's arrays; other arrays are converted to them."""

    def dense(self, array: Any) -> Any:
        known = as_numpy(array)
        return known if known.flags.c_contiguous else known.copy()

    def empty_like(self, array: Any) -> Any:
        import numpy as np

        return np.empty_like(array)

    def adopt(self, result: _core.Result) -> Any:
        import numpy as np

        # Through the buffer protocol: before NumPy 2 from_dlpack makes read-only arrays, and refuses bool.
        array = np.asarray(result)
        # The buffer protocol shows bytes; the package of the tensor's type has registered it with NumPy.
        return array.view(result.dtype) if array.dtype.kind == "V" else array


class CopiedArrays(Arrays[A], Protocol[A]):
    """Arrays that the engine cannot reach: their values are copied to arrays of NumPy and back.

    A framework with such arrays has no functions that work in place.
    """

    def values(self, array: A) -> Any:
        """Returns the values as an array of NumPy; waits until they are computed."""

    def array(self, values: Any, like: A) -> A:
        """Returns a new array with these values, of the same kind and on the same device as ``like``."""

    def start(self, call: Call[A, T], in_place: bool = False) -> Handle[T]:
        given, pick = call.tensors, call.pick
        call.pick = lambda results: pick(self._arrays(results, given))
        call.tensors = [self.values(array) for array in given]
        return _NUMPY.start(call)

    def run(self, call: Call[A, Any], in_place: bool = False) -> list[A]:
        given = call.tensors
        call.tensors = [self.values(array) for array in given]
        return self._arrays(_NUMPY.run(call), given)

    def _arrays(self, results: list[Any], given: Sequence[A]) -> list[A]:
        """Returns arrays with the results of an operation on the given arrays; alltoall has two for each."""
        return [self.array(result, like) for result, like in zip(results, itertools.cycle(given))]


_NUMPY = NumPyArrays()
