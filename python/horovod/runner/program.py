"""Finds the program horovodrun."""

from __future__ import annotations

import os
import shutil


def horovodrun() -> str:
    """Returns the path of the program that was installed with this package."""
    import importlib.metadata  # takes longer than all other imports of the runner

    try:
        files = importlib.metadata.files("horovod") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    own = (str(file.locate()) for file in files if file.name == "horovodrun")
    path = next(filter(os.path.exists, own), None) or shutil.which("horovodrun")
    if not path:
        raise FileNotFoundError("horovodrun is neither beside this package nor on the PATH: install horovod")
    return os.path.abspath(path)
