"""Measures images per second of training a well-known network on random images: a first check of scaling.

    horovodrun -np 2 python examples/torch/synthetic_benchmark.py --model resnet50 --batch-size 16

Every rank trains repeatedly on its own random batch; Horovod averages the gradients. Compare the total of n
ranks with n times that of one rank (run it without horovodrun): the difference is the cost of communication
and of sharing the machine.

You see: images per second of every iteration, then the mean of a rank and the total, each with 1.96 standard
deviations. 16-bit gradients (--fp16-allreduce) halve the bytes sent; --use-adasum combines gradients by
Adasum instead of averaging them.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import models
import torch

import horovod.torch as hvd


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(option: str, default: int, text: str) -> None:
        parser.add_argument(option, type=int, default=default, help=f"{text} (default {default})")

    parser.add_argument("--model", choices=models.MODELS, default="resnet50", help="(default resnet50)")
    add("--batch-size", 32, "images of each rank in a step")
    add("--image-size", 224, "height and width of the images")
    add("--num-warmup-batches", 10, "steps before the clock starts")
    add("--num-batches-per-iter", 10, "steps of an iteration")
    add("--num-iters", 10, "iterations")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as 16-bit floats")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients by Adasum")
    return parser.parse_args()


def training_step(args: argparse.Namespace) -> Callable[[], None]:
    """Returns a function that takes one step."""
    model = models.MODELS[args.model]()
    rate_factor = 1 if args.use_adasum else hvd.size()  # Adasum scales the step by itself
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * rate_factor)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
    labels = torch.randint(1000, (args.batch_size,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def say(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


def measure(step: Callable[[], None], args: argparse.Namespace) -> list[float]:
    """Returns this rank's images per second in each iteration."""
    say("Running warmup...")
    for _ in range(args.num_warmup_batches):
        step()
    say("Running benchmark...")
    rates = []
    for iteration in range(args.num_iters):
        start = time.perf_counter()
        for _ in range(args.num_batches_per_iter):
            step()
        seconds = time.perf_counter() - start
        rates.append(args.batch_size * args.num_batches_per_iter / seconds)
        say(f"Iter #{iteration}: {rates[-1]:.1f} img/sec per CPU")
    return rates


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(1 + hvd.rank())

    say(f"Model: {args.model}\nBatch size: {args.batch_size}\nNumber of CPUs: {hvd.size()}")
    rates = measure(training_step(args), args)
    mean, spread = statistics.fmean(rates), 1.96 * statistics.pstdev(rates)
    say(f"Img/sec per CPU: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {hvd.size()} CPU(s): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
