"""Ranks as actors of a Ray cluster: docs/ray.md.

``horovod.ray.train`` has the trainer for Ray Train. Ray is imported when a name is first used.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from horovod.ray.elastic import ElasticRayExecutor as ElasticRayExecutor
    from horovod.ray.runner import RayExecutor as RayExecutor
    from horovod.ray.worker import BaseHorovodWorker as BaseHorovodWorker

_MODULES = {"BaseHorovodWorker": "worker", "ElasticRayExecutor": "elastic", "RayExecutor": "runner"}
__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(_importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ImportError(f"horovod.ray.{name} needs Ray: pip install 'horovod[ray]'") from error
