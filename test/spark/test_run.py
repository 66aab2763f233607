"""horovod.spark.run on a classic session: results, output, failures, what is left behind."""

from __future__ import annotations

import io
import os
import select
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import horovod.spark
from horovod.common.exceptions import JobFailedError

DEADLINE = 60.0  # seconds


def has_ended(pid: int) -> bool:
    """Returns true if the process ends before the deadline."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], DEADLINE)[0])
    finally:
        os.close(watched)


def train(first: int, second: int = 0) -> tuple[int, ...]:
    import torch

    import horovod.torch as hvd

    hvd.init()
    print(f"this is {hvd.rank()}")
    total = hvd.allreduce(torch.tensor([float(hvd.rank() + first)]), op=hvd.Sum)
    return hvd.rank(), hvd.size(), hvd.local_rank(), int(total) + second


def test_results_are_in_the_order_of_ranks_and_output_is_here(spark: Any) -> None:
    out, err = io.StringIO(), io.StringIO()
    found = horovod.spark.run(train, (10,), {"second": 100}, stdout=out, stderr=err)
    assert found == [(0, 2, 0, 121), (1, 2, 1, 121)]
    assert sorted(out.getvalue().splitlines()) == [f"[{rank}]<stdout>: this is {rank}" for rank in (0, 1)]
    assert err.getvalue() == ""


def test_a_time_is_put_in_front(spark: Any) -> None:
    out = io.StringIO()
    horovod.spark.run(print, ("x",), num_proc=1, stdout=out, prefix_output_with_timestamp=True)
    stamp, _, rest = out.getvalue().partition("[")
    assert time.strptime(stamp, "%a %b %d %H:%M:%S %Y") and rest == "0]<stdout>: x\n"


def test_ranks_have_settings_of_the_caller_and_leave_none(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith(("HOROVOD_", "OWN"))}

    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "2")
    monkeypatch.setenv("HOROVOD_SECRET", "of another job")
    for each in horovod.spark.run(look, env={"OWN": "5"}):
        assert (each["HOROVOD_CYCLE_TIME"], each["OWN"], each["HOROVOD_SIZE"]) == ("2", "5", "2")
        assert each["HOROVOD_SECRET"] != "of another job"
    in_tasks = spark.sparkContext.parallelize(range(2), 2).map(lambda _: look()).collect()
    assert not any("OWN" in each or "HOROVOD_RANK" in each for each in in_tasks)


def fail(when: str, how: str, folder: str) -> None:
    import horovod as hvd

    rank = int(os.environ["HOROVOD_RANK"])
    (Path(folder) / str(rank)).write_text(str(os.getpid()))
    if when == "after":
        hvd.init()
    while len([*Path(folder).iterdir()]) < 2:  # until the other one has started; Spark ends both otherwise
        time.sleep(0.01)
    if rank == 1 and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and how == "raises":
        raise KeyError("missing")
    if rank == 1:
        print("last words")
        os._exit(3)
    hvd.init()
    hvd.barrier()
    hvd.barrier()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["killed", "raises", "exits"])
def test_the_first_cause_of_a_failure_is_raised(spark: Any, tmp_path: Path, when: str, how: str) -> None:
    with pytest.raises(JobFailedError) as caught:
        horovod.spark.run(fail, (when, how, str(tmp_path)))
    text, fault = str(caught.value), caught.value.fault
    assert fault and fault.rank == 1 and fault.pid == int((tmp_path / "1").read_text())
    if how == "raises":
        assert isinstance(caught.value.__cause__, KeyError)
        assert 'raise KeyError("missing")' in text and "KeyError: 'missing'" in text
    elif how == "killed":
        assert "was killed by SIGKILL" in text and fault.signal == signal.SIGKILL
    else:
        assert "ended with exit code 3" in text and "last words" in text
    assert all(has_ended(int(path.read_text())) for path in tmp_path.iterdir())
    assert horovod.spark.run(os.getpid, num_proc=1)  # Spark goes on


def test_too_few_slots_are_an_error_at_once(spark: Any) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="3 ranks need 3 slots of Spark at the same time, and it has 2"):
        horovod.spark.run(print, num_proc=3)
    assert time.monotonic() - began < DEADLINE
    with pytest.raises(ValueError, match="num_proc=0"):
        horovod.spark.run(print, num_proc=0)


def test_a_result_that_can_not_be_sent(spark: Any) -> None:
    with pytest.raises(JobFailedError, match="returned a lock, which can't be pickled") as caught:
        horovod.spark.run(lambda: __import__("threading").Lock(), num_proc=1)
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_large_result_arrives(spark: Any) -> None:
    assert horovod.spark.run(bytes, (5_000_000,)) == [bytes(5_000_000)] * 2


def test_options_of_mpi_warn(spark: Any) -> None:
    with pytest.warns(UserWarning, match="have no effect: Spark's tasks start the ranks"):
        horovod.spark.run(abs, (1,), num_proc=1, use_mpi=True, extra_mpi_args="-x A")
