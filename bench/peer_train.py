"""Trains small networks on random data, for bench/train.py: microseconds a step, one file a rank.

    horovodrun -np N python bench/peer_train.py horovod|ddp|apart|idle SECONDS RESULTS NETWORK:BATCH...

apart: every rank trains alone, which is what N ranks could do if communication cost nothing. idle: the same
after hvd.init(), which nobody uses.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

WARM_UP = 2
SHARE = 10  # of the seconds of a collective's case: training steps are long


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions; the input is added at the end."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            *(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()),
            *(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        narrow = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.shortcut = nn.Sequential(narrow, nn.BatchNorm2d(outputs)) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.way(x) + self.shortcut(x))


def resnet18() -> nn.Module:
    """For images of 32 x 32: 11.2 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        layers += [BasicBlock(inputs, outputs, outputs // inputs), BasicBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def cnn() -> nn.Module:
    """For digits: 1.2 million parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def mlp() -> nn.Module:
    """5.8 million parameters and little to compute: bound by communication."""
    wide = 2048
    return nn.Sequential(
        *(nn.Linear(784, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU()),
        nn.Linear(wide, 10),
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (cnn, (1, 28, 28)),
    "resnet18": (resnet18, (3, 32, 32)),
    "mlp": (mlp, (784,)),
}


class Library:
    """How a training loop is made parallel; `apart` not at all."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        if name in ("horovod", "idle"):
            import horovod.torch as hvd

            hvd.init()
            self.hvd, self.rank = hvd, hvd.rank()
            return
        self.rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
        if name == "ddp":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            store = f"file://{folder / 'store'}"
            torch.distributed.init_process_group("gloo", init_method=store, rank=self.rank, world_size=size)

    def prepare(self, model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if self.name == "horovod":
            self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            optimizer = self.hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        if self.name == "ddp":
            model = nn.parallel.DistributedDataParallel(model)
        return model, optimizer

    def longest(self, seconds: float) -> float:
        """All ranks must take the same number of steps."""
        value = torch.tensor(seconds)
        if self.name == "horovod":
            value = self.hvd.allreduce(value, op=self.hvd.Max, name="longest")
        if self.name == "ddp":
            torch.distributed.all_reduce(value, torch.distributed.ReduceOp.MAX)
        return value.item()

    def close(self) -> None:
        if self.name in ("horovod", "idle"):
            self.hvd.shutdown()
        if self.name == "ddp":
            leave_gloo()


def leave_gloo() -> None:
    """Ends the process without the interpreter's end, in which Gloo's threads now and then abort."""
    torch.distributed.barrier()
    os._exit(0)


def step_time(library: Library, network: str, batch: int, seconds: float) -> float:
    """Mean seconds of a step."""
    make, shape = NETWORKS[network]
    torch.manual_seed(1)
    model, optimizer = library.prepare(make())
    images, labels = torch.randn(batch, *shape), torch.randint(10, (batch,))

    def steps(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        return (time.perf_counter() - start) / count

    steps(WARM_UP)
    return steps(max(int(seconds / library.longest(steps(1))), 2))


def main() -> None:
    """Trains every network for a while."""
    name, seconds, folder, *cases = sys.argv[1:]
    torch.set_num_threads(1)
    library = Library(name, Path(folder))
    with (Path(folder) / str(library.rank)).open("w") as results:
        for case in cases:
            network, batch = case.split(":")
            seconds_a_step = step_time(library, network, int(batch), SHARE * float(seconds))
            results.write(f"{case},{1e6 * seconds_a_step:.3f}\n")
    library.close()


if __name__ == "__main__":
    main()
