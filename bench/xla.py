"""Compares compiled JAX programs on this engine with JAX's own collectives over Gloo.

    python bench/xla.py                 needs horovodrun in PATH

Calls on 2 ranks, each until its result is available: of a program without a collective, with one allreduce,
and with 50 that do not depend on each other. A blocking call of horovod.torch is timed for comparison.
"""

from __future__ import annotations

import sys

import compare
import publish

ENGINE = compare.python_peer("horovod.jax", "peer_jax.py", "horovod")
GLOO = compare.python_peer("JAX, Gloo", "peer_jax.py", "gloo", beside=ENGINE.name)
TORCH = compare.python_peer("horovod.torch", "peer_torch.py", "horovod", beside=ENGINE.name)
WORD, MIDDLE, LARGE = 4, 4 << 20, 64 << 20
CASES = {
    f"empty:{WORD}": "no collective",
    f"allreduce:{WORD}": "allreduce",
    f"allreduce:{MIDDLE}": "allreduce",
    f"allreduce:{LARGE}": "allreduce",
    f"many:{WORD}": "50 allreduces at once",
}


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=60)
    return publish.two_ranks(args, "xla", [ENGINE, GLOO, TORCH], CASES)


if __name__ == "__main__":
    sys.exit(main())
