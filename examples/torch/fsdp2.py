"""Sharded weights (FSDP2) on this engine: a script for Gloo, with one word changed.

    horovodrun -np 2 python examples/torch/fsdp2.py
    torchrun --nproc-per-node 2 examples/torch/fsdp2.py

Every rank holds its share of the weights, of the gradients and of the optimizer's state, and has its own
piece of [-1, 1]; together they learn y = sin(2πx) + sin(4πx). Replace "horovod" in init_process_group
by "gloo", start it by torchrun, and the errors are the same.

You see: how many of the weights a rank holds, the mean loss while it falls, and the error on the whole
interval.
"""

import interval
import torch
import torch.distributed as dist
import two_waves as waves
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import horovod.torch.distributed  # noqa: F401


def main() -> None:
    args = interval.arguments(__doc__, points=16, steps=1000, width=16)
    torch.set_num_threads(1)
    dist.init_process_group("horovod")
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)  # the shards are cut from equal weights
    model = interval.network(args.depth, args.width)
    mesh = init_device_mesh("cpu", (size,))
    for layer in (*(each for each in model if isinstance(each, torch.nn.Linear)), model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    if rank == 0:
        own = sum(weight.to_local().numel() for weight in model.parameters())
        print(f"rank 0 holds {own} of {sum(weight.numel() for weight in model.parameters())} weights")

    def report(step: int, loss: torch.Tensor) -> None:
        dist.all_reduce(loss)
        if rank == 0:
            print(f"step {step:5d} of {args.steps}   loss {loss.item() / size:.2e}", flush=True)

    waves.fit(model, optimizer, interval.points(interval.piece(rank, size), args.points), args.steps, report)

    x = interval.points((interval.LEFT, interval.RIGHT), 101)
    error = waves.relative_error(x, waves.predict(model, x))  # all ranks: a prediction gathers the weights
    if rank == 0:
        print(f"relative L2 error {error:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
