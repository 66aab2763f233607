"""Texts that programs search for."""

from __future__ import annotations

# As src/membership/epochs.c says it.
RESET_LIMIT_EXCEEDED_MESSAGE = (
    "Horovod was shutdown because number of resets during elastic job exceeded limit: {}"
)
