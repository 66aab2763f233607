"""Compares functions of TensorFlow on this engine with blocking calls of horovod.torch.

    python bench/graphs.py              needs horovodrun in PATH

Calls on 2 ranks, each until its result is available: of a function without a collective, with one allreduce,
with 50 in a chain, and with 50 that do not depend on each other.
"""

from __future__ import annotations

import sys

import compare
import publish

TORCH = compare.python_peer("horovod.torch", "peer_torch.py", "horovod")
ENGINE = compare.python_peer("horovod.tensorflow", "peer_tensorflow.py", beside=TORCH.name)
WORD, MIDDLE = 4, 4 << 20
CASES = {
    f"empty:{WORD}": "no collective",
    f"allreduce:{WORD}": "allreduce",
    f"chain:{WORD}": "50 allreduces in a chain",
    f"many:{WORD}": "50 allreduces at once",
    f"empty:{MIDDLE}": "no collective",
    f"allreduce:{MIDDLE}": "allreduce",
    f"allreduce-new:{MIDDLE}": "allreduce, result in new memory",
}


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=40)
    return publish.two_ranks(args, "graphs", [TORCH, ENGINE], CASES)


if __name__ == "__main__":
    sys.exit(main())
