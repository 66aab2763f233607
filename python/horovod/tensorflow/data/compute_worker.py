"""The program of the workers of a data service:

horovodrun -np 2 python -m horovod.tensorflow.data.compute_worker /shared/service.json
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

import horovod.tensorflow as hvd
from horovod.runner.common.util.secret import make_secret_key
from horovod.tensorflow.data.compute_service import SIDES, TfDataServiceConfig, compute_worker_fn
from horovod.tensorflow.data.registry import ComputeService


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: float = 60) -> None:
    """Runs the service until a client ends it; rank 0 writes the file by which clients find it.

    Raises:
        ValueError: the number of processes is no multiple of the number of dispatchers.
    """
    hvd.init()
    if dispatchers < 1 or hvd.size() % dispatchers:
        raise ValueError(
            f"{hvd.size()} processes can't be divided among {dispatchers} dispatchers: start a multiple"
        )
    workers, config = hvd.size() // dispatchers, None
    with contextlib.ExitStack() as running:
        if hvd.rank() == 0:
            key = make_secret_key()
            service = ComputeService(dispatchers, workers, key)
            running.callback(service.shutdown)
            config = TfDataServiceConfig(
                dispatchers, workers, dispatcher_side, service.addresses(), key, timeout
            )
            config.write(configfile)
            running.callback(Path(configfile).unlink, missing_ok=True)  # no later job is to find it
        compute_worker_fn(hvd.broadcast_object(config))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m horovod.tensorflow.data.compute_worker",
        description="Prepares data for the ranks of another job, with TensorFlow's data service.",
    )
    parser.add_argument(
        "configfile", help="the file, which all hosts share, by which the other job finds this one"
    )
    parser.add_argument(
        "--dispatchers", type=int, default=1, help="1, or the number of ranks of the other job"
    )
    parser.add_argument(
        "--dispatcher-side", choices=SIDES, default="compute", help="where the dispatchers run"
    )
    parser.add_argument(
        "--timeout", type=float, default=60, help="the seconds for which processes wait for one another"
    )
    given = parser.parse_args()
    main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
