"""Trains a small network, its gradients submitted in an order that changes from rank to rank and run
to run (argv[1]); rank 0 prints a hash of the weights."""

from __future__ import annotations

import hashlib
import random
import sys

import numpy as np

import horovod as hvd

hvd.init()
same = np.random.default_rng(3)
sizes = {"0.weight": (40, 150), "0.bias": (150,), "1.weight": (150, 3), "1.bias": (3,)}
weights = {name: same.uniform(-0.1, 0.1, size) for name, size in sizes.items()}
order = random.Random(f"{sys.argv[1]} {hvd.rank()}")
own = np.random.default_rng(hvd.rank())
names = list(weights)
for _ in range(20):
    x = own.standard_normal((8, 40))
    hidden = np.tanh(x @ weights["0.weight"] + weights["0.bias"])
    error = hidden @ weights["1.weight"] + weights["1.bias"] - np.sin(x[:, :3])
    back = error @ weights["1.weight"].T * (1 - hidden**2)
    gradients = {
        "0.weight": x.T @ back,
        "0.bias": back.sum(0),
        "1.weight": hidden.T @ error,
        "1.bias": error.sum(0),
    }
    order.shuffle(names)
    handles = [hvd.allreduce_async_(gradients[name], name=name) for name in names]
    order.shuffle(handles)
    for handle in handles:
        hvd.synchronize(handle)
    for name, weight in weights.items():
        weight -= 0.01 * gradients[name]
if hvd.rank() == 0:
    print(hashlib.sha256(b"".join(weight.tobytes() for weight in weights.values())).hexdigest())
