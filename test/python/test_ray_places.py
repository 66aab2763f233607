"""Where `horovod.ray` places ranks, without Ray."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest

from horovod.ray import places


def test_ranks_of_a_node_follow_one_another() -> None:
    assert places.by_node(["a", "b", "a", "c", "b"]) == [0, 2, 1, 4, 3]
    assert places.by_node([]) == []


def test_places_on_nodes_with_different_numbers_of_ranks() -> None:
    found = places.variables(["x", "x", "y", "z", "z"], "job", "10.0.0.1:7", "s", 30.5, "eth0")
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOST_ID")
    assert [[each[f"HOROVOD_{name}"] for name in names] for each in found] == [
        ["0", "5", "0", "2", "0", "3", "x"],
        ["1", "5", "1", "2", "0", "2", "x"],
        ["2", "5", "0", "1", "1", "3", "y"],
        ["3", "5", "0", "2", "2", "3", "z"],
        ["4", "5", "1", "2", "1", "2", "z"],
    ]
    assert {each["HOROVOD_START_TIMEOUT"] for each in found} == {"30.5"}
    assert {each["HOROVOD_NETWORK_INTERFACE"] for each in found} == {"eth0"}


def test_coordinator() -> None:
    """Ranks need not follow one another on a node."""
    coordinator = places.Coordinator()
    for rank in range(12):
        coordinator.register("abc"[rank % 3], f"node-{rank % 3}", rank)
    assert (coordinator.world_size, coordinator.hostnames) == (12, {"a", "b", "c"})
    assert coordinator.node_id_string == "node-0:4,node-1:4,node-2:4"
    assert coordinator.finalize_registration()[7] == {
        "HOROVOD_LOCAL_RANK": 2,
        "HOROVOD_LOCAL_SIZE": 4,
        "HOROVOD_CROSS_RANK": 1,
        "HOROVOD_CROSS_SIZE": 3,
    }


def test_the_local_rank_is_the_index_of_a_workers_first_device() -> None:
    assert places.visible_devices([["3"], ["0"]]) == "3,0"
    assert places.visible_devices([["2", "3"], ["0", "1"]]) == "2,0,3,1"


def test_room() -> None:
    node = {"CPU": 8.0, "GPU": 3.0, "memory": 1e9}
    assert places.room(node, {"CPU": 2}) == 4
    assert places.room(node, {"CPU": 2, "GPU": 1}) == 3
    assert places.room(node, {"CPU": 0.5}) == 16
    assert places.room({}, {"CPU": 1}) == 0


NODES = {"10.0.0.1": {"CPU": 2.0}, "10.0.0.2": {"CPU": 1.0, "GPU": 1.0}, "10.0.0.3": {}}


def test_what_the_cluster_lacks() -> None:
    text = places.shortage(5, 1, {"CPU": 1}, False, NODES, {"CPU": 1.0})
    assert text == (
        "5 workers were asked for, each with CPU 1, and the cluster has room for 3: 10.0.0.1 has CPU 2; "
        "10.0.0.2 has CPU 1, GPU 1; 10.0.0.3 has nothing; other jobs leave CPU 1"
    )
    text = places.shortage(2, 2, {"CPU": 1}, True, NODES, {})
    assert text.startswith(
        "2 hosts with 2 workers each were asked for, each with CPU 1, and the cluster has 1"
    )
    assert text.endswith("other jobs leave nothing")


@pytest.mark.parametrize(("given", "listed"), [(None, ""), ("eth0", "eth0"), (["a", "b"], "a,b")])
def test_network_interfaces(given: str | list[str] | None, listed: str) -> None:
    assert places.interface_list(given) == listed


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray() -> None:
    package = importlib.import_module("horovod.ray")
    with pytest.raises(ImportError, match=r"horovod.ray.RayExecutor needs Ray: pip install 'horovod\[ray\]'"):
        from horovod.ray import RayExecutor  # noqa: F401
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # noqa: B018
    with pytest.raises(ImportError, match=r"pip install 'horovod\[ray\]'"):
        importlib.import_module("horovod.ray.train")
    assert "ray" not in sys.modules
