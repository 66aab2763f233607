"""NumPy's arrays for the collectives, and any other framework's as NumPy sees them."""

from __future__ import annotations

from typing import Any

from horovod import _core
from horovod.common.util import FRAMEWORKS, extension_available
from horovod.requests import Arrays


def as_numpy(array: Any) -> Any:
    """The array for NumPy, over its own memory where it lies in this process's and may be shared.

    Raises:
        ValueError: it has no values here, such as a tensor that ``jax.jit`` or ``tf.function`` traces.
    """
    import numpy as np

    try:
        # NumPy looks at DLPack only when asked to; TensorFlow aborts the process when that is of strings.
        by_dlpack = hasattr(array, "__dlpack__") and not hasattr(array, "__array__")
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


class NumPyArrays(Arrays[Any]):
    """NumPy's arrays; all others are read as such."""

    def dense(self, array: Any) -> Any:
        import numpy as np

        known = as_numpy(array)
        return known if known.flags.c_contiguous else np.ascontiguousarray(known)

    def empty_like(self, array: Any) -> Any:
        import numpy as np

        return np.empty_like(array)

    def adopt(self, result: _core.Result) -> Any:
        import numpy as np

        # By the buffer protocol: from_dlpack of NumPy before 2 makes read-only arrays, and none of bool.
        array = np.asarray(result)
        # Bytes to the buffer protocol; whoever made the tensor has registered the type with NumPy.
        return array.view(result.dtype) if array.dtype.kind == "V" else array
