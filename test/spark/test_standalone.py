"""horovod.spark.run on a Standalone cluster of several hosts, as root."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import virtual_hosts

DEADLINE = 240.0  # seconds
CLASS = str(Path(pyspark.__file__).parent / "bin/spark-class")
SETTINGS = {"spark.ui.enabled": "false", "spark.executor.memory": "512m", "spark.driver.host": "a"}

PROGRAM = f"""
import os, signal, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("spark://a:7077").config(map={SETTINGS}).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
import horovod.spark
def f(how):
    import horovod as hvd, numpy as np, socket
    hvd.init()
    print("hello", flush=True)
    if how and hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    total = hvd.allreduce(np.ones(1), op=hvd.Sum)
    return hvd.rank(), hvd.local_rank(), hvd.cross_rank(), float(total[0]), socket.gethostname()
print(horovod.spark.run(f, (False,), num_proc=2))
try:
    horovod.spark.run(f, (True,), num_proc=2)
except RuntimeError as error:
    print(error.fault.signal, error.fault.host)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[virtual_hosts.VirtualHosts]:
    """A master on host a, workers of one slot on b and c."""
    try:
        made = virtual_hosts.make()
    except virtual_hosts.UnavailableError as error:
        pytest.skip(f"no virtual hosts: {error}")
    variables = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    started = []

    def start(host: str, *words: str) -> None:
        with open(tmp_path / f"{host}.log", "wb") as log:
            line = [*made.enter(host), "env", f"SPARK_LOCAL_HOSTNAME={host}", CLASS, *words]
            started.append(subprocess.Popen(line, env=variables, stdout=log, stderr=log))

    try:
        package = "org.apache.spark.deploy"
        start("a", f"{package}.master.Master", "--host", "a", "--port", "7077")
        for host in ("b", "c"):
            own = ("-c", "1", "-m", "1g", "-d", str(tmp_path / host), "--host", host)
            start(host, f"{package}.worker.Worker", *own, "spark://a:7077")
        yield made
    finally:
        for process in started:
            process.kill()
            process.wait()
        made.end()


def test_ranks_on_two_hosts(hosts: virtual_hosts.VirtualHosts) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    began = time.monotonic()
    done = subprocess.run(
        [*hosts.enter("a"), sys.executable, "-c", PROGRAM],
        env=variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, f"after {time.monotonic() - began:.0f} s: {done.stderr[-3000:]}"
    lines = done.stdout.splitlines()
    assert {"[0]<stdout>: hello", "[1]<stdout>: hello"} <= set(lines)
    results, fault = [line for line in lines if not line.startswith("[0]<") and not line.startswith("[1]<")]
    assert results in (
        "[(0, 0, 0, 2.0, 'b'), (1, 0, 1, 2.0, 'c')]",
        "[(0, 0, 0, 2.0, 'c'), (1, 0, 1, 2.0, 'b')]",
    )
    assert fault in ("9 b", "9 c")
