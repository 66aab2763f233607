"""Trains a small network, its gradients submitted in an order that changes from rank to rank and run
to run (argv[1]); rank 0 prints a hash of the weights."""

from __future__ import annotations

import hashlib
import random
import sys

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(3)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(40, 150), torch.nn.Tanh(), torch.nn.Linear(150, 3)).double()
order = random.Random(f"{sys.argv[1]} {hvd.rank()}")
generator = torch.Generator().manual_seed(hvd.rank())
named = list(model.named_parameters())
for _ in range(20):
    x = torch.randn(8, 40, generator=generator, dtype=torch.float64)
    loss = (model(x) - x[:, :3].sin()).square().mean()
    model.zero_grad()
    loss.backward()
    order.shuffle(named)
    handles = [hvd.allreduce_async_(weight.grad, name=name) for name, weight in named]
    order.shuffle(handles)
    for handle in handles:
        hvd.synchronize(handle)
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.1 * weight.grad
if hvd.rank() == 0:
    weights = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
    print(hashlib.sha256(weights).hexdigest())
