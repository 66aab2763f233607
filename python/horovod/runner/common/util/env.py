"""The environment of a rank."""

from __future__ import annotations

import os
import re

# Functions of bash, which other shells can't read, and variables that belong to one process.
IGNORED = (r"BASH_FUNC_.*", "OLDPWD", r".*CUDA_VISIBLE_DEVICES")


def is_exportable(v: str) -> bool:
    """Returns true if a rank may get the variable of this name."""
    return not any(re.fullmatch(pattern, v) for pattern in IGNORED)


def get_env_rank_and_size() -> tuple[int, int]:
    """This process's rank and the number of ranks as the launcher has set them; (0, 1) without a launcher."""
    return int(os.environ.get("HOROVOD_RANK", "0")), int(os.environ.get("HOROVOD_SIZE", "1"))
