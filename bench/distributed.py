"""Compares torch.distributed on this engine with Gloo: collectives, and training steps with 24 MiB of
gradients.

    python bench/distributed.py                 needs horovodrun in PATH

Blocking calls on 2 ranks. A step is forward, backward and SGD of six layers with 1,024 units: by
DistributedDataParallel with its own buckets and with gradients that are in them from the start, by FSDP2
(fully_shard of each layer), and for comparison by DistributedOptimizer of horovod.torch. The same steps
without communication bound all of these.
"""

from __future__ import annotations

import sys

import compare
import publish

ENGINE = compare.python_peer("torch.distributed, horovod", "peer_torch.py", "engine")
GLOO = compare.python_peer("torch.distributed, Gloo", "peer_torch.py", "gloo", beside=ENGINE.name)
TORCH = compare.python_peer("horovod.torch", "peer_torch.py", "horovod", beside=ENGINE.name)
ALONE = compare.python_peer("no communication", "peer_torch.py", "alone", beside=ENGINE.name)
WORD, MIDDLE, LARGE, WEIGHTS = 4, 4 << 20, 64 << 20, 24 << 20
CASES = {
    f"allreduce:{WORD}": "all_reduce",
    f"allreduce:{MIDDLE}": "all_reduce",
    f"allreduce:{LARGE}": "all_reduce",
    f"allgather:{MIDDLE}": "all_gather_into_tensor",
    f"reducescatter:{MIDDLE}": "reduce_scatter_tensor",
    f"step-ddp:{WEIGHTS}": "step of DDP",
    f"step-ddp-viewed:{WEIGHTS}": "step of DDP with bucket views",
    f"step-fsdp2:{WEIGHTS}": "step of FSDP2",
    f"step-optimizer:{WEIGHTS}": "step of DistributedOptimizer",
}


def main() -> int:
    """Measures and writes; 1 if a peer failed."""
    args = compare.arguments(__doc__, seconds=60)
    return publish.two_ranks(args, "distributed", [ENGINE, GLOO, TORCH, ALONE], CASES)


if __name__ == "__main__":
    sys.exit(main())
