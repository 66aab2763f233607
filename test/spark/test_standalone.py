"""horovod.spark.run on a Standalone cluster of three hosts, as root: results, and whatever is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
import virtual_hosts

DEADLINE = 240.0  # seconds
CLASS = str(Path(pyspark.__file__).parent / "bin/spark-class")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.driver.host": "a",
    "spark.network.timeout": "20s",  # after which Spark gives up an executor that is silent
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
}
SILENCE = 3  # seconds after which ranks give up a host

SESSION = f"""
import os, signal, socket, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("spark://a:7077").config(map={SETTINGS}).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
import horovod.spark
"""
RESULTS = """
def f(how):
    import horovod as hvd, numpy as np
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
# A rank trains until it fails; then the session runs a job on the slot that is left.
TRAINING = f"""
def train():
    import horovod as hvd, numpy as np
    hvd.init()
    step = 0
    while True:
        hvd.allreduce(np.ones(1), name="x")
        step += 1
        if step == 10:
            print("trains on", socket.gethostname(), flush=True)
try:
    horovod.spark.run(train, num_proc=2, env={{"HOROVOD_TIMEOUT_SECONDS": "{SILENCE}"}})
except RuntimeError as error:
    print("failed:", " ".join(str(error).split()), flush=True)
end = time.monotonic() + {DEADLINE}
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
while executors().size() > 2 and time.monotonic() < end:  # the driver is one of them
    time.sleep(0.2)
print("goes on on", *horovod.spark.run(socket.gethostname, num_proc=1))
"""


class Cluster:
    """A master on host a, workers of one slot on b and c."""

    def __init__(self, hosts: virtual_hosts.VirtualHosts, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        self.variables = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
        self.started: list[subprocess.Popen[bytes]] = []
        self.start("a", "org.apache.spark.deploy.master.Master", "--host", "a", "--port", "7077")
        for host in ("b", "c"):
            self.start_worker(host)

    def start(self, host: str, *words: str) -> None:
        log = (self.folder / f"{host}.log").open("ab")
        script = f'echo $$ >{self.folder}/{host}.pid; exec env SPARK_LOCAL_HOSTNAME={host} "$@"'
        line = [*self.hosts.enter(host), "sh", "-c", script, "sh", CLASS, *words]
        with log:
            self.started.append(subprocess.Popen(line, env=self.variables, stdout=log, stderr=log))

    def start_worker(self, host: str) -> None:
        own = ("-c", "1", "-m", "1g", "-d", str(self.folder / host), "--host", host)
        self.start(host, "org.apache.spark.deploy.worker.Worker", *own, "spark://a:7077")

    def kill_worker(self, host: str) -> None:
        """Kills Spark's worker, whose executor then ends by itself."""
        pid = (self.folder / f"{host}.pid").read_text().strip()
        assert self.hosts.inside(host, "sh", "-c", f"kill -KILL {pid}") == 0

    def crash(self, host: str) -> None:
        """Ends a host with all that runs there, while no packet leaves it."""
        self.hosts.run(host, "ip link set eth0 down")
        self.hosts.processes[host].kill()

    def program(self, text: str, during: Callable[[str], bool], fault: Callable[[], None]) -> str:
        """Runs a program on host a; returns its output. Calls `fault` once `during` is true for that."""
        out, err, began = self.folder / "out", self.folder / "err", time.monotonic()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            line = [*self.hosts.enter("a"), sys.executable, "-c", SESSION + text]
            process = subprocess.Popen(line, env=self.variables, stdout=stdout, stderr=stderr)
        try:
            reached = virtual_hosts.wait_until(
                lambda: during(out.read_text()) or process.poll() is not None, DEADLINE
            )
            assert reached and during(out.read_text()), (out.read_text(), err.read_text()[-3000:])
            fault()
            process.wait(DEADLINE)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, f"after {time.monotonic() - began:.0f} s: {err.read_text()[-3000:]}"
        return out.read_text()

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The tests of this file share it; the last one takes host c away."""
    try:
        made = virtual_hosts.make()
    except virtual_hosts.UnavailableError as error:
        pytest.skip(f"no virtual hosts: {error}")
    cluster = Cluster(made, tmp_path_factory.mktemp("standalone"))
    try:
        yield cluster
    finally:
        cluster.end()
        made.end()


def trains_on_both(text: str) -> bool:
    return all(f"trains on {host}" in text for host in ("b", "c"))


def last_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(("[0]<", "[1]<"))]


def test_ranks_on_two_hosts(cluster: Cluster) -> None:
    text = cluster.program(RESULTS, lambda text: True, lambda: None)
    assert {"[0]<stdout>: hello", "[1]<stdout>: hello"} <= set(text.splitlines())
    results, fault = last_lines(text)
    assert results in (
        "[(0, 0, 0, 2.0, 'b'), (1, 0, 1, 2.0, 'c')]",
        "[(0, 0, 0, 2.0, 'c'), (1, 0, 1, 2.0, 'b')]",
    )
    assert fault in ("9 b", "9 c")


def test_a_killed_worker_ends_the_job_and_the_session_goes_on(cluster: Cluster) -> None:
    text = cluster.program(TRAINING, trains_on_both, lambda: cluster.kill_worker("c"))
    cluster.start_worker("c")
    failed, goes_on = last_lines(text)
    assert failed.startswith("failed: ") and goes_on == "goes on on b"


def test_a_host_that_crashes_is_named_and_the_session_goes_on(cluster: Cluster) -> None:
    text = cluster.program(TRAINING, trains_on_both, lambda: cluster.crash("c"))
    failed, goes_on = last_lines(text)
    assert f"has not answered for {SILENCE} s" in failed and "host c" in failed
    assert goes_on == "goes on on b"
