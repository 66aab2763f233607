"""Warnings at the line of the program that calls Horovod."""

from __future__ import annotations

import sys
import warnings


def warn_caller(text: str, category: type[Warning] = DeprecationWarning) -> None:
    """Warns at the line of the program: Python hides a DeprecationWarning of any other line."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "horovod":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
