"""Compares steps of Keras's fit on this engine with TensorFlow's MultiWorkerMirroredStrategy.

    python bench/keras_fit.py           needs horovodrun in PATH

The model is a multilayer perceptron on random data, Keras 3 on TensorFlow, 64 rows per rank and step. The
ceiling is two processes that train at the same time and exchange nothing.
"""

from __future__ import annotations

import sys

import compare
import publish

ENGINE = compare.python_peer("horovod.keras", "peer_keras.py", "horovod")
STRATEGY = compare.python_peer("MultiWorkerMirroredStrategy", "peer_keras.py", "strategy", beside=ENGINE.name)
APART = compare.python_peer("apart", "peer_keras.py", "apart", beside=ENGINE.name)
GRADIENTS = 4 * (784 * 1536 + 1536 + 1536 * 1536 + 1536 + 1536 * 10 + 10)
CASE = f"fit:{GRADIENTS}"


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=200)
    return publish.two_ranks(args, "keras_fit", [ENGINE, STRATEGY, APART], {CASE: "a step of fit"})


if __name__ == "__main__":
    sys.exit(main())
