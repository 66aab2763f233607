"""DistributedDataParallel on this engine: a script for Gloo, with one word changed.

    horovodrun -np 2 python examples/torch/ddp.py
    torchrun --nproc-per-node 2 examples/torch/ddp.py

Every rank has its own piece of [-1, 1]; together they learn y = sin(2πx) + sin(4πx). Replace "horovod"
in init_process_group by "gloo", start it by torchrun, and the errors are the same.

You see: the mean loss while it falls, whether the weights are equal on all ranks, and the error on the whole
interval.
"""

import interval
import torch
import torch.distributed as dist
import two_waves as waves
from torch.nn.parallel import DistributedDataParallel

import horovod.torch.distributed  # noqa: F401


def main() -> None:
    args = interval.arguments(__doc__, points=16, steps=3000, width=16)
    torch.set_num_threads(1)
    dist.init_process_group("horovod")
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed + rank)  # DistributedDataParallel broadcasts rank 0's weights
    model = DistributedDataParallel(interval.network(args.depth, args.width))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)

    def report(step: int, loss: torch.Tensor) -> None:
        dist.all_reduce(loss)
        if rank == 0:
            print(f"step {step:5d} of {args.steps}   loss {loss.item() / size:.2e}", flush=True)

    waves.fit(model, optimizer, interval.points(interval.piece(rank, size), args.points), args.steps, report)

    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    gathered = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(gathered, weights)
    if rank == 0:
        equal = all(torch.equal(each, weights) for each in gathered)
        print(f"weights equal on all ranks: {'yes' if equal else 'NO'}")
        x = interval.points((interval.LEFT, interval.RIGHT), 101)
        print(f"relative L2 error {waves.relative_error(x, waves.predict(model.module, x)):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
