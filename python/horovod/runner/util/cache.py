"""A cache of results on disk, for programs that start jobs. horovodrun itself does not use it."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = "cache.json"


class Cache:
    """Values that expire, in a file. A file that was written for other parameters is not used. Any thread.

    Keys are compared by their ``repr``; values must be representable in JSON.
    """

    def __init__(
        self, cache_folder: str, cache_staleness_threshold_in_minutes: float, parameters_hash: str
    ) -> None:
        self._path = Path(cache_folder) / FILE
        self._seconds = 60 * cache_staleness_threshold_in_minutes
        self._lock = threading.Lock()
        self._content: dict[str, Any] = {"parameters_hash": parameters_hash}
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            content = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):  # none yet, or one that was cut
            return
        if isinstance(content, dict) and content.get("parameters_hash") == parameters_hash:
            self._content = content

    def get(self, key: Any) -> Any:
        """Returns the value; None if there is none or if it has expired."""
        with self._lock:
            value, written = self._content.get(repr(key), (None, 0.0))
        return value if time.time() - written <= self._seconds else None

    def put(self, key: Any, val: Any) -> None:
        """Writes the value to the file."""
        with self._lock:
            self._content[repr(key)] = (val, time.time())
            part = self._path.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(self._content))
            part.replace(self._path)


def use_cache() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds the parameter ``fn_cache``: a Cache whose results are not computed again,
    or None."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, fn_cache: Cache | None = None, **kwargs: Any) -> Any:
            key = (args, *sorted(kwargs.items()))
            found = None if fn_cache is None else fn_cache.get(key)
            if found is None:
                found = function(*args, **kwargs)
                if fn_cache is not None:
                    fn_cache.put(key, found)
            return found

        return call

    return wrap
