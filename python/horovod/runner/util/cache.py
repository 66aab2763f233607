"""Results that a program that starts jobs keeps for its next runs. horovodrun itself keeps nothing."""

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
    """Values in a file of a folder, which get too old; a file for other parameters starts anew.

    Keys may be anything whose ``repr`` tells them apart, values whatever JSON can hold.
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
        """Returns the value, None if there is none or it is too old."""
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
    """A decorator: calls take ``fn_cache``, a Cache or None, and results in it are not computed again."""

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
