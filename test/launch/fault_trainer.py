"""A rank that trains a small network on data from forked workers. Argument: who kills itself at step 20."""

import os
import signal
import sys
import time

import torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError


def train(victim: int) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=1, persistent_workers=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    while True:
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            if step == 20 and hvd.rank() == victim:
                print(f"VICTIM {time.monotonic():.6f}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    hvd.init()
    torch.set_num_threads(1)
    try:
        train(int(sys.argv[1]))
    except HorovodInternalError as error:
        print(f"RAISED {time.monotonic():.6f} {error}", flush=True)
    try:
        hvd.allreduce(torch.ones(1), name="later")
    except HorovodInternalError:
        print("REFUSED", flush=True)


if __name__ == "__main__":
    main()
