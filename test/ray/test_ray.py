"""Jobs on real Ray clusters of this machine, whose nodes come and go: `make test-ray`."""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.cloudpickle
from ray.cluster_utils import Cluster

from horovod.common.exceptions import HorovodInternalError, JobFailedError
from horovod.ray import ElasticRayExecutor, RayExecutor, results
from horovod.runner.common.util.timeout import TimeoutException

MEMORY = 100 << 20  # of each node's object store
DEADLINE = 60.0

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks can't import this file


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without processors, and nodes with two and with one."""
    os.environ["RAY_DISABLE_MEMORY_MONITOR"] = "1"
    own = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False},
    )
    own.add_node(num_cpus=2, num_gpus=2, object_store_memory=MEMORY)
    own.add_node(num_cpus=1, object_store_memory=MEMORY)
    ray.init(address=own.address, log_to_driver=False)
    yield own
    ray.shutdown()
    own.shutdown()


def settings(seconds: float = DEADLINE) -> Any:
    return RayExecutor.create_settings(timeout_s=DEADLINE, placement_group_timeout_s=seconds)


@pytest.fixture
def executor(cluster: Cluster) -> Iterator[RayExecutor]:
    own = RayExecutor(settings(), num_workers=3)
    yield own
    own.shutdown()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


# -- RayExecutor ---------------------------------------------------------------------------------------


class Model:
    """What each rank keeps between calls."""

    def __init__(self, weight: int, rate: float = 1.0) -> None:
        import horovod

        horovod.init()
        self.weight = weight * rate

    def step(self) -> tuple[int, float]:
        import numpy

        import horovod

        self.weight += horovod.allreduce(numpy.array([horovod.rank()]), op=horovod.Sum)[0]
        return horovod.rank(), self.weight


def test_ranks_by_node_with_a_state_that_stays(executor: RayExecutor) -> None:
    def place(_: Any) -> tuple[int, ...]:
        import horovod as hvd

        numbers = (
            hvd.rank(),
            hvd.size(),
            hvd.local_rank(),
            hvd.local_size(),
            hvd.cross_rank(),
            hvd.cross_size(),
        )
        return (*numbers, int(os.environ["OWN"]))

    executor.start(Model, [10], {"rate": 2.0}, {"OWN": 7})
    assert executor.execute(place) == [(0, 3, 0, 2, 0, 2, 7), (1, 3, 1, 2, 0, 1, 7), (2, 3, 0, 1, 1, 2, 7)]
    assert executor.execute(lambda model: model.step()) == [(0, 23), (1, 23), (2, 23)]
    assert executor.execute_single(lambda model: model.weight) == 23
    assert ray.get(executor.run_remote(lambda a, b: a * b, [2], {"b": 3})) == [6, 6, 6]
    assert len(executor.adapter.workers) == 3


def test_callbacks_get_what_is_logged(executor: RayExecutor) -> None:
    def train(factor: int) -> int:
        import horovod
        from horovod.ray import ray_logger

        horovod.init()
        for step in range(2):
            ray_logger.log({"step": step})
        ray_logger.log(horovod.rank() * factor, chief_only=False)
        return horovod.rank()

    values: list[Any] = []
    executor.start()
    assert executor.run(train, [10], callbacks=[values.append]) == [0, 1, 2]
    assert [each for each in values if isinstance(each, dict)] == [{"step": 0}, {"step": 1}]
    assert sorted(each for each in values if isinstance(each, int)) == [0, 10, 20]


def test_a_rank_that_fails_before_it_joins(executor: RayExecutor) -> None:
    def train(_: Any) -> None:
        import horovod

        if os.environ["HOROVOD_RANK"] == "1":
            raise KeyError("no such column")
        horovod.init()

    executor.start()
    begin = time.monotonic()
    with pytest.raises(
        JobFailedError, match=r"rank 1 of 3 failed first:(.|\n)*KeyError: 'no such column'"
    ) as info:
        executor.execute(train)
    assert time.monotonic() - begin < DEADLINE / 2
    assert isinstance(info.value.__cause__, KeyError)
    with pytest.raises(ValueError, match="call start first"):  # the others were ended
        executor.execute(train)
    executor.start()
    assert executor.execute(lambda _: os.environ["HOROVOD_RANK"]) == ["0", "1", "2"]


def test_a_rank_that_dies_and_those_that_lost_it(executor: RayExecutor) -> None:
    def train(_: Any) -> None:
        import numpy

        import horovod

        horovod.init()
        if horovod.rank() == 2:
            os._exit(7)
        horovod.allreduce(numpy.ones(1))

    executor.start()
    with pytest.raises(JobFailedError, match="rank 2 of 3 failed first") as info:
        executor.execute(train)
    assert isinstance(info.value.__cause__, ray.exceptions.RayActorError)
    assert not isinstance(getattr(info.value.__cause__, "cause", None), HorovodInternalError)


def test_more_workers_than_the_cluster_has_room_for(cluster: Cluster) -> None:
    for options, text in (
        ({"num_workers": 50}, "50 workers were asked for, each with CPU 1, and the cluster has room for 3"),
        (
            {"num_hosts": 3},
            "3 hosts with 1 workers each were asked for, each with CPU 1, .* has 2 such hosts",
        ),
        ({"num_workers": 3, "use_gpu": True}, "3 workers .*, each with CPU 1, GPU 1, .* room for 2"),
    ):
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match=text + r".*Waited 2 s \(placement_group_timeout_s\)"):
            RayExecutor(settings(2), **options).start()
        assert 2 <= time.monotonic() - begin < 15
    wait_until(lambda: ray.available_resources().get("CPU") == 3)


def test_hosts_with_gpus(cluster: Cluster) -> None:
    """Both workers of the node see both GPUs, and the local rank is the index of the worker's own one."""

    def seen(_: Any) -> tuple[str, str, str]:
        own = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        return own[0], os.environ["CUDA_VISIBLE_DEVICES"], os.environ["HOROVOD_LOCAL_RANK"]

    executor = RayExecutor(settings(), num_hosts=1, num_workers_per_host=2, use_gpu=True)
    executor.start()
    try:
        found = executor.execute(seen)
        assert {own for own, _, _ in found} == {"0", "1"}
        assert all(visible.split(",")[int(local)] == own for own, visible, local in found)
    finally:
        executor.shutdown()


def test_inside_of_a_placement_group_of_the_program(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0)
    def program() -> list[int]:
        executor = RayExecutor(settings(), num_workers=2)
        executor.start()
        return executor.run(lambda: int(os.environ["HOROVOD_SIZE"]))

    group = ray.util.placement_group([{"CPU": 1}] * 3, strategy="PACK")
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
        group, placement_group_capture_child_tasks=True
    )
    try:
        task = program.options(scheduling_strategy=strategy).remote()
        assert ray.get(task, timeout=DEADLINE) == [2, 2]
    finally:
        ray.util.remove_placement_group(group)


def test_a_node_that_is_taken_away(cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=1, resources={"spare": 1}, object_store_memory=MEMORY)
    executor = RayExecutor(settings(), num_hosts=3)

    def train(_: Any) -> None:
        import numpy

        import horovod

        horovod.init()
        while True:
            horovod.allreduce(numpy.ones(1))

    executor.start()
    remover = threading.Timer(2, lambda: cluster.remove_node(node, allow_graceful=False))
    remover.start()
    try:
        with pytest.raises(JobFailedError):
            executor.execute(train)
    finally:
        remover.join()
        executor.shutdown()


# -- elastic jobs --------------------------------------------------------------------------------------


def test_an_elastic_job_whose_nodes_come_and_go(cluster: Cluster, tmp_path: Path) -> None:
    """It begins with three ranks, grows with a new node, and goes on without it when it is taken away."""
    seen = tmp_path / "sizes"

    def train() -> tuple[int, int, list[int]]:
        import numpy

        import horovod as hvd

        end = time.monotonic() + DEADLINE  # the clock is that of the machine
        hvd.init()
        state = hvd.elastic.ObjectState(step=0, sizes=[], end=False)

        @hvd.elastic.run
        def loop(state: Any) -> None:
            while not state.end:
                hvd.allreduce(numpy.ones(1))
                if state.sizes[-1:] != [hvd.size()]:
                    state.sizes = [*state.sizes, hvd.size()]
                    if hvd.rank() == 0:
                        seen.write_text(" ".join(map(str, state.sizes)))
                state.end = state.sizes == [3, 4, 3] or time.monotonic() > end
                state.step += 1
                time.sleep(0.01)
                state.commit()

        loop(state)
        return hvd.rank(), hvd.size(), state.sizes

    executor = ElasticRayExecutor(
        ElasticRayExecutor.create_settings(min_num_proc=3, elastic_timeout=DEADLINE), env_vars={"OWN": 1}
    )
    executor.start()
    with ThreadPoolExecutor() as beside:
        results = beside.submit(executor.run, train)
        wait_until(lambda: results.done() or seen.exists())
        node = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        wait_until(lambda: results.done() or seen.read_text() == "3 4")
        cluster.remove_node(node, allow_graceful=False)
        assert results.result(DEADLINE) == [(rank, 3, [3, 4, 3]) for rank in range(3)]
    wait_until(lambda: sum(each["Alive"] for each in ray.nodes()) == 3)


def test_a_program_that_stands_still_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others have raised meanwhile is asked for, although the time for them is over."""
    errors: dict[str, Exception] = {"first": HorovodInternalError("lost"), "second": KeyError("x")}

    def get(future: str) -> None:
        raise errors[future]

    clock = itertools.count(0, 10)  # seconds between two looks
    monkeypatch.setattr(results, "time", SimpleNamespace(monotonic=clock.__next__))
    monkeypatch.setattr(ray, "wait", lambda futures, timeout: (futures[:1], futures[1:]))
    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(JobFailedError, match="rank 1 of 2 failed first") as info:
        results.results([*errors], results.Log(None), lambda: None)
    assert isinstance(info.value.__cause__, KeyError)


def test_an_elastic_job_that_fails(cluster: Cluster) -> None:
    def train(_: Any) -> None:
        raise KeyError("no such column")

    executor = RayExecutor(settings(), min_workers=2, max_workers=2, elastic_timeout=5)
    executor.start()
    with pytest.raises(JobFailedError, match="no such column") as info:
        executor.execute(train)
    assert isinstance(info.value.__cause__, KeyError)
    with pytest.raises(NotImplementedError, match="use run or execute"):
        executor.run_remote(train)


def test_an_elastic_job_without_room(cluster: Cluster) -> None:
    executor = ElasticRayExecutor(ElasticRayExecutor.create_settings(min_num_proc=9, elastic_timeout=2))
    with pytest.raises(
        TimeoutException, match=r"9 ranks were asked for, each with CPU 1, .* room for 3: .*Waited 2 s"
    ):
        executor.start()


# -- Ray Train -----------------------------------------------------------------------------------------


def test_trainer(cluster: Cluster, tmp_path: Path) -> None:
    from ray.train import (
        Checkpoint,
        FailureConfig,
        RunConfig,
        ScalingConfig,
        get_checkpoint,
        get_context,
        report,
    )

    from horovod.ray.train import HorovodConfig, HorovodTrainer

    def train(config: dict[str, Any]) -> tuple[int, ...]:
        import numpy

        import horovod

        horovod.init()
        begin = get_checkpoint()
        total = horovod.allreduce(numpy.array([horovod.rank() + 1]), op=horovod.Sum)[0]
        folder = Path(config["folder"]) / f"checkpoint-{horovod.rank()}"
        folder.mkdir(exist_ok=True)
        (folder / "weights").write_text(str(total))
        report(
            {"total": int(total)},
            checkpoint=Checkpoint.from_directory(folder) if horovod.rank() == 0 else None,
        )
        if not begin:
            raise KeyError("once")
        assert horovod.rank() == get_context().get_world_rank()
        return horovod.size(), horovod.local_size(), horovod.cross_size()

    trainer = HorovodTrainer(
        train,
        horovod_config=HorovodConfig(timeout_s=DEADLINE),
        train_loop_config={"folder": str(tmp_path)},
        scaling_config=ScalingConfig(num_workers=3),
        run_config=RunConfig(storage_path=str(tmp_path), failure_config=FailureConfig(max_failures=1)),
    )
    begin = time.monotonic()
    result = trainer.fit()
    assert result.return_value == (3, 2, 2)
    assert result.metrics == {"total": 6}
    assert time.monotonic() - begin < DEADLINE


# -- the guide -----------------------------------------------------------------------------------------


def test_the_example_of_the_guide(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "ray.md").read_text()
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert "ray.init()" in example
    exec(example.replace("ray.init()", "pass"), {"__name__": "__main__"})
    found = re.search(r"^\[\(0, (\d\.\d+)\), \(1, (\d\.\d+)\)\]$", capsys.readouterr().out, re.MULTILINE)
    assert found and float(found[1]) < 8  # the variance of the target
