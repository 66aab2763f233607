"""Measures images per second of training ResNet-50 in Keras, with random images: a first check of scaling.

    KERAS_BACKEND=tensorflow horovodrun -np 2 python examples/keras/synthetic_benchmark.py --batch-size 16

Every rank trains repeatedly on its own random batch; Horovod averages the gradients. Compare the total of n
ranks with n times that of one rank (run it without horovodrun): the difference is the cost of communication
and of sharing the machine.

You see: images per second of every iteration, then the mean of a rank and the total, each with 1.96 standard
deviations. 16-bit gradients (--fp16-allreduce) halve the bytes sent.
"""

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow logs the CPU features otherwise

import keras
import numpy

import horovod.keras as hvd


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(option: str, default: int, text: str) -> None:
        parser.add_argument(option, type=int, default=default, help=f"{text} (default {default})")

    parser.add_argument("--model", default="ResNet50", help="of keras.applications (default ResNet50)")
    add("--batch-size", 32, "images of each rank in a step")
    add("--image-size", 224, "height and width of the images")
    add("--num-warmup-batches", 10, "steps before the clock starts")
    add("--num-batches-per-iter", 10, "steps of an iteration")
    add("--num-iters", 10, "iterations")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as 16-bit floats")
    return parser.parse_args()


def say(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


def make_model(args: argparse.Namespace) -> Any:
    shape = (args.image_size, args.image_size, 3)
    model = getattr(keras.applications, args.model)(weights=None, input_shape=shape)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()), compression=compression)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy())
    hvd.broadcast_variables(model.weights, root_rank=0)
    return model


def main() -> None:
    args = arguments()
    hvd.init()
    keras.utils.set_random_seed(1 + hvd.rank())
    say(f"Model: {args.model} on {keras.backend.backend()}\nBatch size: {args.batch_size}")
    say(f"Number of CPUs: {hvd.size()}")
    model = make_model(args)
    images = numpy.random.rand(args.batch_size, args.image_size, args.image_size, 3).astype("float32")
    labels = numpy.random.randint(1000, size=args.batch_size)

    def steps(count: int) -> float:
        """Returns this rank's images per second in that many steps."""
        start = time.perf_counter()
        for _ in range(count):
            model.train_on_batch(images, labels)
        return args.batch_size * count / (time.perf_counter() - start)

    say("Running warmup...")
    steps(args.num_warmup_batches)
    say("Running benchmark...")
    rates = []
    for iteration in range(args.num_iters):
        rates.append(steps(args.num_batches_per_iter))
        say(f"Iter #{iteration}: {rates[-1]:.1f} img/sec per CPU")
    mean, spread = statistics.fmean(rates), 1.96 * statistics.pstdev(rates)
    say(f"Img/sec per CPU: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {hvd.size()} CPU(s): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
