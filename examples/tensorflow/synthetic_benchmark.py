"""Measures the training speed of a network on random images.

    horovodrun -np 2 python examples/tensorflow/synthetic_benchmark.py --batch-size 8

Options and output are those of Horovod's own benchmark of this name, so results can be compared. `--model`
names a class of tf.keras.applications.

You see: images per second of a rank in every round, then the mean of a rank and of all together.
"""

import argparse
import timeit

import numpy
import tensorflow as tf

import horovod.tensorflow as hvd


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="ResNet50", help="%(default)s")
    parser.add_argument("--batch-size", type=int, default=32, help="images a rank and step (%(default)s)")
    parser.add_argument("--image-size", type=int, default=224, help="edge of an image (%(default)s)")
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="not measured (%(default)s)")
    parser.add_argument("--num-batches-per-iter", type=int, default=10, help="%(default)s")
    parser.add_argument("--num-iters", type=int, default=10, help="%(default)s")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    args = parser.parse_args()

    hvd.init()
    shape = (args.image_size, args.image_size, 3)
    model = getattr(tf.keras.applications, args.model)(weights=None, input_shape=shape)
    images = tf.random.uniform([args.batch_size, *shape])
    labels = tf.random.uniform([args.batch_size], 0, 1000, tf.int64)
    entropy = tf.keras.losses.SparseCategoricalCrossentropy()
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = entropy(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape, compression=compression)
        variables = model.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.01 * gradient)

    def say(text: str) -> None:
        if hvd.rank() == 0:
            print(text, flush=True)

    def run(batches: int) -> float:
        return timeit.timeit(step, number=batches)

    hvd.broadcast_variables(model.variables, root_rank=0)
    say(f"Model: {args.model}\nBatch size: {args.batch_size}\nNumber of CPUs: {hvd.size()}")
    run(args.num_warmup_batches)
    speeds = []
    for number in range(args.num_iters):
        speeds.append(args.batch_size * args.num_batches_per_iter / run(args.num_batches_per_iter))
        say(f"Iter #{number}: {speeds[-1]:.1f} img/sec per CPU")
    mean, spread = numpy.mean(speeds), 1.96 * numpy.std(speeds)
    say(f"Img/sec per CPU: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {hvd.size()} CPU(s): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")


if __name__ == "__main__":
    main()
